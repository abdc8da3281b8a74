"""From a results folder to tables, figures and one page that stands alone."""

import os
import re
import runpy
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from harness.errors import BadInput
from harness.report import FIGURES, build_report, draw_all
from harness.report_app import main
from harness.report_tables import Grid, paired_notes, spread
from synthetic_results import make_sweep

REPOSITORY = Path(__file__).resolve().parents[1]


class Page(HTMLParser):
    """What a page refers to, and whether its tags are balanced."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.open += [] if tag in self.VOID else [tag]
        self.ids |= {str(given["id"])} if "id" in given else set()
        self.links += [str(given[name]) for name in ("href", "src") if name in given and tag != "img"]
        self.images += [given] if tag == "img" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with a failed cell and a report made of it."""
    folder = make_sweep(tmp_path_factory.mktemp("sweep") / "my <sweep>", failing=(29,))
    build_report(folder)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_report_is_tables_figures_and_a_page(folder: Path):
    made = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.suffix in (".csv", ".md", ".html", ".png", ".svg")}
    figures = ("hit_rate", "pays", "preemption_efficiency", "search_cost", "latency_cdf", "utilization_day")
    assert made == {"summary.csv", "report.html", *(f"tables/{t}.{s}" for t in ("by_policy", "paired") for s in ("csv", "md")),
                    *(f"figures/{f}.{s}" for f in figures for s in ("png", "svg"))}


def test_a_report_made_again_is_the_same_to_the_byte(folder: Path):
    first = files_of(folder)
    assert {str(p.relative_to(folder)) for p in build_report(folder)} <= set(first)
    assert files_of(folder) == first


