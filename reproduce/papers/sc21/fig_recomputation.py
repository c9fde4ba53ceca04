"""Figure 17: sequences per second with and without activation recomputation, 145 billion parameters, 128 GPUs."""

from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results
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
