"""Who may import whom: the import rules of the design, held by reading the sources.

A module belongs to the layer with the longest matching name. It may import its own layer and what the table lists; a
name stands for itself and all below it. Modules that the table does not name (commands, benchmarks, ...) may import
everything but the app. What stands under ``if TYPE_CHECKING:`` never runs and does not count.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


class Layer(NamedTuple):
    """``never`` takes away again what a wider name in ``may`` (or the layer's own) would allow."""

    name: str
    may: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


BASE = ("harness.schema", "harness.errors", "harness.tables")
COMPILED = ("harness.jit", "harness.policy_files")
READ_ONLY = ("state", "fit", "preempt", "sourcing", "domain_search", "reservation", "rollup", "gang_search", "admission", "packing",
             "fragmentation", "power", "service", "quota", "spot", "routing", "speed", "gangs")
"""What a policy may see of its own side: the state's names, predicates over it, and searches that only read it."""

RECORDS = tuple(f"harness.{side}.{module}" for side in ("cluster", "serving") for module in ("outcome", "log", "state"))
"""What a replay leaves behind: all that metrics may see of either side."""

LAYERS = (
    Layer("harness.__init__", may=("harness.cache",)),
    Layer("harness.schema"),
    Layer("harness.errors"),
    Layer("harness.cache"),
    Layer("harness.jit"),
    Layer("harness.policy_files", may=("harness.errors", "harness.jit")),
    Layer("harness.tables", may=BASE),
    Layer("harness.readers", may=(*BASE, "harness.topology")),
    Layer("harness.workload", may=BASE),
    Layer("harness.workload.embedded", may=(*BASE, "harness.workload", "harness.topology")),
    Layer("harness.topology", may=BASE),
    Layer("harness.cluster", may=(*BASE, *COMPILED, "harness.topology"), never=("harness.cluster.policies",)),
    Layer("harness.cluster.policies", may=("harness.schema", *COMPILED, *(f"harness.cluster.{m}" for m in READ_ONLY))),
    Layer("harness.serving", may=(*BASE, *COMPILED, "harness.topology"), never=("harness.serving.policies",)),
    Layer("harness.serving.policies", may=("harness.schema", *COMPILED, *(f"harness.serving.{m}" for m in READ_ONLY))),
    Layer("harness.metrics", may=(*BASE, "harness.topology", "harness.cluster.admission", "harness.cluster.fragmentation",
                                  "harness.cluster.power", "harness.serving.tokens", *RECORDS)),
    Layer("harness.figures", may=(*BASE, "harness.metrics")),
    Layer("harness.app", may=("harness",)),
    Layer("harness.sweeping", may=("harness",)),
    Layer("harness.__main__", may=("harness",)),
    Layer("tests.naive", may=("harness.schema",)),
    Layer("tests.naive_policies", may=("harness.schema",)),
    Layer("tests.naive_spot", may=("harness.schema",)),
)
EVERYTHING_ELSE = Layer("any other module", may=("harness",), never=("harness.app",))

ONLY_IN = {"hydra": ("harness.app", "harness.sweeping"), "omegaconf": ("harness.app", "harness.sweeping")}
"""Libraries that are kept to the modules named."""


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def layer_of(module: str) -> Layer:
    matching = [layer for layer in LAYERS if within(module, layer.name)]
    return max(matching, key=lambda layer: len(layer.name), default=EVERYTHING_ELSE)


def running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below ``node`` but those that only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            child = ast.Module(body=child.orelse, type_ignores=[])
        yield child
        yield from running(child)


def imports(module: str, source: str) -> list[tuple[int, str]]:
    """(line, dotted name) of every import statement; ``from a import b`` counts as a.b, relative ones are resolved.

    ``module`` is the dotted file name, so a package's own file is called ``package.__init__``.
    """
    found = []
    for node in running(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            origin = [*base, node.module] if node.module else base
            found += [(node.lineno, ".".join([*origin, alias.name])) for alias in node.names]
    return found


def violations(module: str, source: str) -> list[str]:
    """One line for each import of ``source`` that the rules do not allow to ``module``."""
    layer = layer_of(module)
    allowance = ", ".join(layer.may) or "nothing of the harness"
    if layer.never:
        allowance += f" but never {', '.join(layer.never)}"
    found = []
    for line, name in imports(module, source):
        home = ONLY_IN.get(name.split(".")[0])
        if home is not None and not any(within(module, h) for h in home):
            found.append(f"{module}:{line} imports {name}, which only {' and '.join(home)} may")
        if not within(name, "harness") or name in ("harness", "harness.__version__"):
            continue
        own = layer is not EVERYTHING_ELSE and within(name, layer.name)
        allowed = own or any(within(name, prefix) for prefix in layer.may)
        if not allowed or any(within(name, prefix) for prefix in layer.never):
            found.append(f"{module}:{line} imports {name}; {layer.name} may import {allowance}")
    return found


def modules() -> list[tuple[str, Path]]:
    """(dotted name, file) of every module of the package, and of the naive twin that must not lean on it."""
    files = [*sorted((REPOSITORY / "harness").rglob("*.py")), *sorted((REPOSITORY / "tests").glob("naive*.py"))]
    return [(".".join(f.relative_to(REPOSITORY).with_suffix("").parts), f) for f in files]


def test_the_sources_are_found():
    assert {"harness.__init__", "harness.schema", "harness.errors"} <= {name for name, _ in modules()}


def test_every_module_keeps_to_its_layer():
    found = [v for name, file in modules() for v in violations(name, file.read_text(encoding="utf-8"))]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "module, source",
    [
        ("harness.__init__", "from harness.tables import read"),
        ("harness.schema", "import harness.errors"),
        ("harness.errors", "from harness import schema"),
        ("harness.readers.philly", "from harness.workload import slice_jobs"),
        ("harness.workload.mix", "def f():\n    from harness.cluster.engine import replay"),
        ("harness.workload.mix", "if TYPE_CHECKING:\n    import os\nelse:\n    from harness.topology import Cluster"),
        ("harness.topology.shape", "from ..cluster import state"),
        ("harness.cluster.engine", "from harness.cluster.policies import fifo"),
        ("harness.cluster.engine", "from .policies.fifo import FIFO"),
        ("harness.cluster.engine", "from . import policies"),
        ("harness.cluster.policies.godel", "from harness.cluster.engine import replay"),
        ("harness.cluster.policies.godel", "from ..engine import replay"),
        ("harness.cluster.policies.godel", "from harness.serving.view import View"),
        ("harness.serving.engine", "import harness.serving.policies.fcfs"),
        ("harness.metrics.jobs", "from harness.cluster.engine import replay"),
        ("harness.metrics.jobs", "from harness.cluster.lifecycle import done_at"),
        ("tests.naive", "from harness.cluster.fit import fits"),
        ("harness.figures.hit_rate", "from harness.serving import engine"),
        ("harness.reproduce", "from harness.app import main"),
        ("harness.reproduce", "import hydra"),
        ("harness.cluster.engine", "from omegaconf import DictConfig"),
        ("harness.traces_app", "from hydra.core.config_store import ConfigStore"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str):
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    "module, source",
    [
        ("harness.tables", "from harness.schema import JOBS\nfrom .errors import BadInput"),
        ("harness.readers.openb", "from harness.topology import Cluster\nimport pyarrow.csv"),
        ("harness.workload.mix", "from .draws import exponential\nfrom harness import __version__"),
        ("harness.workload.mix", "if TYPE_CHECKING:\n    from harness.topology import Cluster"),
        ("harness.cluster.policies.godel", "from harness.cluster.state import View\nfrom ..fit import fits\nfrom . import rank"),
        ("harness.cluster.engine", "from .state import State\nfrom harness.topology.shape import ServerShape"),
        ("harness.app", "import hydra\nfrom omegaconf import MISSING\nfrom harness.cluster.policies import fifo"),
        ("harness.__main__", "from harness.app import main"),
        ("harness.bench", "from harness.cluster.engine import replay\nfrom hydra_plugins import resume"),
        ("harness.metrics.jobs", "from harness.cluster.log import Log\nimport harness_lookalike"),
        ("harness.metrics.jobs", "from harness.cluster.outcome import Outcome\nfrom harness.serving.state import RUNNING"),
        ("tests.naive", "from harness import schema\nfrom naive_policies import POLICIES"),
    ],
)
def test_an_allowed_import_is_not(module: str, source: str):
    assert violations(module, source) == []


def test_a_package_resolves_its_relative_imports_from_itself():
    assert imports("harness.cluster.__init__", "from . import state\nfrom ..schema import JOBS") == [
        (1, "harness.cluster.state"),
        (2, "harness.schema.JOBS"),
    ]
