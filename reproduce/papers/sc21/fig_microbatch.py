"""Figure 16: throughput against the microbatch size, 91 billion parameters, (t, p) = (8, 8)."""

from math import fsum

from ptdp_core.formulas import batch_time
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import out_of_memory
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, argmax
from reproduce.experiment.told import told
from reproduce.experiment.values import Value, Values
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


def _estimates(results: Results) -> Values:
    """Throughput by eq. (1) relative to b = 1, with t_f + t_b of the simulated point (mean over pipeline ranks)."""
    phases = [results.by_batch(name, "b") for name in COMPUTE]
    p = results.points[0].parameters["p"]
    relative: dict[int, Values] = {}
    for B, line in phases[0].items():
        time = {b: batch_time(B, b, p, fsum(phase[B][b] for phase in phases) * b / B, 0.0) for b in line}
        relative[B] = Values({b: time[1] / time[b] for b in time}, letter="b")
    return Values(relative, letter="B")


@ARTIFACT.judge
def analytical_model(results: Results) -> Judgement:
    estimates, ours = _estimates(results), Value(q.THROUGHPUT.name, "b", own=1)(results)
    apart = {f"B={B}, b={b}": estimates[B][b] / ours[B][b] - 1 for B in ours for b in ours[B]}
    worst = argmax(apart, abs)
    same = all(argmax(estimates[B]) == argmax(ours[B]) for B in ours)
    text = (
        f"throughput relative to b=1: eq. (1) {estimates:.2f}; simulated {ours:.2f}; largest difference "
        f"{apart[worst]:+.1%} ({worst}), best b {'the same' if same else 'not the same'}"
    )
    numbers = results.numbers(largest_difference=apart[worst])
    return holds_if(same and abs(apart[worst]) <= 0.10, text, numbers)
