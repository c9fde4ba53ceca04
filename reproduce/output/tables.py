"""Tables: DataFrames of text with one row per point, as Markdown, LaTeX and HTML, and on a terminal; the tidy CSV.

A heading says what, in which unit and from where: 'ours (teraFLOP/s) [simulated]'. Where there is room for it, these
parts stand on a line each. Pandas is imported by what makes a table, not by this module, so that commands stay light.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import agreement
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.predictions import PREFIX
from reproduce.experiment.quantities import Quantity
from reproduce.output.verdicts import VERDICT_LOOKS
from results.records import PointResult, Record

if TYPE_CHECKING:
    from pandas import DataFrame, Series
    from rich.console import Console

NONE = "-"
HEADING = re.compile(r"(.*?)(?: \(([^()]*)\))?(?: \[([^]]*)\])?")  # what, unit, origin
NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?( ?%| [a-zA-Zµ/]+)?")
LEAST_WIDTH = 24  # letters of a terminal that a last column of text needs


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> "DataFrame":
    """A table of these cells."""
    from pandas import DataFrame

    return DataFrame([list(row) for row in rows], columns=list(headings), dtype=object)


def numeric(table: "DataFrame") -> list[bool]:
    """Which columns hold numbers, and are aligned right: every cell that says something begins with one."""
    cells = [[cell for cell in column if cell not in ("", NONE)] for _, column in table.items()]
    return [bool(column) and all(map(NUMBER.fullmatch, column)) for column in cells]


def parts(heading: str) -> tuple[str, str, str]:
    """What, unit and origin of a column, by its heading; empty where it does not say."""
    match = HEADING.fullmatch(heading)
    assert match is not None  # the expression takes any text
    what, unit, origin = match.groups("")
    return what, unit, origin


def origin_of(record: Record) -> str:
    """'simulated on selene', 'derived': how a heading says where our numbers come from."""
    cluster = record.provenance.cluster
    return FIDELITIES[record.fidelity].wording(cluster.name if cluster else None)


def result_table(artifact: Artifact, record: Record) -> "DataFrame":
    """One row per point: what it is, the main quantity (ours, predicted, paper, ratios, verdict), the others."""
    from reproduce.output.frame import by_point, column, frame, of_metric

    tidy = frame(record)
    points = by_point(tidy)
    table = points[["series"]] if any(points.series) else points[[]]
    known = {column(name): heading for name, heading in artifact.columns.items() if column(name) in points}
    known = known or {"label": "point"}
    table = table.join(points[list(known)].rename(columns=known)).astype(object).fillna(NONE).astype(str)
    for heading, values in _main_columns(artifact.main, tidy, record):
        table[heading] = values
    paper = bool(paper_sources(artifact.main.name, [record]))
    table["verdict" if paper else "status"] = [outcome(artifact, point, paper) for point in record.points]
    for quantity in artifact.quantities[1:]:
        rows = of_metric(tidy, quantity.name)
        prediction = replace(quantity, name=PREFIX + quantity.name, label=f"{quantity.label} (predicted)")
        for of, values in ((quantity, rows), (prediction, of_metric(tidy, prediction.name))):
            if origins := ", ".join(values.origin.dropna().unique()):  # in a simulated record, some may be derived
                table[f"{of.heading} [{origins}]"] = shown_values(of, values.value)
        if sources := paper_sources(quantity.name, [record]):
            table[f"{quantity.heading} [paper, {sources}]"] = shown_values(quantity, rows.paper)
    return table.reset_index(drop=True)


def _main_columns(main: Quantity, tidy: "DataFrame", record: Record) -> "Iterator[tuple[str, Series[str]]]":
    """Ours; what was predicted and what the paper says, where there is such a thing, each with our ratio to it."""
    from reproduce.output.frame import by_point, of_metric

    unit = f" ({main.shown})" if main.shown else ""
    rows, predicted = of_metric(tidy, main.name), of_metric(tidy, PREFIX + main.name)
    yield f"ours{unit} [{record.fidelity}]", shown_values(main, rows.value)
    others = []
    if predicted.origin.notna().any():
        others.append((f"predicted{unit} [simulated]", "ratio (predicted)", predicted.value))
    if sources := paper_sources(main.name, [record]):
        others.append((f"paper{unit} [{sources}]", "ratio", rows.paper))
    valid = rows.value.where(by_point(tidy).status == "ok")
    for heading, ratio, values in others:
        yield heading, shown_values(main, values)
        ratios = valid / values.replace(0, float("nan"))
        yield ratio, ratios.map("{:.3f}".format, "ignore").fillna(NONE)


def shown_values(quantity: Quantity, values: "Series[float]") -> "Series[str]":
    """Values of a quantity (base unit) as text in its shown unit."""
    digits = quantity.digits
    rounded = (values / quantity.factor).round(digits) + 0.0  # no '-0.0'
    return rounded.map(f"{{:.{digits}f}}".format, "ignore").fillna(NONE)


def paper_sources(metric: str, records: Iterable[Record]) -> str:
    """How the paper's values of a metric were read (from a table, its text, a plot or a script); '' if it has none."""
    return ", ".join(sorted({p.paper[metric].how for record in records for p in record.points if metric in p.paper}))


def outcome(artifact: Artifact, point: PointResult, paper: bool) -> str:
    """What a row says became of its point; one whose parameter `expected` names its status is as it should be."""
    result = agreement(artifact, point) if paper else point.status
    expected = point.parameters.get("expected")
    if expected is None:
        return result
    return f"{point.status}, as in the paper" if point.status == expected else f"{result}; {expected} in the paper"


