"""The tables of a record, and every table as Markdown, as LaTeX and on a terminal; the tidy CSV.

Pandas is imported by what makes the CSV, and rich by what prints, not by this module, so that commands stay light.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from csv import DictWriter
from dataclasses import replace
from functools import partial
from io import StringIO
from operator import attrgetter
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import quoted
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.judging import agreement
from reproduce.experiment.metrics import listed
from reproduce.experiment.predictions import PREFIX
from reproduce.output.columns import Column, Getter, Table, chosen, quantity_column, rows
from reproduce.output.verdicts import VERDICT_LOOKS, told
from results.records import PointResult, Record
from results.records.units import with_unit
from results.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

LEAST_WIDTH = 24  # letters of a terminal that a last column of text needs
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MARKDOWN = str.maketrans({"|": "\\|", "\n": " "})
LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)


def origin_of(record: Record) -> str:
    """'simulated on selene', 'derived': how a heading says where our numbers come from.

    What was measured by others, and is only read here, is 'measured'.
    """
    origins = {metric.origin for point in record.points for metric in point.metrics.values()}
    if record.fidelity == "derived" and origins == {"measured"}:
        return "measured"
    return FIDELITIES[record.fidelity].wording(" and ".join(clusters_of(record)))


def clusters_of(record: Record) -> list[str]:
    """Names of the clusters that a record's points are simulated on: the record's own, or a point's, in their order."""
    own = record.provenance.cluster
    return list(dict.fromkeys(str(point.parameters.get("cluster", own.name)) for point in record.points)) if own else []


def result_table(artifact: Artifact, record: Record) -> Table:
    """One row per point, with the columns that the artifact shows. Raises `UsageError` if there is none of a name."""
    columns = list(result_columns(artifact, record.fidelity, record.points))
    return Table(chosen(columns, artifact.shown), record.points)


def result_columns(artifact: Artifact, fidelity: str, points: Sequence[PointResult]) -> Iterator[Column]:
    """What a point is, its main quantity (ours, predicted, paper, ratios, verdict), the other quantities."""
    if any(point.series for point in points):
        yield Column("series", attrgetter("series"))
    known = [name for name in artifact.columns if any(name in point.parameters for point in points)]
    yield from (Column(artifact.columns[name], parameter(name)) for name in known)
    if not known:
        yield Column("point", attrgetter("label"))
    main, ours = artifact.main, metric(artifact.main.name)
    yield quantity_column(main, ours, _origins(main.name, points) or fidelity, "ours")
    predicted, paper = metric(PREFIX + main.name), metric(main.name, "paper")
    if _origins(PREFIX + main.name, points):
        yield quantity_column(main, predicted, "simulated", "predicted")
        yield Column("ratio", _ratio(ours, predicted), "predicted", ".3f")
    if published := paper_sources(main.name, points):
        yield quantity_column(main, paper, published, "paper")
        yield Column("ratio", _ratio(ours, paper), form=".3f")
    yield Column("verdict" if published else "status", lambda point: outcome(artifact, point, bool(published)))
    for quantity in artifact.quantities[1:]:
        prediction = replace(quantity, name=PREFIX + quantity.name, label=f"{quantity.label} (predicted)")
        for of in (quantity, prediction):
            if origins := _origins(of.name, points):  # in a simulated record, some may be derived
                yield quantity_column(of, metric(of.name), origins)
        if sources := paper_sources(quantity.name, points):
            yield quantity_column(quantity, metric(quantity.name, "paper"), f"paper, {sources}")


def metric(name: str, part: str = "metrics") -> Getter:
    """What gives a metric of a point in its base unit, or the paper's value of it (part 'paper'); None without one."""
    return lambda point: found.value if (found := getattr(point, part).get(name)) else None


def parameter(name: str) -> Getter:
    """What gives a parameter of a point, None if it has none of the name."""
    return lambda point: point.parameters.get(name)


def _ratio(ours: Getter, others: Getter) -> Getter:
    """What gives, of a point that worked, our value over the other one; None without both."""
    return lambda point: (
        ours(point) / others(point) if point.status == "ok" and ours(point) is not None and others(point) else None
    )


