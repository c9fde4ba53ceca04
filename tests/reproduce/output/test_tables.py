"""What the tables contain: ours, paper, ratio, verdict; units and origin in the headings."""

import io
from dataclasses import replace

import pandas
import pytest
from rich.console import Console

from reproduce.artifacts.fig_interleaved import ARTIFACT
from reproduce.experiment import catalog
from reproduce.output import tables
from reproduce.output.frame import frame
from reproduce.running import runner
from results.records import Metric, PaperValue, read_record


def test_headings_have_units_and_origin(figure_12):
    table = tables.result_table(ARTIFACT, figure_12.record)
    assert list(table.columns[:7]) == [
        "series", "B", "v", "ours (teraFLOP/s) [simulated]", "paper (teraFLOP/s) [plot]", "ratio", "verdict",
    ]  # fmt: skip
    assert "peak memory (GB) [simulated]" in table.columns
    assert len(table) == 10
    assert tables.numeric(table)[:7] == [False, True, True, True, True, True, False]


def test_rows_are_the_records_numbers(figure_12):
    first = figure_12.record.points[0]
    ours, paper = first.metrics["throughput_per_gpu"].value, first.paper["throughput_per_gpu"].value
    row = list(tables.result_table(ARTIFACT, figure_12.record).iloc[0])
    assert row[:6] == ["Non-interleaved", "12", "1", f"{ours / 1e12:.1f}", "82.0", f"{ours / paper:.3f}"]
    assert row[6] in ("equal", "equal as rounded", "within 10%")


def test_points_without_a_result(with_point):
    record = with_point(status="oom", reason="needs 99 GB", metrics={})
    row = tables.result_table(ARTIFACT, record).iloc[0]
    assert list(row[3:7]) == ["-", "82.0", "-", "oom"]
    assert "- Non-interleaved, B=12: oom: needs 99 GB" in tables.markdown(ARTIFACT, record)


def test_markdown_says_everything(figure_12):
    text = (figure_12.plan.folder / "table.md").read_text()
    assert text == tables.markdown(ARTIFACT, figure_12.record)
    assert text.startswith("# Figure 12: ")
    assert "ours: simulated on selene" in text
    for claim in figure_12.record.claims:
        assert f"**{claim.id}: {claim.verdict}.**" in text
        assert claim.sentence in text
        assert claim.explanation in text
    assert figure_12.record.notes[0] in text


def test_the_csv_is_the_tidy_frame(figure_12):
    path = figure_12.plan.folder / "table.csv"
    read, expected = pandas.read_csv(path, dtype={"value": str}), frame(figure_12.record)
    assert list(read.columns) == list(expected.columns)
    assert [*map(float, read.value)] == expected.value.tolist()  # full precision, which not every pandas reads
    assert read.B.tolist() == expected.B.tolist()
    assert read.reason.isna().all()


def test_csv_leaves_missing_values_empty(with_point):
    lines = tables.csv_text(with_point(status="oom", reason="needs, 1", metrics={})).splitlines()
    assert lines[1].endswith(',throughput_per_gpu,,FLOP/s,,,,82000000000000.0,oom,"needs, 1"')


def shown(table, width):
    console = Console(file=io.StringIO(), width=width)
    tables.print_table(console, table, "Title", "table.md")
    return console.file.getvalue()


def test_a_narrow_terminal_loses_columns_not_digits(figure_12):
    table = tables.result_table(ARTIFACT, figure_12.record)
    narrow, wide = shown(table, 80), shown(table, 200)
    assert all(len(line.rstrip()) <= 80 for line in narrow.splitlines())
    assert "equal as rounded" in narrow or "within 10%" in narrow
    assert "…" not in narrow + wide
    assert "in table.md, for a wider terminal: iteration (s) [simulated]" in narrow
    assert "peak memory" in wide
    assert "for a wider terminal" not in wide


def test_explanations_wrap(figure_12):
    text = shown(tables.claim_table(figure_12.record), 70)
    assert "paper inconsistent" in text
    assert "…" not in text


