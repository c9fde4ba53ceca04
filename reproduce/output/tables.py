"""A record as a table (ours, paper, ratio, verdict): as Markdown, LaTeX and CSV, and on a terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.records import PointResult, Record
from reproduce.experiment.artifact import Artifact, Quantity
from reproduce.experiment.claims import agreement, ratio_to_paper
from reproduce.experiment.predictions import PREFIX, ratio_to_prediction

if TYPE_CHECKING:
    from rich.console import Console

NONE = "-"
Cell = Callable[[PointResult], str]


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; `numeric` columns are aligned right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


def _parameter(name: str, point: PointResult) -> str:
    value = point.parameters.get(name)
    return NONE if value is None else str(value)


def origin_of(record: Record) -> str:
    """'simulated on selene', 'derived': how a heading says where our numbers come from."""
    cluster = record.provenance.cluster
    return f"{record.fidelity} on {cluster.name}" if cluster else record.fidelity


def result_table(artifact: Artifact, record: Record) -> Table:
    """One row per point: what it is, the main quantity (ours, predicted, paper, ratios, verdict), the others."""
    main = artifact.main
    paper = any(main.name in point.paper for point in record.points)
    columns: list[tuple[str, Cell]] = []
    if any(point.series for point in record.points):
        columns.append(("series", lambda point: point.series))
    columns += [
        (heading, partial(_parameter, name)) for name, heading in artifact.columns.items() if _known(name, record)
    ]
    left = len(columns)
    unit = f" ({main.shown})" if main.shown else ""
    columns.append((f"ours{unit} [{record.fidelity}]", partial(ours_text, main)))
    if _predicted(artifact, record):
        columns.append((f"predicted{unit} [simulated]", partial(ours_text, predicted_quantity(main))))
        columns.append(("ratio", lambda point: _ratio(ratio_to_prediction(point, main.name))))
    if paper:
        columns.append((f"paper{unit}", partial(paper_text, main)))
        columns.append(("ratio", lambda point: _ratio(ratio_to_paper(main, point))))
    columns.append(("verdict" if paper else "status", lambda point: outcome(artifact, point, paper)))
    for quantity in artifact.quantities[1:]:
        columns += _further(quantity, record)
    headings = tuple(heading for heading, _ in columns)
    rows = tuple(tuple(cell(point) for _, cell in columns) for point in record.points)
    text = {"series", "verdict", "status"}
    return Table(headings, rows, tuple(i >= left and name not in text for i, name in enumerate(headings)))


def _further(quantity: Quantity, record: Record) -> list[tuple[str, Cell]]:
    """The columns of a further quantity: ours, the predicted and the paper's values, where there are any."""
    found: list[tuple[str, Cell]] = []
    predicted = _has(record, PREFIX + quantity.name)
    if _has(record, quantity.name):
        found.append((f"{quantity.heading} [{_origin(quantity, record)}]", partial(ours_text, quantity)))
    if predicted:
        shown = predicted_quantity(quantity)
        found.append((f"{shown.heading} [{_origin(shown, record)}]", partial(ours_text, shown)))
    if any(quantity.name in point.paper for point in record.points):
        found.append((f"{quantity.heading} [paper]", partial(paper_text, quantity)))
    return found


def predicted_quantity(quantity: Quantity) -> Quantity:
    """How the prediction of a metric is shown."""
    return replace(quantity, name=PREFIX + quantity.name, label=f"{quantity.label} (predicted)")


def _predicted(artifact: Artifact, record: Record) -> bool:
    return _has(record, PREFIX + artifact.main.name)


def _known(parameter: str, record: Record) -> bool:
    return any(parameter in point.parameters for point in record.points)


def _has(record: Record, metric: str) -> bool:
    return any(metric in point.metrics for point in record.points)


def _ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _origin(quantity: Quantity, record: Record) -> str:
    """Where our values of a quantity come from: in a simulated record, some may be derived."""
    origins = dict.fromkeys(p.metrics[quantity.name].origin for p in record.points if quantity.name in p.metrics)
    return ", ".join(origins) or record.fidelity


def outcome(artifact: Artifact, point: PointResult, paper: bool) -> str:
    """What a row says became of its point; one whose parameter `expected` names its status is as it should be."""
    found = agreement(artifact, point) if paper else point.status
    expected = point.parameters.get("expected")
    if expected is None:
        return found
    return f"{point.status}, as in the paper" if point.status == expected else f"{found}; {expected} in the paper"


