"""The accuracy assessment for people: tables of scores and of moved parameters, and where the parameters come from."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pandas import DataFrame

from reproduce.analysis.scoring.accuracy import Assessment, Scored
from reproduce.analysis.scoring.accuracy_record import notes
from reproduce.analysis.scoring.scores import cells
from reproduce.analysis.scoring.sensitivity import means
from reproduce.output.tables import NONE, text_table
from reproduce.output.terminal import WIDTH, percent
from results.records.units import with_unit

NAIVE = {"constant": "constant", "line_in_h": "line in h", "constant_with_bubble": "bubble"}


def parts(assessment: Assessment) -> Iterator[tuple[str, DataFrame, Sequence[str]]]:
    """Headings, tables, and lines below them."""
    name = assessment.cluster.name
    heading = f"Accuracy of the simulator on {name}: error against the paper's values"
    yield heading, score_table(assessment), notes(assessment)
    yield "\nThe mean over all when a number is moved or a mechanism dropped", move_table(assessment), ()


def score_table(assessment: Assessment) -> DataFrame:
    """One row per artifact, then the parts and the whole."""
    headings = ("", "n", "shipped", "left out", "naive", "by", "bias", "rank", "worst", "at")
    rows = [_row(name, scored, assessment.places.get(name, name)) for name, scored in assessment.scores.items()]
    return DataFrame(rows, columns=headings).fillna(NONE)


def _row(name: str, scored: Scored, place: str) -> dict[str, str]:
    score = scored.score
    if score is None:
        return {"": name, "n": "0", "at": f"no result for {scored.missing}"}
    row = {"": name, **cells(vars(score)), "shipped": percent(score.mean), "left out": percent(scored.left_out)}
    if scored.baselines:
        error, naive = min((error, naive) for naive, error in scored.baselines.items())
        ours = score.mean if scored.left_out is None else scored.left_out
        row |= {"naive": percent(error), "by": NAIVE[naive] + (" wins" if error < ours else "")}
    row["at"] = row["at"].removeprefix(f"{place}: ") + (f"; {scored.missing} without result" if scored.missing else "")
    return row


def move_table(assessment: Assessment) -> DataFrame:
    """One row per parameter or mechanism that was moved, the most effective first."""
    rows = []
    for name, errors in means(assessment.moves).map(percent, na_action="ignore").fillna(NONE).iterrows():
        parameter = assessment.parameters.get(name)
        numbers = (parameter.low, parameter.value, parameter.high) if parameter else ()
        values = [with_unit(number, parameter.unit) for number in numbers if parameter] or [NONE] * 3
        rows.append((name, *values, *errors, _most_moved(assessment, name)))
    headings = ("", "low", "value", "high", "at low", "at high", "dropped", "most in")
    return text_table(headings, rows)


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
