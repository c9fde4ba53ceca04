"""What the tables contain: ours, paper, ratio, verdict; units and origin in the headings."""

import io
import re
from dataclasses import replace

import pandas
import pytest
from rich.console import Console

from reproduce.annex.report import report_tables as html
from reproduce.experiment import catalog
from reproduce.output import tables
from reproduce.output.columns import Column, Table, chosen, key, keyed
from reproduce.output.frame import frame
from reproduce.output.verdicts import told
from reproduce.papers.sc21.fig_interleaved import ARTIFACT
from reproduce.running import runner
from results.records import Metric, PaperValue, read_record
from results.records.errors import UsageError


def headings(table):
    return [column.heading for column in table.columns]


def cells_of(table, heading):
    return [row[headings(table).index(heading)] for row in table.cells]


def test_headings_have_units_and_origin(figure_12):
    table = tables.result_table(ARTIFACT, figure_12.record)
    assert headings(table)[:7] == [
        "series", "B", "v", "ours (teraFLOP/s) [simulated]", "paper (teraFLOP/s) [plot]", "ratio", "verdict",
    ]  # fmt: skip
    assert "peak memory (GB) [simulated]" in headings(table)
    assert len(table.cells) == 10
    assert table.numeric[:7] == [False, True, True, True, True, True, False]


def test_rows_are_the_records_numbers(figure_12):
    first = figure_12.record.points[0]
    ours, paper = first.metrics["throughput_per_gpu"].value, first.paper["throughput_per_gpu"].value
    table = tables.result_table(ARTIFACT, figure_12.record)
    row = table.cells[0]
    assert row[:6] == ["Non-interleaved", "12", "1", f"{ours / 1e12:.1f}", "82.0", f"{ours / paper:.3f}"]
    assert row[6] in ("equal", "equal as rounded", "within 10%")
    assert [values[0] for values in table.values[:6]] == ["Non-interleaved", 12, 1, ours / 1e12, 82.0, ours / paper]


def test_points_without_a_result(with_point):
    record = with_point(status="oom", reason="needs 99 GB", metrics={})
    row = tables.result_table(ARTIFACT, record).cells[0]
    assert row[3:7] == ["-", "82.0", "-", "oom"]
    assert "- Non-interleaved, B=12: oom: needs 99 GB" in tables.markdown(ARTIFACT, record)


def test_markdown_says_everything(figure_12):
    text = (figure_12.plan.folder / "table.md").read_text()
    assert text == tables.markdown(ARTIFACT, figure_12.record)
    assert text.startswith("# Figure 12: ")
    assert "ours: simulated on selene" in text
    for claim in figure_12.record.claims:
        assert f"**{claim.id}: {told(claim)}.**" in text
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
    assert narrow.splitlines()[-1].startswith("6 more columns in table.md: iteration, idle, ")
    assert "peak memory" in wide
    assert "in table.md" not in wide


def test_a_last_column_of_text_wraps(figure_12):
    whys = [{"claim": claim.id, "why": claim.explanation} for claim in figure_12.record.claims]
    text = shown(Table(keyed("claim", "why"), whys), 80)
    assert all(" ".join(why["why"].split()[-2:]) in " ".join(text.split()) for why in whys)
    assert "…" not in text


def test_pipes_in_cells_are_escaped():
    text = tables.markdown_table(Table(keyed("a|b", "n"), [{"a|b": "c|d\ne", "n": 1.5}]))
    assert [line.replace(" ", "") for line in text.splitlines()] == [r"|a\|b|n|", "|:-------|----:|", r"|c\|de|1.5|"]


def test_a_heading_says_what_unit_and_origin():
    column = Column("bubble (predicted)", key("bubble"), "%", ".1f", 0.01, "simulated")
    assert column.lines == ["bubble (predicted)", "(%)", "[simulated]"]
    assert column.heading == "bubble (predicted) (%) [simulated]"
    assert Column("a [b] (c)", key("a")).lines == ["a [b] (c)"]  # nothing is read out of a text
    assert Column("", key("")).lines == []


def test_what_is_a_column_of_numbers():
    rows = [{"a": 1.5, "b": 0.03, "c": "14 GB/s", "d": "1", "e": True}, {"d": "2", "e": False, "f": ""}]
    table = Table([*keyed("a"), *keyed("b", form="+.1%"), *keyed("c", "d", "e", "f")], rows)
    assert table.numeric == [True, True, False, False, False, False]  # digits in a text are no number
    assert table.cells == [["1.5", "+3.0%", "14 GB/s", "1", "True", "-"], ["-", "-", "-", "2", "False", ""]]


def test_numbers_of_a_column_are_whole_or_none_is():
    table = Table(keyed("t_b", "m"), [{"t_b": 2, "m": 4}, {"t_b": 1.5, "m": 8}])
    assert table.cells == [["2.0", "4"], ["1.5", "8"]]


def test_columns_are_chosen_by_what_they_are_or_how_their_headings_begin():
    columns = [*keyed("B", "v"), *keyed("bubble", unit="%"), *keyed("bubble", unit="s"), *keyed("bubble: messages")]

    def found(*names):
        return [column.heading for column in chosen(columns, names)]

    assert found("v", "B", "v") == ["v", "B"]
    assert found("bubble") == ["bubble (%)", "bubble (s)"]
    assert found("bubble (s)", "bubble: m") == ["bubble (s)", "bubble: messages"]
    assert found() == [column.heading for column in columns]
    for wrong in ("bubbel", "", "b "):
        with pytest.raises(UsageError, match=r"there are B, v, bubble, bubble: messages$"):
            found("B", wrong)