def test_the_page_stands_alone(folder: Path):
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)|@import|url\(|<script", text)
    assert len(page.images) == 6
    for image in page.images:
        assert str(image["src"]).startswith("data:image/") and len(str(image["alt"])) > 20
    assert "@media print" in text and 'name="viewport"' in text and text.count("<h1>") == 1


def test_the_page_says_what_failed_and_what_is_not_drawn(folder: Path):
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "Results of my &lt;sweep&gt;" in text
    assert "policy &lt;b&gt;broke&lt;/b&gt; a guarantee" in text
    assert "29 ended well, 1 failed" in text
    for name, reason in (("card_mix", "no card mix varies"), ("policy_load_heatmap", "no load varies")):
        assert re.search(rf"<strong>{name}</strong>: {reason}", text)


def test_tables_have_stored_units_in_csv_and_rounded_ones_in_markdown(folder: Path):
    table = pd.read_csv(folder / "tables/by_policy.csv")
    hits = table[(table["metric"] == "hit_rate_victims") & (table["policy"] == "godel")].iloc[0]
    summary = pq.read_table(folder / "summary.parquet").to_pandas()
    assert hits["mean"] == pytest.approx(summary.loc[summary["policy"] == "godel", "hit_rate_victims"].mean(), rel=1e-12)
    assert hits["ci_low"] <= hits["mean"] <= hits["ci_high"]
    line = next(row for row in (folder / "tables/by_policy.md").read_text().splitlines() if row.startswith("| hit rate, victims (%)"))
    assert line.split("|")[2].strip().startswith(f"{100 * hits['mean']:.1f} [")
    paired = pd.read_csv(folder / "tables/paired.csv")
    assert set(paired["baseline"]) == {"godel"} and set(paired["policy"]) == {"flextopo_imp", "domain_first"}
    verdicts = paired[paired["metric"] == "hit_rate_victims"].set_index("policy")["verdict"]
    assert verdicts.to_dict() == {"flextopo_imp": "pays", "domain_first": "too few seeds"}
    assert pd.read_csv(folder / "summary.csv")["policy"].tolist() == summary["policy"].tolist()


def test_markdown_tables_are_well_formed(folder: Path):
    for path in (folder / "tables").glob("*.md"):
        rows = [line for line in path.read_text().splitlines() if line.startswith("|")]
        assert len(rows) > 3 and len({row.replace("\\|", "").count("|") for row in rows}) == 1
    assert Grid(["a|b", "n"], [["x\ny", "1"]], (0,)).markdown() == "| a\\|b | n |\n| --- | ---: |\n| x y | 1 |"


def test_what_is_left_out_is_said(folder: Path):
    paired = pd.read_csv(folder / "tables/paired.csv")
    notes = paired_notes(paired, "a table is absent", limit=5)
    jct = paired[paired["metric"].str.startswith("jct_s") & paired["jobs_compared"].notna()]
    assert f"{int(jct['jobs_compared'].sum()):,} pairs of jobs; {int(jct['jobs_left_out'].sum()):,} pairs were left out" in notes[0]
    assert any("a table is absent" in note for note in notes)
    assert f"The first 5 of {len(paired):,} rows are shown; all are in tables/paired.csv." in notes


def test_intervals_without_width_are_not_shown():
    from harness.figures.labels import label

    told = label("lost_gpu_s")
    assert spread(told, 3600.0, 1800.0, 7200.0, signed=True) == "+1\n[0.500, 2]"
    assert spread(told, 3600.0, 3600.0, 3600.0) == spread(told, 3600.0, float("nan"), float("nan")) == "1"


def test_old_figures_do_not_outlive_their_data(tmp_path: Path):
    folder = make_sweep(tmp_path / "sweep", ("godel",), range(1))
    (folder / "figures").mkdir()
    for name in ("pays.png", "hit_rate-old_setting.svg", "mine.png", "pays_mine.png"):
        (folder / "figures" / name).touch()
    build_report(folder)
    left = {p.name for p in (folder / "figures").iterdir()}
    assert {"mine.png", "pays_mine.png", "hit_rate.svg"} <= left and not {"pays.png", "hit_rate-old_setting.svg"} & left


def test_one_policy_and_one_seed_make_a_report(tmp_path: Path):
    folder = make_sweep(tmp_path / "sweep", ("fifo",), range(1))
    made = {p.name for p in build_report(folder)}
    assert "report.html" in made and "latency_cdf.svg" in made and not {"paired.csv", "hit_rate.png"} & made


def test_a_sweep_in_which_every_cell_failed_makes_a_report(tmp_path: Path):
    folder = make_sweep(tmp_path / "sweep", ("godel", "fifo"), range(1), failing=(0, 1))
    build_report(folder)
    text = (folder / "report.html").read_text()
    assert "0 ended well, 2 failed" in text and text.count("no cell ended well") == len(FIGURES)


def test_absent_tables_are_a_reason_not_an_error(tmp_path: Path):
    folder = make_sweep(tmp_path / "sweep", ("godel", "domain_first"), range(2))
    for cell in folder.glob("*/manifest.json"):
        shutil.rmtree(cell.parent)
    build_report(folder)
    text = (folder / "report.html").read_text()
    assert re.search(r"<strong>latency_cdf</strong>: \w+/jobs.parquet is absent", text)
    assert "JCT over jobs finished under both policies is missing" in text


def test_settings_beyond_the_first_few_are_named(tmp_path: Path):
    from harness.figures import hit_rate
    from harness.figures.results import open_results

    loads = [{"workload.batch_load": 0.1 * k} for k in range(1, 7)]
    results = open_results(make_sweep(tmp_path, ("godel",), range(1), loads, jobs=30))
    drawn, skipped = draw_all(results, [hit_rate])
    assert [one.name for one in drawn][0] == "hit_rate-rtx4090_x100-paper_mix-batch_load-0.1" and len(drawn) == 4
    assert skipped == [("hit_rate", "2 of 6 settings; a smaller sweep draws them")]


def test_the_command_lists_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = make_sweep(tmp_path / "sweep", ("godel", "domain_first"), range(2), jobs=30)
    assert main([str(folder), "--baseline", "domain_first"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"wrote {folder / 'report.html'}" and all(line.startswith("wrote ") for line in lines)
    paired = pd.read_csv(folder / "tables/paired.csv")
    assert set(paired["baseline"]) == {"domain_first"} and set(paired["policy"]) == {"godel"}


@pytest.mark.parametrize(("words", "expected"), [
    (["nowhere"], "nowhere: no such folder"), ([], "required: DIR"), (["."], "has no summary.parquet"), (["a", "--bad"], "--bad")])
def test_a_wrong_folder_is_one_line(words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == "" and len(told.err.splitlines()) == 1 and expected in told.err and told.err.startswith("harness-report: ")
    assert os.listdir(tmp_path) == []


def test_an_unknown_baseline_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]):
    before = files_of(folder)
    assert main([str(folder), "--baseline", "nobody"]) == 2
    assert "must be one of godel, flextopo_imp, domain_first" in capsys.readouterr().err
    assert files_of(folder) == before


def test_help_teaches(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    assert "report.html" in capsys.readouterr().out


def test_cells_that_the_summary_does_not_know_yet_are_gathered(tmp_path: Path):
    with pytest.raises(BadInput):
        build_report(tmp_path)
    folder = make_sweep(tmp_path / "sweep", ("godel",), range(2))
    (folder / "summary.parquet").unlink()
    for number, manifest in enumerate(sorted(folder.glob("*/manifest.json"))):
        labels = {"cluster": "c", "workload": "w", "policy": "godel", "pinning": "packed", "seed": number}
        row = {"cell": manifest.parent.name, "labels": labels, "overrides": {}, "config": {}, "sources": "x"}
        manifest.write_text(pd.Series(row).to_json())
    build_report(folder)
    assert pq.read_table(folder / "summary.parquet").num_rows == 2


def test_the_notebook_runs_on_a_results_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("IPython")
    monkeypatch.setenv("HARNESS_RESULTS", str(folder))
    runpy.run_path(str(REPOSITORY / "notebooks/explore_results.py"))
    assert "29 cells ended well, 1 failed" in capsys.readouterr().out
