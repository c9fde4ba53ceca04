"""Figure 8: throughput estimated by eq. (1) from single-GPU times, against the microbatch size."""

from collections.abc import Mapping
from dataclasses import replace
from math import fsum

from ptdp_core.formulas import batch_time
from ptdp_core.simulator import Cluster, Estimate, simulate
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, argmax, listed, numbers_of
from reproduce.experiment.sweep import Level, Point, Sweep
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.sc21.fig_microbatch_single_gpu import MICROBATCHES
from results.records import Metric

ID = "fig_microbatch_estimate"
SINGLE_GPU = "fig_microbatch_single_gpu"
ESTIMATE, COMPUTE_ONLY = "normalised_throughput", "normalised_throughput_compute_only"
FROM_FIGURE_7, TIME = "normalised_from_figure_7", "microbatch_time"
COMPUTE = ("forward", "recompute", "backward", "embedding_and_logits")


def normalised(times: Mapping[int, float], b: int, batch: int, p: int) -> float:
    """Eq. (1)'s throughput at microbatch size b over that at 1, b' = B (d = 1); `times` are t_f + t_b by size."""
    # Figure 7 gives the sum of forward and backward time only, which is all that eq. (1) needs.
    reference, here = (batch_time(batch, size, p, times[size], 0.0) for size in (1, b))
    return reference / here


def further(point: Point, estimate: Estimate, cluster: Cluster) -> dict[str, float | Metric]:
    """Eq. (1) on our times, as whole iterations and as computation alone, and on the paper's Figure 7."""
    parallel = estimate.config.parallel
    alone = replace(estimate.config, parallel=replace(parallel, b=1, B=1))
    estimates = {parallel.b: estimate, 1: simulate(alone, cluster)}
    b, batch, p = (point.parameters[name] for name in ("b", "batch_size", "pipeline_stages"))
    whole = {size: estimated.iteration_time for size, estimated in estimates.items()}
    compute = {size: fsum(estimated.phase_times[phase] for phase in COMPUTE) for size, estimated in estimates.items()}
    metrics: dict[str, float | Metric] = {
        ESTIMATE: normalised(whole, b, batch, p),
        COMPUTE_ONLY: normalised(compute, b, batch, p),
        TIME: whole[b],
    }
    rates = figure_7()
    if b in rates:
        papers = {size: size / rates[size] for size in (1, b)}  # in time units that cancel
        metrics[FROM_FIGURE_7] = Metric(normalised(papers, b, batch, p), "1", "derived")
    return metrics


def figure_7() -> dict[int, float]:
    """The paper's Figure 7: FLOP/s by microbatch size."""
    return {row["b"]: row[q.MODEL_THROUGHPUT.name] * q.TERA for row in published.rows(SINGLE_GPU)}


ARTIFACT = told(
    __name__,
    sweeps={
        # What is simulated is Figure 7's single GPU with B = b; eq. (1) is applied to the pipeline of `pipeline_stages`
        # and the batch of `batch_size`.
        "paper": Sweep(
            series=[Level(f"B = {batch}", f"batch{batch}", {"batch_size": batch}) for batch in (128, 512)],
            x=MICROBATCHES,
            paper=ID,
            pipeline_stages=published.configuration(ID)["pipeline_stages"],
            **published.model(SINGLE_GPU),
            d=1,
            recompute="full",
        )
    },
    further=further,
    draw=line_plot,
)


@ARTIFACT.judge
def optimal_b_is_4(results: Results) -> Judgement:
    ours = {name: results.series(name, ESTIMATE, "b") for name in results.series_names}
    best = {name: argmax(values) for name, values in ours.items()}
    shown = "; ".join(f"{name}: b={best[name]} ({listed(ours[name], '{:.3f}')})" for name in ours)
    numbers = results.numbers("count", **{f"best_b_{name.split('=')[1].strip()}": b for name, b in best.items()})
    return holds_if(set(best.values()) == {4}, f"best, by batch size: {shown}", numbers)


@ARTIFACT.judge
def figure_8_is_eq_1_on_figure_7(results: Results) -> Judgement:
    rates = figure_7()
    half = published.artifact(SINGLE_GPU)["values"][q.MODEL_THROUGHPUT.name]["quantum"] * q.TERA / 2
    wrong, worst = [], 0.0

    def on_figure_7(sign: int, b: int, batch: int, p: int) -> float:
        """Eq. (1) with the rates moved within their rounding: that of b up and that of 1 down, or the reverse."""
        times = {b: b / (rates[b] + sign * half), 1: 1 / (rates[1] - sign * half)}
        return normalised(times, b, batch, p)

    for point in results.points:
        b, batch, p = (point.parameters[name] for name in ("b", "batch_size", "pipeline_stages"))
        paper = point.paper[ESTIMATE]
        least, exact, most = (on_figure_7(sign, b, batch, p) for sign in (-1, 0, 1))
        step = (paper.quantum or 0.0) / 2
        if not least - step <= paper.value <= most + step:
            wrong.append(f"{point.series}, {point.label}")
        worst = max(worst, abs(exact - paper.value))
    text = f"not within rounding: {'; '.join(wrong)}" if wrong else f"all {len(results.points)} points within rounding"
    return holds_if(
        not wrong, f"{text}; largest difference {worst:.3f}", numbers_of("derived", largest_difference=worst)
    )


@ARTIFACT.judge
def takeaway_3_by_formula(results: Results) -> Judgement:
    times = results.series(results.series_names[0], TIME, "b")
    depths, batches = (1, 8, 64), (32, 128, 512, 2048)
    best = {
        (p, batch): max((b for b in times if b <= batch), key=lambda b: normalised(times, b, batch, p))
        for p in depths
        for batch in batches
    }
    by_depth = {p: [best[p, batch] for batch in batches] for p in depths}
    text = "best b at b' = B/d = 32, 128, 512, 2048: " + "; ".join(
        f"p={p}: {', '.join(map(str, best_sizes))}" for p, best_sizes in by_depth.items()
    )
    changes_with_batch = any(len(set(best_sizes)) > 1 for best_sizes in by_depth.values())
    changes_with_depth = any(len(set(best_sizes)) > 1 for best_sizes in zip(*by_depth.values(), strict=True))
    return holds_if(changes_with_depth and changes_with_batch, text)