def test_a_paper_s_table_has_the_columns_chosen(figure_12):
    artifact = replace(ARTIFACT, shown=("series", "B", "paper", "ours"))
    lines = tables.latex(artifact, figure_12.record).splitlines()
    assert r"\begin{tabular}{@{}lrrr@{}}" in lines
    begin = lines.index(r"\toprule")
    ours, paper = (rf"\shortstack{{{what}\\{{}}(teraFLOP/s)\\{{}}[{origin}]}}" for what, origin in
                   (("ours", "simulated"), ("paper", "plot")))  # fmt: skip
    assert lines[begin + 1] == rf"series & B & {paper} & {ours} \\"
    assert lines[begin + 3] == r"Non-interleaved & 12 & 82.0 & 82.0 \\"
    header = next(line for line in tables.markdown(artifact, figure_12.record).splitlines() if line.startswith("|"))
    assert re.split(r"\s*\|\s*", header)[1:-1] == [
        "series", "B", "paper (teraFLOP/s) [plot]", "ours (teraFLOP/s) [simulated]",
    ]  # fmt: skip


def test_the_papers_other_numbers_have_columns(figure_12):
    first, *rest = figure_12.record.points
    first = replace(first, paper={**first.paper, "peak_memory": PaperValue(40e9, "B", "text")})
    table = tables.result_table(ARTIFACT, replace(figure_12.record, points=(first, *rest)))
    assert headings(table)[-2:] == ["peak memory (GB) [simulated]", "peak memory (GB) [paper, text]"]
    assert cells_of(table, "peak memory (GB) [paper, text]")[:2] == ["40.0", "-"]
    assert "peak memory (GB) [paper, text]" not in headings(tables.result_table(ARTIFACT, figure_12.record))


def test_a_heading_says_where_a_metric_comes_from(figure_12):
    points = tuple(
        replace(p, metrics={**p.metrics, "peak_memory": Metric(1e9, "B", "derived")}) for p in figure_12.record.points
    )
    table = tables.result_table(ARTIFACT, replace(figure_12.record, points=points))
    assert "peak memory (GB) [derived]" in headings(table)


def test_an_expected_outcome_is_as_in_the_paper(with_point):
    first = with_point().points[0]
    expected = {**first.parameters, "expected": "oom"}
    record = with_point(status="oom", reason="needs 99 GB", metrics={}, parameters=expected)
    assert cells_of(tables.result_table(ARTIFACT, record), "verdict")[0] == "oom, as in the paper"
    table = tables.result_table(ARTIFACT, with_point(parameters=expected))
    assert cells_of(table, "verdict")[0].endswith("; oom in the paper")


def test_no_negative_zero(with_point):
    first = with_point().points[0]
    record = with_point(metrics={**first.metrics, "bubble_fraction": Metric(-1e-9, "1", "simulated")})
    table = tables.result_table(ARTIFACT, record)
    assert cells_of(table, "bubble over ideal time (%) [simulated]")[0] == "0.0"


def test_latex(figure_12):
    text = (figure_12.plan.folder / "table.tex").read_text()
    assert text == tables.latex(ARTIFACT, figure_12.record)
    assert text.startswith("% Figure 12: ")
    assert "ours: simulated on selene" in text.splitlines()[1]
    table = tables.result_table(ARTIFACT, figure_12.record)
    columns = "".join("r" if numeric else "l" for numeric in table.numeric)
    assert f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}" in text
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert [line.count(" & ") + 1 for line in body] == [len(table.columns)] * 10
    assert all(line.endswith(r" \\") for line in body)
    assert r"\shortstack{ours\\{}(teraFLOP/s)\\{}[simulated]}" in text
    assert r"within 10\%" in text or "equal as rounded" in text


def test_latex_escapes(with_point):
    text = tables.latex(ARTIFACT, with_point(series=r"a_b & 5% #1 {x} ~ ^ $ \n"))
    escaped = r"a\_b \& 5\% \#1 \{x\} \textasciitilde{} \textasciicircum{} \$ \textbackslash{}n"
    assert rf"{escaped} & 12" in text
    artifact = replace(ARTIFACT, columns={"B": "B_[1] (100%)"})
    assert r" & B\_[1] (100\%) & " in tables.latex(artifact, with_point())


def test_a_text_that_looks_like_a_heading_stays_one(with_point):
    """What stands in a record's text is no unit, origin or number of a column."""
    record = with_point(series="12 (s) [measured]", parameters={"B": "7", "v": 1})
    table = tables.result_table(ARTIFACT, record)
    assert table.cells[0][:3] == ["12 (s) [measured]", "7", "1"]
    assert table.numeric[:3] == [False, False, True]
    (text, kind, sorted_by), *_ = html.cells(table)[0]
    assert (text, kind, sorted_by) == ("12 (s) [measured]", "short", 0)


def test_what_the_page_sorts_by(with_point):
    """Numbers by their values, not as they are rounded; nothing last; texts in the order of the paper."""
    record = with_point(status="oom", reason="needs 99 GB", metrics={})
    table = tables.result_table(ARTIFACT, record)
    rows, series, ours = html.cells(table), 0, headings(table).index("ours (teraFLOP/s) [simulated]")
    assert [row[series][2] for row in rows] == [0] * 5 + [5] * 5
    assert rows[0][ours] == ("-", "number ours", "")
    value = record.points[1].metrics["throughput_per_gpu"].value / 1e12
    assert rows[1][ours] == (f"{value:.1f}", "number ours", value)


def test_the_csv_does_not_depend_on_what_was_reused(tmp_path):
    plan = runner.plan(catalog.load("fig_gpipe_timeline"), tmp_path)
    fresh = runner.run(plan, ["reproduce"]).record
    assert tables.csv_text(fresh) == tables.csv_text(read_record(plan.folder / "record.json"))
