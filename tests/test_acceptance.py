"""What a user relies on, end to end through the command: each test is one promise of the README or the design."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness import traces_app
from harness.app import main
from harness.schema import PREEMPTIONS, names

REPOSITORY = Path(__file__).resolve().parents[1]
COST_OF_SEARCH = ("subsets_tried", "servers_scanned", "search_wall_us")

SHIPPED = {
    "paper_mix": ("workload=paper_mix", "workload.preemptors=100", "workload.guaranteed_share=0.3", "cluster.servers=20"),
    "card mix": ("workload=paper_mix", "workload.preemptors=100", "workload.online_cards=[2,4]", "workload.online_card_weights=[1,1]",
                 "workload.batch_cards=[1,2]", "workload.batch_card_weights=[3,1]", "cluster.servers=20"),
    "diurnal": ("workload=diurnal", "workload.days=1.0", "workload.guaranteed_share=0.3", "cluster=dgx_h100", "cluster.servers=12",
                "workload.load=1.2", "preemption.grace_s=30"),
}


@pytest.fixture(autouse=True)
def at_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


@pytest.fixture(scope="session")
def imported(shared_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("imported")
    files = {"openb": ("alibaba-openb", "alibaba-openb-v2023/openb_pod_list_default.csv"), "philly": ("philly", "philly/philly.csv.gz")}
    for name, (form, file) in files.items():
        assert traces_app.main(["import", form, str(shared_traces / file), "-o", str(folder / f"{name}.parquet")]) == 0
    return {name: folder / f"{name}.parquet" for name in files}


def run(out: Path, *words: str, status: int = 0) -> None:
    assert main([*words, f"out={out}", "progress=false"]) == status


def cells(out: Path) -> Iterator[tuple[dict, Path]]:
    for manifest in sorted(out.glob("*/manifest.json")):
        yield json.loads(manifest.read_text()), manifest.parent


def same_decisions(out: Path) -> int:
    """Asserts that both searches took the same decisions; returns their number."""
    found = {known["labels"]["policy"]: pq.read_table(folder / "preemptions.parquet") for known, folder in cells(out)}
    assert set(found) == {"flextopo_exhaustive", "domain_first"}
    kept = [name for name in names(PREEMPTIONS) if name not in COST_OF_SEARCH]
    assert found["flextopo_exhaustive"].select(kept).equals(found["domain_first"].select(kept))
    return found["domain_first"].num_rows


@pytest.mark.compiled
@pytest.mark.parametrize("workload", SHIPPED)
def test_domain_first_decides_as_exhaustive_search_does(workload: str, tmp_path: Path):
    run(tmp_path, "-m", "policy=flextopo_exhaustive,domain_first", *SHIPPED[workload])
    assert same_decisions(tmp_path) >= 25


@pytest.mark.compiled
def test_domain_first_needs_a_twentieth_of_the_sets_at_most(tmp_path: Path):
    run(tmp_path, "-m", "policy=flextopo_exhaustive,domain_first", "workload.preemptors=100")
    summary = {row["policy"]: row for row in pq.read_table(tmp_path / "summary.parquet").to_pylist()}
    assert summary["domain_first"]["subsets_tried_mean"] <= 0.05 * summary["flextopo_exhaustive"]["subsets_tried_mean"]


@pytest.mark.compiled
@pytest.mark.parametrize(("trace", "words"), [
    ("openb", ("cluster=openb", "cluster.servers=8")),
    ("philly", ("cluster=dgx_a100", "cluster.servers=24", "workload.where={tenant: ee9e8c}")),
])
def test_real_traces_account_for_every_job(trace: str, words: tuple[str, ...], imported: dict[str, Path], tmp_path: Path):
    run(tmp_path, "-m", "policy=flextopo_exhaustive,domain_first", f"workload={trace}", f"workload.path={imported[trace]}", *words)
    assert same_decisions(tmp_path) > 10
    for _, folder in cells(tmp_path):
        jobs = pq.read_table(folder / "jobs.parquet").to_pylist()
        assert {job["status"] for job in jobs} <= {"finished", "rejected"}
        assert all((job["reason"] is None) == (job["status"] == "finished") for job in jobs)
        assert len(jobs) == {"openb": 7236, "philly": 1511}[trace]


@pytest.mark.compiled
def test_hit_rates_of_the_paper(tmp_path: Path):
    """3/7 in closed form; 1,000 decisions leave a standard deviation of 1.6 points, and freshly refilled pairs lean a little upwards."""
    run(tmp_path, "-m", "policy=godel,flextopo_imp,domain_first", "workload.preemptors=1000")
    rates = {row["policy"]: row["hit_rate_victims"] for row in pq.read_table(tmp_path / "summary.parquet").to_pylist()}
    assert rates["flextopo_imp"] == rates["domain_first"] == 1.0
    assert abs(rates["godel"] - 3 / 7) < 4 * 0.016


@pytest.mark.compiled
def test_blind_policies_break_guarantees(tmp_path: Path):
    run(tmp_path, "-m", "policy=godel,kubernetes,random_victim,domain_first", "workload.guaranteed_share=0.5", "workload.preemptors=50")
    ran = {row["policy"]: row["ran_share"] for row in pq.read_table(tmp_path / "summary.parquet").to_pylist()}
    assert ran["domain_first"] == 1.0
    assert max(ran["godel"], ran["kubernetes"], ran["random_victim"]) < 1.0


def test_a_cell_is_not_made_twice(tmp_path: Path):
    words = ("policy=fifo", "workload=trace", "workload.path=traces/diurnal.parquet", "cluster.servers=16")
    run(tmp_path, *words)
    ((_, folder),) = cells(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    run(tmp_path, *words)
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before
    run(tmp_path, *words, "force=true")
    assert (folder / "manifest.json").stat().st_mtime_ns != before[folder / "manifest.json"]


def test_a_failed_cell_is_a_row_and_the_others_still_run(tmp_path: Path):
    run(tmp_path, "-m", "policy=fifo", "workload=trace", "workload.path=traces/diurnal.parquet,absent.parquet", "cluster.servers=16",
        status=1)
    rows = pq.read_table(tmp_path / "summary.parquet").to_pylist()
    assert sorted(row["status"] for row in rows) == ["failed", "ok"]
    assert "absent.parquet" in next(row["error"] for row in rows if row["status"] == "failed")


def test_a_dry_run_only_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(tmp_path, "-m", "policy=fifo,sjf", "workload.preemptors=5", "--dry-run")
    told = capsys.readouterr().out
    assert told.count("to do") == 2
    assert not list(cells(tmp_path))


def test_a_real_flextopo_object_makes_servers(shared_traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = shared_traces / "flextopo" / "node-a-flextopo.yaml"
    run(tmp_path, "cluster=rtx4090_x41", f"cluster.from_flextopo={file}", "workload.preemptors=5")
    told = capsys.readouterr().err
    assert "derived" in told and "used" in told
    ((known, _),) = cells(tmp_path)
    assert known["cluster_notes"]


@pytest.mark.parametrize(("word", "says"), [
    ("policy=nope", "there is no such policy; there are"),
    ("cluster=nope", "there is no such cluster; there are"),
    ("seedd=1", "did you mean seed"),
    ("+seeed=1", "did you mean seed"),
    ("seed=many", "could not be converted to Integer"),
    ("preemption.grace_s=-1", "must be a finite number >= 0"),
    ("workload.preemptors=few", "must be a whole number"),
    ("+policy.zeal=1", "has no such parameter; it has"),
    ("policy.file=absent.py", "there is no such file"),
    ("pinning=loose", "must be one of packed, first_free, spread"),
    ("cluster.servers=0", "must be 1 to"),
])
def test_bad_input_is_one_line_and_status_2(word: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(tmp_path / "out", word, status=2)
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and says in told, told
    assert not list((tmp_path / "out").glob("*/*"))