def claim_table(record: Record) -> "DataFrame":
    """One row per claim: its id, the verdict, and why."""
    rows = [(claim.id, claim.verdict, claim.explanation) for claim in record.claims]
    return text_table(("claim", "verdict", "why"), rows)


def markdown_table(table: "DataFrame") -> str:
    """The table in Markdown."""
    escaped = table.map(_one_line).rename(columns=_one_line)
    sides = ["right" if right else "left" for right in numeric(table)]
    return str(escaped.to_markdown(index=False, disable_numparse=True, colalign=sides))


def _one_line(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(artifact: Artifact, record: Record) -> str:
    """The whole record for people: what it is, the table, why points failed, claims with sentences, notes."""
    main = artifact.main.name
    lines = [f"# {artifact.label}: {artifact.title}", "", artifact.description, ""]
    lines += [
        f"Artifact `{artifact.id}`, scale {record.scale}, ours: {origin_of(record)}. State: {record.state}.",
        "",
    ]
    predicted = any(PREFIX + main in point.metrics for point in record.points)
    others = {"what was predicted": predicted, "the paper": paper_sources(main, [record])}
    if compared := [name for name, there in others.items() if there]:
        lines += [f"Compared with {' and '.join(compared)}: {artifact.main.heading}.", ""]
    lines += [markdown_table(result_table(artifact, record))]
    if reasons := failures(record):
        lines += ["", "## Points without a result", "", *(f"- {reason}" for reason in reasons)]
    if record.claims:
        lines += ["", "## Claims", ""]
    for claim in record.claims:
        lines += [f'- **{claim.id}: {claim.verdict}.** "{claim.sentence}" ({claim.place})']
        lines += [f"  - {claim.explanation}"]
        if claim.tolerance:
            lines += [f"  - tolerance: {claim.tolerance}; tested at fidelity: {claim.fidelity} or better"]
    if record.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in record.notes)]
    return "\n".join(lines) + "\n"


def latex(artifact: Artifact, record: Record) -> str:
    r"""The table of results as a LaTeX `tabular` (package booktabs), to be \input; what it is stands in comments."""
    table = result_table(artifact, record)
    about = (
        f"{artifact.label}: {artifact.title}",
        f"artifact {artifact.id}, scale {record.scale}, ours: {origin_of(record)}, {record.state}; needs booktabs",
        *record.notes,
    )
    comments = [f"% {' '.join(text.split())}\n" for text in about]
    style = table.style.hide(axis="index").format(escape="latex")
    style = style.format_index(_stacked, axis="columns", escape="latex")
    columns = "".join("r" if right else "l" for right in numeric(table))
    return "".join(comments) + str(style.to_latex(hrules=True, column_format=f"@{{}}{columns}@{{}}"))


def _stacked(heading: str) -> str:
    """A heading over several lines. Braces keep a bracket from being the line break's argument."""
    lines = _lines(heading)
    return r"\shortstack{" + r"\\{}".join(lines) + "}" if len(lines) > 1 else heading


def _lines(heading: str) -> list[str]:
    """What, unit and origin, each on its line."""
    return [form.format(part) for form, part in zip(("{}", "({})", "[{}]"), parts(heading), strict=True) if part]


def failures(record: Record) -> list[str]:
    """A line for each point that has no result."""
    return [
        f"{f'{p.series}, ' if p.series else ''}{p.label}: {p.status}: {p.reason}"
        for p in record.points
        if p.status != "ok"
    ]


def csv_text(record: Record) -> str:
    """The record's tidy frame as CSV: all numbers in base units and full precision; missing values are empty."""
    from reproduce.output.frame import frame

    return str(frame(record).to_csv(index=False, lineterminator="\n"))


def print_table(console: "Console", table: "DataFrame", title: str | None = None, file: str = "") -> None:
    """`table` on a terminal: a last column of text wraps; of others, those at the right that do not fit are left out.

    Their headings are told, with the file that has them if there is one.
    Verdicts are coloured, and the row of 'all' is bold, where the terminal can show it.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    styles = {verdict: look.style for verdict, look in VERDICT_LOOKS.items()}
    fitting = _fitting_columns(table, console.width)
    right = numeric(table)
    for i, heading in enumerate(table.columns[:fitting]):
        text, wraps = Text("\n".join(_lines(heading))), i == len(right) - 1 and not right[i]
        shown.add_column(text, justify="right" if right[i] else "left", vertical="top", no_wrap=not wraps)
    for row in table.itertuples(index=False, name=None):
        style = "bold" if row[0] == "all" else ""
        shown.add_row(*(Text(cell, style=styles.get(cell, style)) for cell in row[:fitting]))
    console.print(shown)
    if left := list(table.columns[fitting:]):
        where = f"in {file}, for" if file else "for"
        console.print(Text(f"{where} a wider terminal: {', '.join(left)}", style="dim"))


def _fitting_columns(table: "DataFrame", width: int) -> int:
    used, right = 0, numeric(table)
    for i, (heading, column) in enumerate(table.items()):
        widest = max(map(len, (*_lines(str(heading)), "", *column)))
        used += 2 + (widest if right[i] or i < len(right) - 1 else min(widest, LEAST_WIDTH))
        if used > width:
            return max(i, 1)
    return len(right)
