"""Figure 16: throughput against the microbatch size, 91 billion parameters, (t, p) = (8, 8)."""

from math import fsum

from ptdp_core.formulas import batch_time
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import out_of_memory
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, argmax, listed_by_batch, rises
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared import efficiency
from reproduce.papers.shared.paper_models import size_claim

BEST = 2
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


@ARTIFACT.judge
def best_microbatch_2(results: Results) -> Judgement:
    r"""We see that the best microbatch size is 2 for this model; the optimal microbatch size is different for other
    models (not shown in Figure) and \emph{model-dependent}.
    """
    lines = results.by_batch(q.THROUGHPUT, "b")
    best = {B: argmax(line) for B, line in lines.items()}
    numbers = results.numbers("count", best_b_at_batch_=best)
    text = f"teraFLOP/s per GPU: {listed_by_batch(lines, 'b', '{:.1f}', 1e12)}"
    return holds_if(set(best.values()) == {BEST}, text, numbers)


@ARTIFACT.judge
def increases_throughput_15_percent(results: Results) -> Judgement:
    r"""In our experiments, the optimal value of the microbatch size is problem-dependent and can increase throughput by
    15\%.
    """
    lines = results.by_batch(q.THROUGHPUT, "b")
    over_each = {B: {b: max(line.values()) / speed - 1 for b, speed in line.items()} for B, line in lines.items()}
    gains = {B: line[1] for B, line in over_each.items()}
    text = f"gain of the best microbatch size over each: {listed_by_batch(over_each, 'b', '{:+.1%}')}"
    numbers, most = results.numbers(gain_at_batch_=gains), max(gains.values())
    if most < 0.145 <= max(gain for line in over_each.values() for gain in line.values()):
        return Judgement("inconclusive", f"not over b=1, and the sentence does not say over what; {text}", numbers)
    return holds_if(0.145 <= most <= 0.155, text, numbers)


@ARTIFACT.judge
def bubble_against_intensity(results: Results) -> Judgement:
    """For a given batch size, increasing the microbatch size decreases the number of microbatches in the pipeline
    ($m$), leading to a larger pipeline bubble; however, increasing the microbatch size can also improve GPU utilization
    by increasing the arithmetic intensity of executed kernels.
    """
    bubbles, rates = results.by_batch("bubble_fraction", "b"), results.by_batch(q.GEMM_RATE, "b")
    denser = all(line[BEST] > line[1] for line in rates.values())
    first = min(rates)
    text = (
        f"bubble over compute time: {listed_by_batch(bubbles, 'b', '{:.0%}')}; teraFLOP/s inside GEMMs: "
        f"{listed_by_batch({first: rates[first]}, 'b', '{:.0f}', 1e12)}"
    )
    return holds_if(rises(*bubbles.values()) and denser, text)


@ARTIFACT.judge
def impact_on_memory(results: Results) -> Judgement:
    """Values of hyperparameters such as microbatch size have an impact on the memory footprint, the arithmetic
    efficiency of kernels executed on the worker, and the pipeline bubble size.
    """
    lines = results.by_batch("peak_memory", "b")
    more = {B: line[max(line)] / line[min(line)] - 1 for B, line in lines.items()}
    text = f"GB on the fullest GPU: {listed_by_batch(lines, 'b', '{:.1f}', 1e9)}"
    return holds_if(min(more.values()) > 0.02, text, results.numbers(increase_b=more))


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
    r"""Our analytical model from \S\ref{sec:data_and_model_parallelism_analytical_model} reasonably approximates true
    performance, and can be used as a proxy to determine how to pick this hyperparameter value for various training
    configurations and models.
    """
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


size_claim(
    ARTIFACT,
    "model_size",
    "Throughput per GPU of a $(t, p) = (8, 8)$ parallel configuration for different microbatch sizes on a GPT "
    "model with 91 billion parameters, for two different batch sizes using 64 A100 GPUs.",
    "Figure 16, caption",
    (("91", "B128_b1"),),
)
