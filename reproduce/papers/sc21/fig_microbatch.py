"""Figure 16: throughput against the microbatch size, 91 billion parameters, (t, p) = (8, 8)."""

from math import fsum

from ptdp_core.formulas import batch_time
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import out_of_memory
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, argmax, listed_by_batch
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared import efficiency

COMPUTE = ("forward_time", "recompute_time", "backward_time", "embedding_and_logits_time")


def notes(results: Results) -> tuple[str, ...]:
    """Which microbatch size is the fastest, where no sentence of the paper says which should be."""
    failures = out_of_memory(results)
    if results.scale == "paper":
        return failures
    try:
        lines = results.by_batch(q.THROUGHPUT, "b")
    except MissingResultError:
        return failures
    sizes = ", ".join(map(str, next(iter(lines.values()))))
    best = ", ".join(f"B={B}: {argmax(line)}" for B, line in lines.items())
    return (*failures, f"fastest b, of {sizes}: {best}")


ARTIFACT = told(__name__, further=efficiency.kernel_metrics, draw=line_plot, notes=notes)


def _estimates(results: Results) -> dict[int, dict[int, float]]:
    """Throughput by eq. (1) relative to b = 1, with t_f + t_b of the simulated point (mean over pipeline ranks)."""
    phases = [results.by_batch(name, "b") for name in COMPUTE]
    p = results.points[0].parameters["p"]
    relative: dict[int, dict[int, float]] = {}
    for B, line in phases[0].items():
        time = {b: batch_time(B, b, p, fsum(phase[B][b] for phase in phases) * b / B, 0.0) for b in line}
        relative[B] = {b: time[1] / time[b] for b in time}
    return relative


@ARTIFACT.judge
def analytical_model(results: Results) -> Judgement:
    estimates, lines = _estimates(results), results.by_batch(q.THROUGHPUT, "b")
    ours = {B: {b: value / line[1] for b, value in line.items()} for B, line in lines.items()}
    apart = {f"B={B}, b={b}": estimates[B][b] / ours[B][b] - 1 for B in ours for b in ours[B]}
    worst = argmax(apart, abs)
    same = all(argmax(estimates[B]) == argmax(ours[B]) for B in ours)
    text = (
        f"throughput relative to b=1: eq. (1) {listed_by_batch(estimates, 'b', '{:.2f}')}; simulated "
        f"{listed_by_batch(ours, 'b', '{:.2f}')}; largest "
        f"difference {apart[worst]:+.1%} ({worst}), best b {'the same' if same else 'not the same'}"
    )
    numbers = results.numbers(largest_difference=apart[worst])
    return holds_if(same and abs(apart[worst]) <= 0.10, text, numbers)
