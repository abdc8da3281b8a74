"""What every test may use."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from harness.jit import JIT

REPOSITORY = Path(__file__).resolve().parents[1]

# The first call of a kernel compiles it, which no deadline per example survives. CI must fail for the change alone, so it
# draws the same examples every time.
settings.register_profile("harness", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("harness")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real sizes would take hours as plain Python."""
    if not JIT:
        for item in items:
            if item.get_closest_marker("compiled"):
                item.add_marker(pytest.mark.skip(reason="of a size for compiled code"))


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """Folder of the public traces, which are laid beside the repository and never copied into it. Skips on a bare checkout."""
    folder = REPOSITORY / "../shared/traces"
    if not folder.is_dir():
        pytest.skip("../shared/traces is absent")
    return folder