def _origins(metric: str, points: Iterable[PointResult]) -> str:
    """Where the values of a metric come from; '' if there are none."""
    return ", ".join(dict.fromkeys(p.metrics[metric].origin for p in points if metric in p.metrics))


def paper_sources(metric: str, points: Iterable[PointResult]) -> str:
    """How the paper's values of a metric were read (from a table, its text, a plot or a script); '' if it has none."""
    return ", ".join(sorted({point.paper[metric].how for point in points if metric in point.paper}))


def outcome(artifact: Artifact, point: PointResult, paper: bool) -> str:
    """What a row says became of its point; one whose parameter `expected` names its status is as it should be."""
    result = agreement(artifact, point) if paper else point.status
    expected = point.parameters.get("expected")
    if expected is None:
        return result
    return f"{point.status}, as in the paper" if point.status == expected else f"{result}; {expected} in the paper"


def markdown_table(table: Table) -> str:
    """The table in Markdown."""
    from tabulate import tabulate

    headings = [column.heading for column in table.columns]
    headings, *rows = ([text.translate(MARKDOWN) for text in row] for row in (headings, *table.cells))
    sides = ["right" if right else "left" for right in table.numeric]
    return tabulate(rows, headings, tablefmt="pipe", disable_numparse=True, colalign=sides)


def markdown(artifact: Artifact, record: Record) -> str:
    """The whole record for people: what it is, the table, why points failed, claims with sentences, notes."""
    main = artifact.main.name
    lines = [f"# {artifact.label}: {artifact.title}", "", artifact.description, ""]
    lines += [
        f"Artifact `{artifact.id}`, scale {record.scale}, ours: {origin_of(record)}. State: {record.state}.",
        "",
    ]
    predicted = any(PREFIX + main in point.metrics for point in record.points)
    others = {"what was predicted": predicted, "the paper": paper_sources(main, record.points)}
    if compared := [name for name, there in others.items() if there]:
        lines += [f"Compared with {' and '.join(compared)}: {artifact.main.heading}.", ""]
    lines += [markdown_table(result_table(artifact, record))]
    if reasons := failures(record):
        lines += ["", "## Points without a result", "", *(f"- {reason}" for reason in reasons)]
    if record.claims:
        lines += ["", "## Claims", ""]
    for claim in record.claims:
        lines += [f"- **{claim.id}: {told(claim)}.** {quoted(claim.sentence, claim.place)} ({claim.place})"]
        lines += [f"  - {claim.explanation}"]
        if claim.tolerance:
            lines += [f"  - tolerance: {claim.tolerance}; tested at fidelity: {claim.fidelity} or better"]
    if record.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in record.notes)]
    return "\n".join(lines) + "\n"


def html(record: Record, artifact: Artifact | None) -> str:
    """A record for a notebook: what it is, its table, why points failed, and its notes."""
    from html import escape

    from tabulate import tabulate

    table = result_table(artifact, record) if artifact else _of_points(record)
    title = f"{artifact.label}: {artifact.title}" if artifact else record.title
    sides = ["right" if right else "left" for right in table.numeric]
    headings = [column.heading for column in table.columns]
    lines = [f"<p><b>{escape(title)}</b> [{escape(origin_of(record))}]</p>"]
    lines += [str(tabulate(table.cells, headings, tablefmt="html", disable_numparse=True, colalign=sides))]
    lines += [f"<p>{escape(line)}</p>" for line in (*failures(record), *record.notes)]
    return "\n".join(lines)


def _of_points(record: Record) -> Table:
    """One row per point of a record without an artifact: what is listed of a configuration, of a benchmark all."""
    units = {name: found.unit for point in record.points for name, found in point.metrics.items()}
    listed_here = [quantity for quantity in listed() if quantity.name in units]
    columns = [Column("point", attrgetter("label")), Column("status", attrgetter("status"))]
    columns += [quantity_column(quantity, metric(quantity.name)) for quantity in listed_here]
    if not listed_here:
        columns += [Column(name, metric(name), form=partial(with_unit, unit=unit)) for name, unit in units.items()]
    return Table(columns, record.points)


