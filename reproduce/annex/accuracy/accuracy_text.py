"""The accuracy assessment for people: tables of scores and of moved parameters, and where the parameters come from."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from reproduce.annex.accuracy.accuracy import Assessment, Scored
from reproduce.annex.accuracy.accuracy_record import notes
from reproduce.annex.accuracy.scores import COLUMNS
from reproduce.annex.accuracy.sensitivity import DROPPED, HIGH, LOW, means
from reproduce.output.columns import Table, keyed
from reproduce.output.terminal import WIDTH, percent
from results.records.units import with_unit

NAIVE = {"constant": "constant", "line_in_h": "line in h", "constant_with_bubble": "bubble"}


def parts(assessment: Assessment) -> Iterator[tuple[str, Table, Sequence[str]]]:
    """Headings, tables, and lines below them."""
    name = assessment.cluster.name
    heading = f"Accuracy of the simulator on {name}: error against the paper's values"
    yield heading, score_table(assessment), notes(assessment)
    yield "\nThe mean over all when a number is moved or a mechanism dropped", move_table(assessment), ()


def score_table(assessment: Assessment) -> Table:
    """One row per artifact, then the parts and the whole."""
    rows = [_row(name, scored, assessment.places.get(name, name)) for name, scored in assessment.scores.items()]
    columns = [
        *keyed("", "n"),
        *keyed("shipped", "left out", "naive", form=percent),
        *keyed("by"),
        *(COLUMNS[name] for name in ("bias", "rank", "worst", "at")),
    ]
    return Table(columns, rows)


def _row(name: str, scored: Scored, place: str) -> dict[str, Any]:
    score = scored.score
    if score is None:
        return {"": name, "n": 0, "worst_point": f"no result for {scored.missing}"}
    worst_point = score.worst_point.removeprefix(f"{place}: ")
    worst_point += f"; {scored.missing} without result" if scored.missing else ""
    row = {"": name, **vars(score), "worst_point": worst_point, "shipped": score.mean, "left out": scored.left_out}
    if scored.baselines:
        error, naive = min((error, naive) for naive, error in scored.baselines.items())
        ours = score.mean if scored.left_out is None else scored.left_out
        row |= {"naive": error, "by": NAIVE[naive] + (" wins" if error < ours else "")}
    return row


def move_table(assessment: Assessment) -> Table:
    """One row per parameter or mechanism that was moved, the most effective first."""
    ways, numbers = {LOW: "at low", HIGH: "at high", DROPPED: "dropped"}, ("low", "value", "high")
    rows = []
    for name, errors in means(assessment.moves).rename(columns=ways).iterrows():
        row = {"": name, **errors.dropna(), "most in": _most_moved(assessment, name)}
        if parameter := assessment.parameters.get(name):
            row |= {number: (getattr(parameter, number), parameter.unit) for number in numbers}
        rows.append(row)
    columns = [
        *keyed(""),
        *keyed(*numbers, form=lambda value_and_unit: with_unit(*value_and_unit)),
        *keyed(*ways.values(), form=percent),
        *keyed("most in"),
    ]
    return Table(columns, rows)


def _most_moved(assessment: Assessment, name: str) -> str:
    """The artifact whose mean error one of a parameter's or mechanism's moves changes most."""
    moves: Any = assessment.moves[assessment.moves["name"] == name]
    change, text = max(
        (
            (abs(after - before), f"{assessment.places[id]}: {percent(before)} to {percent(after)}")
            for groups in moves.groups
            for id, (before, after) in groups.items()
        ),
        default=(0.0, ""),
    )
    lost = moves.lost.max()
    return "; ".join([*([text] if change >= 0.0005 else []), *([f"{lost} points lost"] if lost else [])])


def parameter_lines(assessment: Assessment) -> Iterator[str]:
    """Two lines or more for each number of the cluster: value, range, data; source."""
    for parameter in assessment.parameters.values():
        low, value, high = (with_unit(n, parameter.unit) for n in (parameter.low, parameter.value, parameter.high))
        span = "fixed" if parameter.low == parameter.high else f"{low} to {high}"
        yield f"{parameter.name} = {value} ({span}); set with: {parameter.set_with}"
        yield textwrap.fill(parameter.source, WIDTH, initial_indent="    ", subsequent_indent="    ")