def test_pipes_in_cells_are_escaped():
    text = tables.markdown_table(tables.text_table(["a|b", "n"], [["c|d\ne", "1.5"]]))
    assert [line.replace(" ", "") for line in text.splitlines()] == [r"|a\|b|n|", "|:-------|----:|", r"|c\|de|1.5|"]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("ours (teraFLOP/s) [simulated]", ("ours", "teraFLOP/s", "simulated")),
        ("bubble (predicted) (%) [simulated]", ("bubble (predicted)", "%", "simulated")),
        ("ratio (predicted)", ("ratio", "predicted", "")),
        ("paper (GB)", ("paper", "GB", "")),
        ("", ("", "", "")),
    ],
)
def test_parts_of_a_heading(heading, expected):
    assert tables.parts(heading) == expected


def test_what_is_a_column_of_numbers():
    columns = {
        "a": ["1.5", "-"],
        "b": ["+3.0%", "-1e-03"],
        "c": ["14 GB/s", "0.5 ms"],
        "d": ["1f1b", "1f1b"],
        "e": ["-", ""],
    }
    table = tables.text_table(list(columns), list(zip(*columns.values(), strict=True)))
    assert tables.numeric(table) == [True, True, True, False, False]


def test_the_papers_other_numbers_have_columns(figure_12):
    first, *rest = figure_12.record.points
    first = replace(first, paper={**first.paper, "peak_memory": PaperValue(40e9, "B", "text")})
    table = tables.result_table(ARTIFACT, replace(figure_12.record, points=(first, *rest)))
    assert list(table.columns[-2:]) == ["peak memory (GB) [simulated]", "peak memory (GB) [paper, text]"]
    assert list(table["peak memory (GB) [paper, text]"][:2]) == ["40.0", "-"]
    assert "peak memory (GB) [paper, text]" not in tables.result_table(ARTIFACT, figure_12.record)


def test_a_heading_says_where_a_metric_comes_from(figure_12):
    points = tuple(
        replace(p, metrics={**p.metrics, "peak_memory": Metric(1e9, "B", "derived")}) for p in figure_12.record.points
    )
    assert "peak memory (GB) [derived]" in tables.result_table(ARTIFACT, replace(figure_12.record, points=points))


def test_an_expected_outcome_is_as_in_the_paper(with_point):
    first = with_point().points[0]
    expected = {**first.parameters, "expected": "oom"}
    record = with_point(status="oom", reason="needs 99 GB", metrics={}, parameters=expected)
    assert tables.result_table(ARTIFACT, record).verdict[0] == "oom, as in the paper"
    assert tables.result_table(ARTIFACT, with_point(parameters=expected)).verdict[0].endswith("; oom in the paper")


def test_no_negative_zero(with_point):
    first = with_point().points[0]
    record = with_point(metrics={**first.metrics, "bubble_fraction": Metric(-1e-9, "1", "simulated")})
    table = tables.result_table(ARTIFACT, record)
    assert table["bubble (%) [simulated]"][0] == "0.0"


def test_latex(figure_12):
    text = (figure_12.plan.folder / "table.tex").read_text()
    assert text == tables.latex(ARTIFACT, figure_12.record)
    assert text.startswith("% Figure 12: ")
    assert "ours: simulated on selene" in text.splitlines()[1]
    table = tables.result_table(ARTIFACT, figure_12.record)
    columns = "".join("r" if numeric else "l" for numeric in tables.numeric(table))
    assert f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}" in text
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert [line.count(" & ") + 1 for line in body] == [len(table.columns)] * 10
    assert all(line.endswith(r" \\") for line in body)
    assert r"\shortstack{ours\\{}(teraFLOP/s)\\{}[simulated]}" in text
    assert r"within 10\%" in text or "equal as rounded" in text


def test_latex_escapes(with_point):
    text = tables.latex(ARTIFACT, with_point(series=r"a_b & 5% #1 {x} ~ ^ $"))
    assert r"a\_b \& 5\% \#1 \{x\} \textasciitilde \space \textasciicircum \space \$ & 12" in text


def test_the_csv_does_not_depend_on_what_was_reused(tmp_path):
    plan = runner.plan(catalog.load("fig_gpipe_timeline"), tmp_path)
    fresh = runner.run(plan, ["reproduce"]).record
    assert tables.csv_text(fresh) == tables.csv_text(read_record(plan.folder / "record.json"))
