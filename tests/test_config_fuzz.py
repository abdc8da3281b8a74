"""Mutated command lines through the command's own main: exit status 0 or 2 (1 for a sweep with failed cells), one line when refused."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.app import main

REPOSITORY = Path(__file__).resolve().parents[1]
LIMIT_S = 30
TINY = ("workload=paper_mix", "workload.preemptors=5", "cluster.servers=10", "policy=fifo")

ODD = (
    "", "null", "true", "-1", "0", "0.5", "1e3", "-1e-300", "1e400", "nan", "-inf", "inf", ".inf", ".nan", "1_0", "0x10",
    "99999999999999999999", "few", "''", "' '", '""', '"', "'", "\\", "\\'", "[]", "[1,2", "[nan]", "[[1]]", "{}", "{a:1}",
    "{a:{b:[1,{c:null}]}}", "{", "}", "]", "[null]", "(", ")", "$", "${seed}", "${nope}", "${oc.env:NOPE}", "${", "${oc.decode:'['}",
    "???", "=", "==", "a=b", ",", "a,b", ",,", "a,", ":", "::", "*", "#", "# x", "!!", "&a", "%s", "%", "@", "~", "+", "|", "a b", " a",
    "\t", "a\nb", "\r\n", "\u00e9", "\u6f22\u5b57", "\U0001f600", "\u202e", "\u2028", "\x01", "\x1b[31m", "\udcff", "x" * 300,
    "x" * 5_000, "[" * 40, "{" * 40, "[" + "1," * 500 + "1]", "absent.parquet", ".", "/", "..", "/dev/null", "/dev/zero", "conf",
    "conf/config.yaml", "README.md", "traces/diurnal.parquet", "traces", "int(a)", "int(3)", "str(1)", "float(x)", "range(3)",
    "range(-1)", "range(0)", "range(1,2,0)", "choice()", "choice(1,1)", "interval(0,1)", "glob(*)", "glob(zz)", "{1:a,b:2}", "sort(3,2)",
    "shuffle(1,2)", "tag(x,1)", "extend_list(1)", "nope(1)", "range(10000000000)",
)
"""Values, many of them not of the key's type or not of Hydra's grammar."""

READABLE = (
    "null", "true", "false", "-1", "0", "1", "0.5", "1e3", "1e308", "-1e-300", "1e-300", "nan", "inf", "-inf", "99999999999999999999",
    "few", "[]", "[1,2]", "[nan]", "[null]", "[-1]", "[[1]]", "{}", "{a:1}", "{1:a,b:2}", "''", "absent.parquet", "/dev/zero", "conf",
    "conf/config.yaml",
)
"""Values that Hydra can read, so that the harness has to judge them."""

FLAGS = (
    "-m", "--multirun", "--dry-run", "-", "--", "--nope", "-x", "--config-name=zz", "--config-name", "--config-dir=zz",
    "--config-path=zz", "-cn", "-cd", "-p", "--package=zz", "--run", "-r", "--cfg=zz", "--cfg", "--info=zz", "--resolve",
    "--experimental-rerun=zz", "", "=", "==1", ".", ".=1", "a.=1", ".a=1", "+=1", "~", "~=", "++", "+", "~~seed", "+++seed=1", "seed",
    "~seed", "~policy", "~cluster", "~workload", "~preemption", "~speed.online", "~policy.name", "~cluster.groups", "~workload.generator",
    "~seed=0", "~nope", "/seed=1", "policy@x=fifo", "+policy@x=fifo", "policy@=fifo", "cluster@a.b=flat", "@=1", "policy=[fifo]",
    "policy=[fifo,sjf]", "policy=null", "policy={a:1}", "+experiment=nope", "experiment=hit_rate", "+experiment=hit_rate,day",
    "hydra/launcher=nope", "hydra/sweeper=nope", "hydra.nope=1", "hydra.mode=nope", "hydra.mode=MULTIRUN", "hydra.run.dir=/dev/null/x",
    "hydra.sweeper.max_batch_size=0", "hydra.job.chdir=maybe", "hydra.verbose=zz", "hydra/job_logging=nope", "hydra.output_subdir=a/b",
    "hydra.job.num=x", "hydra=1", "hydra=null", "~hydra", "+hydra=x",
)
"""Words that are no ``key=value`` of the harness."""


def known_keys() -> list[tuple[str, str]]:
    """Every key that the configuration files have, with its default in the grammar of overrides."""

    def walk(prefix: str, section: object) -> Iterator[tuple[str, str]]:
        if isinstance(section, dict) and section:
            yield prefix, "{}"
            for key, value in section.items():
                yield from walk(f"{prefix}.{key}" if prefix else str(key), value)
        else:
            yield prefix, yaml.safe_dump(section, default_flow_style=True, width=10_000).removesuffix("...\n").strip()

    found = {}
    for file in sorted((REPOSITORY / "conf").glob("*/*.yaml")) + [REPOSITORY / "conf/config.yaml"]:
        section = {key: value for key, value in yaml.safe_load(file.read_text()).items() if key not in ("defaults", "hydra", "out")}
        if file.parent.name != "experiment":
            found.update(walk("" if file.name == "config.yaml" else file.parent.name, section))
    for group in ("cluster", "workload", "policy"):
        names = sorted(file.stem for file in (REPOSITORY / "conf" / group).glob("*.yaml"))
        found[group] = names[0]
    return [(key, value) for key, value in found.items() if key]


KEYS = known_keys()


def mutated_word(rng: np.random.Generator) -> str:
    """One override with one to two changes, or a word that is none."""
    if rng.random() < 0.15:
        return str(rng.choice(FLAGS))
    key, value = KEYS[rng.integers(len(KEYS))]
    sign = "="
    for _ in range(rng.integers(1, 3)):
        change = rng.integers(9)
        at = int(rng.integers(len(key) + 1))
        if change <= 3:
            value = ODD[rng.integers(len(ODD))]
        elif change == 4:
            key = key[:at] + key[at + 1 :]
        elif change == 5:
            key = key[:at] + ("x", ".", "_", " ", "\u00e9", "'", "/", "@", "-", "1", ":", "$")[rng.integers(12)] + key[at:]
        elif change == 6:
            key = ("+", "++", "~", "+~", "hydra.", "cluster.", "policy.")[rng.integers(7)] + key
        elif change == 7:
            sign = ("", "==", " = ", ":", "+=", "=,")[rng.integers(6)]
        else:
            value = f"{value},{ODD[rng.integers(len(ODD))]}"
    return key + sign + value


def command_line(rng: np.random.Generator) -> list[str]:
    words = [mutated_word(rng) for _ in range(rng.integers(1, 4))]
    if rng.random() < 0.2:
        words.append(words[0])
    if rng.random() < 0.3:
        words.insert(0, "-m")
    return words


def real_command_line(rng: np.random.Generator) -> list[str]:
    """A tiny cell with one known key set to an odd value."""
    given = {word.partition("=")[0] for word in TINY}
    unused = ("policy.alpha", "policy.rank_by", "policy.retry_s", "policy.scan")
    groups = yaml.safe_load((REPOSITORY / "conf/workload/paper_mix.yaml").read_text())
    keys = [key for key, _ in KEYS if key not in given and key not in unused
            and (not key.startswith("workload.") or key.partition(".")[2] in groups)]
    return [*TINY, f"{rng.choice(keys)}={rng.choice(READABLE if rng.random() < 0.9 else ODD)}"]


class Hang(BaseException):
    """Nothing in the harness catches it."""


@contextmanager
def limited(case: object) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang(case)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judge(case: object, status: int, told: str, sweep: bool = False) -> int:
    assert status in ((0, 1, 2) if sweep else (0, 2)), (case, status, told)
    assert "Traceback" not in told, (case, told)
    if status == 2:
        assert told.count("\n") == 1 and told.startswith("harness: ") and len(told) > 15, (case, told)
    elif not sweep:
        assert told == "", (case, told)
    return status


@pytest.fixture(autouse=True)
def at_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


@pytest.mark.parametrize("base", [0, 1, *(pytest.param(base, marks=pytest.mark.slow) for base in range(2, 9))])
def test_mutated_command_lines_are_understood_or_refused(base: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """150 for each base; what is understood only tells which cells it would replay."""
    ends = ["dry_run=true", f"out={tmp_path / 'out'}"]
    seen = set()
    for case in range(150):
        words = command_line(np.random.default_rng([base, case]))
        with limited((base, case, words)):
            status = main([*ends, *words, *ends])
        seen.add(judge((base, case, words), status, capsys.readouterr().err))
    assert seen == {0, 2}
    assert not list((tmp_path / "out").glob("*/manifest.json"))


@pytest.mark.parametrize("base", [0, *(pytest.param(base, marks=pytest.mark.slow) for base in range(1, 6))])
def test_tiny_cells_with_odd_values_are_replayed_or_refused(base: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The first cell loads or compiles the engine, so that it does not count against the limit of the others."""
    assert main([*TINY, "progress=false", f"out={tmp_path / 'first'}"]) == 0
    capsys.readouterr()
    out = tmp_path / "out"
    seen = set()
    for case in range(40):
        words = [*real_command_line(np.random.default_rng([100 + base, case])), "progress=false", f"out={out}"]
        before = set(out.iterdir()) if out.is_dir() else set()
        with limited((base, case, words)):
            status = main(words)
        seen.add(judge((base, case, words), status, capsys.readouterr().err))
        made = set(out.iterdir()) - before if out.is_dir() else set()
        assert all((folder / "manifest.json").is_file() for folder in made) and not (made and status), (words, made)
    assert seen == {0, 2}


def test_a_sweep_with_odd_values_keeps_its_good_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ("-m", *TINY, "preemption.grace_s=0,-1,1e300", "progress=false", f"out={tmp_path}")
    assert judge(words, main([*words]), capsys.readouterr().err, sweep=True) == 1


@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case < 12 else pytest.mark.slow) for case in range(50)])
def test_real_processes_are_understood_or_refused(case: int, tmp_path: Path):
    words = command_line(np.random.default_rng([200, case]))
    ends = ["dry_run=true", f"out={tmp_path / 'out'}"]
    done = subprocess.run([sys.executable, "-m", "harness", *ends, *words, *ends], capture_output=True, timeout=4 * LIMIT_S)
    judge((case, words), done.returncode, done.stderr.decode())
