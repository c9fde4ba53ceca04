"""Figure 18: throughput per GPU with and without the scatter/gather optimization, 175B, 96 GPUs, interleaved.

Two more series, which the figure does not have, run the default schedule: Section 5.3.2 compares it with the
interleaved one without the optimization ("not shown").
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact, out_of_memory
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, listed, numbers_of
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from results.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OFF, ON = "Unoptimized", "Scatter/gather optimization"
DEFAULT_OFF, DEFAULT_ON = "Default schedule, unoptimized", "Default schedule, scatter/gather"


def _gains(results: Results, over: str = OFF, of: str = ON) -> dict[Any, float]:
    return results.gains(of, over, q.THROUGHPUT, "B")


def draw(artifact: Artifact, record: Record) -> "Figure":
    """The figure's two series; the default schedule's are in the table only."""
    shown = tuple(point for point in record.points if point.series in (OFF, ON))
    return line_plot(artifact, replace(record, points=shown))


def notes(results: Results) -> tuple[str, ...]:
    """What is ours beyond the figure, and how the schedules compare without the optimization."""
    sentences = [
        "The default schedule's two series are not in the paper's figure and not drawn; they are for the sentence of "
        'Section 5.3.2 that is "not shown" there.'
    ]
    try:
        gains = _gains(results, over=OFF, of=DEFAULT_OFF)
        sentences.append(f"Without scatter/gather, default over interleaved by batch size: {listed(gains, '{:+.1%}')}.")
    except MissingResultError:
        pass
    return (*sentences, *out_of_memory(results))


ARTIFACT = told(__name__, draw=draw, notes=notes)


def _default_ahead(results: Results, default: str) -> Judgement:
    """Whether the default schedule is faster than the interleaved one without scatter/gather, at the largest B."""
    gains = _gains(results, over=OFF, of=default)
    text = f"default over interleaved, by batch size: {listed(gains, '{:+.1%}')}"
    gain = gains[max(gains)]
    return holds_if(gain > 0, text, results.numbers(gain_at_largest_batch=gain))


@ARTIFACT.judge
def default_ahead_of_unoptimized(results: Results) -> Judgement:
    judgement = _default_ahead(results, DEFAULT_ON)
    interleaved = results.paper_series(OFF, q.THROUGHPUT, "B")
    default = {row["B"]: row[q.THROUGHPUT.name] * q.TERA for row in published.rows("fig_interleaved") if row["v"] == 1}
    papers = {B: default[B] / value - 1 for B, value in interleaved.items() if B in default}
    text = f"{judgement.explanation}; in the paper's own Figures 12 and 18: {listed(papers, '{:+.1%}')}"
    numbers = {**judgement.numbers, **numbers_of("paper", paper_gain_at_largest=papers[max(papers)])}
    return replace(judgement, explanation=text, numbers=numbers)
