"""Tables: DataFrames of text with one row per point, as Markdown, LaTeX and HTML, and on a terminal; the tidy CSV.

A heading says what, in which unit and from where: 'ours (teraFLOP/s) [simulated]'. Where there is room for it, these
parts stand on a line each. Pandas is imported by what makes a table, not by this module, so that commands stay light.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.records import PointResult, Record
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import agreement
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.predictions import PREFIX
from reproduce.experiment.quantities import Quantity
from reproduce.output.verdicts import VERDICT_LOOKS

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
    from reproduce.output.frame import column, frame

    tidy, main = frame(record), artifact.main
    points = tidy.drop_duplicates("key").set_index("key")
    paper = _has_paper(record, main.name)
    table = points[["series"]] if any(points.series) else points[[]]
    known = {column(name): heading for name, heading in artifact.columns.items() if column(name) in points}
    known = known or {"label": "point"}
    table = table.join(points[list(known)].rename(columns=known)).astype(object).fillna(NONE).astype(str)
    named = tidy.dropna(subset="metric")
    numbers = {
        kind: named.pivot(index="key", columns="metric", values=kind).reindex(points.index)
        for kind in ("value", "paper")
    }
    for heading, values in _main_columns(main, numbers, record):
        table[heading] = values
    table["verdict" if paper else "status"] = [outcome(artifact, point, paper) for point in record.points]
    for quantity in artifact.quantities[1:]:
        for of in (quantity, predicted_quantity(quantity)):
            if _has(record, of.name):
                table[f"{of.heading} [{_origins(of, record)}]"] = _shown(of, numbers["value"][of.name])
        if _has_paper(record, quantity.name):
            table[f"{quantity.heading} [paper, {_hows(quantity, record)}]"] = _shown(
                quantity, numbers["paper"][quantity.name]
            )
    return table.reset_index(drop=True)


def _main_columns(
    main: Quantity, numbers: "Mapping[str, DataFrame]", record: Record
) -> "Iterator[tuple[str, Series[str]]]":
    """Ours; what was predicted and what the paper says, where there is such a thing, each with our ratio to it."""
    from pandas import Series

    unit = f" ({main.shown})" if main.shown else ""
    ours = numbers["value"].get(main.name, Series(index=numbers["value"].index, dtype=float))
    valid = ours.where([point.status == "ok" for point in record.points])
    yield f"ours{unit} [{record.fidelity}]", _shown(main, ours)
    others = {}
    if _has(record, PREFIX + main.name):
        others[f"predicted{unit} [simulated]"] = numbers["value"][PREFIX + main.name]
    if _has_paper(record, main.name):
        others[f"paper{unit} [{_hows(main, record)}]"] = numbers["paper"][main.name]
    for heading, values in others.items():
        ratios = (valid / values.replace(0, float("nan"))).map("{:.3f}".format, "ignore")
        yield heading, _shown(main, values)
        yield "ratio" if heading.startswith("paper") else "ratio (predicted)", ratios.fillna(NONE)


def _shown(quantity: Quantity, values: "Series[float]") -> "Series[str]":
    """Values of a quantity (base unit) as text in its shown unit."""
    digits = quantity.digits
    rounded = (values / quantity.factor).round(digits) + 0.0  # no '-0.0'
    return rounded.map(f"{{:.{digits}f}}".format, "ignore").fillna(NONE)


def predicted_quantity(quantity: Quantity) -> Quantity:
    """How the prediction of a metric is shown."""
    return replace(quantity, name=PREFIX + quantity.name, label=f"{quantity.label} (predicted)")


def _has(record: Record, metric: str) -> bool:
    return any(metric in point.metrics for point in record.points)


def _has_paper(record: Record, metric: str) -> bool:
    return any(metric in point.paper for point in record.points)


def _hows(quantity: Quantity, record: Record) -> str:
    """How the paper's values of a quantity were read: from a table, its text, a plot or a script."""
    return ", ".join(sorted({p.paper[quantity.name].how for p in record.points if quantity.name in p.paper}))


def _origins(quantity: Quantity, record: Record) -> str:
    """Where our values of a quantity come from: in a simulated record, some may be derived."""
    origins = dict.fromkeys(p.metrics[quantity.name].origin for p in record.points if quantity.name in p.metrics)
    return ", ".join(origins)


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
    others = {"what was predicted": _has(record, PREFIX + main), "the paper": _has_paper(record, main)}
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
