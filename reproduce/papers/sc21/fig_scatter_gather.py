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


@ARTIFACT.judge
def up_to_11_percent(results: Results) -> Judgement:
    r"""We see an improvement of up to 11\% in throughput for communication-intensive schedules (large batch size with
    interleaving) by reducing the amount of communication over cross-node links.
    """
    gains = _gains(results)
    best = max(gain for B, gain in gains.items() if max(gains) / B < 2)
    text = f"gain with the interleaved schedule, by batch size: {listed(gains, '{:+.1%}')}"
    return holds_if(0.105 <= best <= 0.115, text, results.numbers(largest_gain=best))


@ARTIFACT.judge
def communication_intensive(results: Results) -> Judgement:
    interleaved, default = _gains(results), _gains(results, over=DEFAULT_OFF, of=DEFAULT_ON)
    text = (
        f"gain by batch size, interleaved: {listed(interleaved, '{:+.1%}')}; default schedule: "
        f"{listed(default, '{:+.1%}')}"
    )
    return holds_if(all(interleaved[B] > default[B] for B in default), text)


@ARTIFACT.judge
def larger_batches_gain_more(results: Results) -> Judgement:
    gains = _gains(results)
    text = f"gain with the interleaved schedule, by batch size: {listed(gains, '{:+.1%}')}"
    return holds_if(gains[max(gains)] > gains[min(gains)], text, results.numbers(gain_b=gains))


@ARTIFACT.judge
def makes_interleaving_feasible(results: Results) -> Judgement:
    """This optimization helps better leverage the multiple IB cards on the DGX A100 servers, and makes more
    communication-intensive schedules such as the interleaved one feasible.
    """
    gains, without = (_gains(results, over=DEFAULT_ON, of=series) for series in (ON, OFF))
    text = f"interleaved over default, with it: {listed(gains, '{:+.1%}')}; without: {listed(without, '{:+.1%}')}"
    holds = min(gains.values()) > 0 > without[max(without)]
    return holds_if(holds, text, results.numbers(gain_b=gains, without_at_largest=without[max(without)]))


@ARTIFACT.judge
def bytes_reduced_by_t(results: Results) -> Judgement:
    r"""Quantitatively, with the scatter-gather communication optimization, the total amount of communication that needs
    to be performed between every pair of consecutive stages is reduced to $\frac{bsh}{t}$, where $t$ is the
    tensor-model-parallel size, $s$ is the sequence length, and $h$ is the hidden size ($t=8$ in our experiments).
    """
    t = results.points[0].parameters["t"]
    off, on = (results.series(series, "pipeline_traffic", "B") for series in (OFF, ON))
    factors = {B: off[B] / on[B] for B in off}
    text = f"pipeline bytes of a GPU without over with, by batch size: {listed(factors, '{:.3f}')}; t = {t}"
    numbers = results.numbers(bytes_without_over_with=max(factors.values()))
    return holds_if(set(factors.values()) == {t}, text, numbers)


def _default_ahead(results: Results, default: str) -> Judgement:
    """Whether the default schedule is faster than the interleaved one without scatter/gather, at the largest B."""
    gains = _gains(results, over=OFF, of=default)
    text = f"default over interleaved, by batch size: {listed(gains, '{:+.1%}')}"
    gain = gains[max(gains)]
    return holds_if(gain > 0, text, results.numbers(gain_at_largest_batch=gain))


@ARTIFACT.judge
def default_ahead_both_without(results: Results) -> Judgement:
    """Without the scatter/gather optimization, the default schedule performs better than the interleaved schedule at
    larger batch sizes (not shown).
    """
    return _default_ahead(results, DEFAULT_OFF)


@ARTIFACT.judge
def default_ahead_of_unoptimized(results: Results) -> Judgement:
    judgement = _default_ahead(results, DEFAULT_ON)
    interleaved = results.paper_series(OFF, q.THROUGHPUT, "B")
    default = {row["B"]: row[q.THROUGHPUT.name] * q.TERA for row in published.rows("fig_interleaved") if row["v"] == 1}
    papers = {B: default[B] / value - 1 for B, value in interleaved.items() if B in default}
    text = f"{judgement.explanation}; in the paper's own Figures 12 and 18: {listed(papers, '{:+.1%}')}"
    numbers = {**judgement.numbers, **numbers_of("paper", paper_gain_at_largest=papers[max(papers)])}
    return replace(judgement, explanation=text, numbers=numbers)
