"""What every serving policy must keep to: the same tables again, and with the compiler on and off."""

import json
import os
import subprocess
import sys
from pathlib import Path

from harness.jit import JIT
from harness.serving.hooks import policy_names
from serving_digest import WITH_STORES, digests

TESTS = Path(__file__).resolve().parent


def test_the_same_replay_gives_the_same_tables_with_the_compiler_on_and_off():
    mine = digests()
    assert mine == digests() and set(mine) == {*policy_names(), *WITH_STORES}
    paths = os.pathsep.join((str(TESTS.parent), str(TESTS)))
    done = subprocess.run([sys.executable, str(TESTS / "serving_digest.py")], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": paths, "NUMBA_DISABLE_JIT": "1" if JIT else "0"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == mine


def test_every_policy_has_its_yaml():
    conf = TESTS.parent / "conf" / "policy"
    assert all((conf / f"{name}.yaml").is_file() for name in policy_names())
