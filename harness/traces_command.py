"""What the commands of ``harness-traces`` share: their options, names of files and clusters."""

import argparse
from collections.abc import Mapping, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import BadInput
from harness.tables import one_line

if TYPE_CHECKING:
    from harness.topology import Cluster

IN_MEMORY = "Traces are held whole: so many bytes of memory a job, measured: slice and scale 300, compare 650, fit 750."
"""Said by the commands that it is true of."""

DEFAULT_CLUSTER = "rtx4090_x100"


class Parser(argparse.ArgumentParser):
    """Options of one command; what it does not understand is BadInput."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(f"harness-traces {command}", description=description, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> Any:
        raise BadInput(f"{one_line(message)}; see `{self.prog} --help`")


def load_cluster(name: str) -> "Cluster":
    """The cluster in the YAML file ``name``, or of that name in conf/cluster. Raises BadInput."""
    from harness.topology import build, parse

    return build(parse(section(name, "cluster", "--cluster", [])))


def section(name: str, group: str, what: str, more: Sequence[str]) -> Mapping[str, Any]:
    """The mapping in the YAML file ``name``, or of that name in conf/``group``. Raises BadInput; ``more`` are further names to list."""
    import yaml

    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        homes = (Path(__file__).parent / "conf", Path(__file__).parents[1] / "conf")
        folder = next((home for home in homes if home.is_dir()), homes[0]) / group
        path = folder / f"{name}.yaml"
        known = sorted({f.stem for f in folder.glob("*.yaml")} | set(more))
        if not path.is_file() or name not in known:
            sign = f"{what} {one_line(name, 60)}: unknown" if what.startswith("--") else f"{what} '{one_line(name, 40)}'"
            raise BadInput(f"{sign}, must be {'a YAML file or ' if group == 'cluster' else ''}one of {', '.join(known)}")
    try:
        section = yaml.safe_load(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"{one_line(path)}: cannot be read ({one_line(error)})") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: is not YAML ({one_line(error)})") from error
    if not isinstance(section, Mapping):
        keys = "name and groups" if group == "cluster" else "generator"
        raise BadInput(f"{path}: must be a mapping with the keys of a {group}, such as {keys}")
    return section


def key_value(word: str) -> tuple[str, Any]:
    import yaml

    key, sign, value = word.partition("=")
    if not sign or not key:
        raise BadInput(f"'{one_line(word, 60)}': parameters are KEY=VALUE")
    try:
        return key.removeprefix("workload."), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise BadInput(f"{one_line(word, 60)}: the value is not YAML ({one_line(error, 80)})") from error


def refuse_overwriting(files: Sequence[Path], out: Path) -> None:
    for path in files:
        if path.exists() and out.exists() and path.samefile(out):
            raise BadInput(f"{out}: is the file to read, the output must be another one")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def yaml_text(value: Mapping[str, Any]) -> str:
    """``value`` as YAML in which no text can be taken for a number, as Hydra would take 6214e9."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, word: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", word, style="'" if word[:1].isdigit() else None)

    Dumper.add_representer(str, text)
    return yaml.dump(dict(value), Dumper=Dumper, sort_keys=False, default_flow_style=None, width=130)


def first_line(thing: Any) -> str:
    return str(thing.__doc__).strip().splitlines()[0]
