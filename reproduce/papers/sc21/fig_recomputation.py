"""Figure 17: sequences per second with and without activation recomputation, 145 billion parameters, 128 GPUs."""

from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, argmax
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot

WITH, WITHOUT = "With recomputation", "Without recomputation"


ARTIFACT = told(__name__, draw=line_plot)


def _line(results: Results, series: str, metric: q.Quantity = q.SEQUENCES) -> dict[int, float]:
    """A metric by batch size where it fits. Raises `MissingResultError` for points that failed, or if none fits."""
    rates = {
        point.parameters["B"]: results.value(point.key, metric) for point in results.of(series) if point.status != "oom"
    }
    if not rates:
        raise MissingResultError(f"no point of {series!r} fits in memory")
    return rates


@ARTIFACT.judge
def needed_for_larger_batches(results: Results) -> Judgement:
    """However, activation recomputation is needed to support larger batch sizes."""
    out = {
        series: [point.parameters["B"] for point in results.of(series) if point.status == "oom"]
        for series in (WITH, WITHOUT)
    }
    # What fits is said by the memory of a simulation, and by the rate of a run.
    fits = max(_line(results, WITHOUT, q.PEAK_MEMORY if results.fidelity == "simulated" else q.SEQUENCES))
    needed = bool(out[WITHOUT]) and not out[WITH] and min(out[WITHOUT]) > fits
    text = (
        f"without recomputation B={fits} is the largest that fits"
        + (f", B={', '.join(map(str, out[WITHOUT]))} do not" if out[WITHOUT] else ", which is all of them")
        + (f"; with it B={', '.join(map(str, out[WITH]))} do not fit" if out[WITH] else "; with it all fit")
    )
    return holds_if(needed, text, results.numbers("count", largest_batch_without=fits))


@ARTIFACT.judge
def up_to_two_times_higher(results: Results) -> Judgement:
    r"""Throughput at large batch sizes with activation recomputation is up to $2\times$ higher than the best throughput
    achieved without activation recomputation (for a smaller batch size) due to a smaller pipeline bubble.
    """
    full, none = _line(results, WITH), _line(results, WITHOUT)
    best, best_none = argmax(full), argmax(none)
    ratio = full[best] / none[best_none]
    text = (
        f"{full[best]:.1f} sequences/s at B={best} with recomputation, {none[best_none]:.1f} at B={best_none} without: "
        f"{ratio:.2f} times"
    )
    holds = 1.95 <= ratio <= 2.05 and best > best_none
    return holds_if(holds, text, results.numbers(ratio=ratio))