def paper_text(quantity: Quantity, point: PointResult) -> str:
    """The paper's value of a quantity in its shown unit, or '-'."""
    value = point.paper.get(quantity.name)
    return NONE if value is None else quantity.show(value.value)


def ours_text(quantity: Quantity, point: PointResult) -> str:
    """Our value of a quantity in its shown unit, or '-'."""
    metric = point.metrics.get(quantity.name)
    if metric is None or metric.value is None:
        return NONE
    text = quantity.show(metric.value)
    return text.lstrip("-") if float(text) == 0 else text  # no '-0.0'


def claim_table(record: Record) -> Table:
    """One row per claim: its id, the verdict, and why."""
    rows = tuple((claim.id, claim.verdict, claim.explanation) for claim in record.claims)
    return Table(("claim", "verdict", "why"), rows, (False, False, False))


def markdown_table(table: Table) -> list[str]:
    """The lines of `table` in Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = "|" + "|".join(" ---: " if right else " --- " for right in table.numeric) + "|"
    return [line(table.headings), rule, *(line(row) for row in table.rows)]


def markdown(artifact: Artifact, record: Record) -> str:
    """The whole record for people: what it is, the table, why points failed, claims with sentences, notes."""
    setting = artifact.setting(record.scale)
    lines = [f"# {artifact.label}: {setting.title}", "", setting.description, ""]
    lines += [
        f"Artifact `{artifact.id}`, scale {record.scale}, ours: {origin_of(record)}. State: {record.state}.",
        "",
    ]
    with_what, other = ("what was predicted", "predicted") if _predicted(artifact, record) else ("the paper", "paper")
    lines += [f"Compared with {with_what}: {artifact.main.heading}; ratio is ours/{other}.", ""]
    lines += markdown_table(result_table(artifact, record))
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


_LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex_text(text: str) -> str:
    """`text` with what is special to LaTeX escaped."""
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_heading(heading: str) -> str:
    """A heading over several lines: what, unit, origin. Braces keep a bracket from being the break's argument."""
    lines = heading.replace(" (", "\n(").replace(" [", "\n[").split("\n")
    text = r"\\{}".join(map(latex_text, lines))
    return rf"\shortstack{{{text}}}" if len(lines) > 1 else text


def latex(artifact: Artifact, record: Record) -> str:
    r"""The table of results as a LaTeX `tabular` (package booktabs), to be \input; what it is stands in comments."""
    table = result_table(artifact, record)

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"

    rows = [line([latex_text(cell.replace("\n", " ")) for cell in row]) for row in table.rows]
    about = (
        f"{artifact.label}: {artifact.setting(record.scale).title}",
        f"artifact {artifact.id}, scale {record.scale}, ours: {origin_of(record)}, {record.state}; needs booktabs",
        *record.notes,
    )
    lines = [f"% {' '.join(text.split())}" for text in about]
    lines += [f"\\begin{{tabular}}{{@{{}}{''.join('r' if right else 'l' for right in table.numeric)}@{{}}}}"]
    lines += [
        r"\toprule",
        line([*map(_latex_heading, table.headings)]),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


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


VERDICT_STYLES = {
    "holds": "green",
    "contradicted": "bold red",
    "inconclusive": "yellow",
    "not testable here": "dim",
    "paper inconsistent": "magenta",
}


def print_table(console: "Console", table: Table, title: str | None = None) -> None:
    """`table` on a terminal: columns at the right that do not fit are left out, verdicts are coloured if possible."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    fitting = _fitting_columns(table, console.width)
    for heading, right in list(zip(table.headings, table.numeric, strict=True))[:fitting]:
        # What numbers and their units need stays on one line; only explanations wrap.
        text = Text(heading.replace(" (", "\n(").replace(" [", "\n["))
        shown.add_column(text, justify="right" if right else "left", vertical="top", no_wrap=heading != "why")
    for row in table.rows:
        shown.add_row(*(Text(cell, style=VERDICT_STYLES.get(cell, "")) for cell in row[:fitting]))
    console.print(shown)
    if left := table.headings[fitting:]:
        console.print(Text(f"in table.md, for a wider terminal: {', '.join(left)}", style="dim"))


def _fitting_columns(table: Table, width: int) -> int:
    used = 0
    for i, heading in enumerate(table.headings):
        if heading == "why":  # wraps
            continue
        lines = heading.replace(" (", "\n(").replace(" [", "\n[").split("\n")
        used += 2 + max(len(cell) for cell in (*lines, *(row[i] for row in table.rows)))
        if used > width:
            return max(i, 1)
    return len(table.headings)