def latex(artifact: Artifact, record: Record) -> str:
    r"""The table of results as a LaTeX `tabular` (package booktabs), to be \input; what it is stands in comments."""
    table = result_table(artifact, record)
    about = (
        f"{artifact.label}: {artifact.title}",
        f"artifact {artifact.id}, scale {record.scale}, ours: {origin_of(record)}, {record.state}; needs booktabs",
        *record.notes,
    )
    # Braces keep a bracket of a heading from being the line break's argument.
    head = [r"\\{}".join(line.translate(LATEX) for line in column.lines) for column in table.columns]
    head = [rf"\shortstack{{{text}}}" if r"\\{}" in text else text for text in head]
    rows = ([cell.translate(LATEX) for cell in row] for row in table.cells)
    printed = [rf"{' & '.join(cells)} \\" for cells in (head, *rows)]
    sides = "".join("r" if right else "l" for right in table.numeric)
    lines = [
        *(f"% {' '.join(text.split())}" for text in about),
        *(rf"\begin{{tabular}}{{@{{}}{sides}@{{}}}}", r"\toprule", printed[0], r"\midrule"),
        *(*printed[1:], r"\bottomrule", r"\end{tabular}"),
    ]
    return "\n".join(lines) + "\n"


def failures(record: Record) -> list[str]:
    """A line for each point that has no result."""
    return [
        f"{f'{p.series}, ' if p.series else ''}{p.label}: {p.status}: {p.reason}"
        for p in record.points
        if p.status != "ok"
    ]


def csv_text(*records: Record, others: Iterable[Mapping[str, Any]] = ()) -> str:
    """The records' rows as CSV: all numbers in base units and full precision; missing values are empty.

    Below them stand the rows of `others`. A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    columns, found = rows(*records)
    text = StringIO()
    writer = DictWriter(text, columns, lineterminator="\n")
    writer.writerow({name: _no_formula(name) for name in columns})
    writer.writerows({name: _no_formula(cell) for name, cell in row.items()} for row in [*found, *others])
    return text.getvalue()


def _no_formula(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    return f"'{visible(cell)}" if cell.startswith(FORMULA) else visible(cell)


def print_table(console: "Console", table: Table, title: str | None = None, file: str = "") -> int:
    """`table` on a terminal: a last column of text wraps; of others, those at the right that do not fit are left out.

    What these are is told on one line, with the file that has them if there is one.
    Verdicts are coloured, and the row of 'all' is bold, where the terminal can show it. Returns how many columns fit.
    """
    from rich import box
    from rich.table import Table as Shown
    from rich.text import Text

    shown = Shown(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    styles = {look.shown: look.style for look in VERDICT_LOOKS.values()}
    fitting, right = _fitting_columns(table, console.width), table.numeric
    for i, column in enumerate(table.columns[:fitting]):
        text, wraps = Text("\n".join(column.lines)), i == len(right) - 1 and not right[i]
        shown.add_column(text, justify="right" if right[i] else "left", vertical="top", no_wrap=not wraps)
    for row in table.cells:
        style = "bold" if row[0] == "all" else ""
        shown.add_row(*(Text(cell, style=styles.get(cell, style)) for cell in row[:fitting]))
    console.print(shown)
    if left := [" ".join(column.what.split()) for column in table.columns[fitting:]]:
        where = f"in {file}" if file else "on a wider terminal"
        line = f"{len(left)} more column{'s' * (len(left) > 1)} {where}: {', '.join(left)}"
        console.print(Text(shorten(line, console.width, placeholder=" ..."), style="dim"))
    return fitting


def _fitting_columns(table: Table, width: int) -> int:
    used, right = 0, table.numeric
    for i, column in enumerate(table.columns):
        widest = max(map(len, (*column.lines, "", *(row[i] for row in table.cells))))
        used += 2 + (widest if right[i] or i < len(right) - 1 else min(widest, LEAST_WIDTH))
        if used > width:
            return max(i, 1)
    return len(right)
