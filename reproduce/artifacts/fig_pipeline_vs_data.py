"""Figure 14: pipeline against data parallelism, 5.9 billion parameters on 64 GPUs."""

from benchmarks.records import Number
from reproduce.artifacts.shared import grids, laptop
from reproduce.artifacts.shared.grids import THROUGHPUT
from reproduce.artifacts.shared.measured_experiments import EXPERIMENTS
from reproduce.artifacts.shared.measured_points import with_measured
from reproduce.artifacts.shared.model_sizes import size_claim
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact, Claim, Judgement, Point, Results, XAxis
from reproduce.experiment.claims import holds_if, listed, strictly_decreasing, strictly_increasing
from reproduce.output.figures import line_plot

ID = "fig_pipeline_vs_data"
BATCH_SIZES_IN_CAPTION = 3
FALLS = (
    "We see that for each batch size, the throughput decreases as the pipeline-parallel size increases, matching our "
    r"analytical model from \S\ref{sec:data_and_model_parallelism_analytical_model}."
)


def points(scale: str) -> tuple[Point, ...]:
    """The figure's ten points: two batch sizes for five pairs (p, d)."""
    if scale == laptop.SCALE:
        return laptop.points(ID)
    return grids.grid(ID, grids.batch_lines(ID), grids.pair_marks(ID))


def judge_falls(results: Results) -> Judgement:
    """Whether throughput falls from each p to the next, at every batch size."""
    lines = grids.by_batch(results, THROUGHPUT, "p")
    text = "; ".join(
        f"B={B}: {listed({f'p={p}': v / 1e12 for p, v in line.items()}, '{:.1f}')}" for B, line in lines.items()
    )
    return holds_if(
        all(strictly_decreasing(list(line.values())) for line in lines.values()), f"teraFLOP/s per GPU: {text}"
    )


def judge_analytical(results: Results) -> Judgement:
    """Whether bubble and throughput order the configurations as (n-d)/b' does: the larger p, the larger the bubble."""
    bubbles = grids.by_batch(results, "bubble_fraction", "p")
    rises = all(strictly_increasing(list(line.values())) for line in bubbles.values())
    falls = judge_falls(results).verdict == "holds"
    text = "bubble over compute time: " + "; ".join(
        f"B={B}: {listed({f'p={p}': v for p, v in line.items()}, '{:.0%}')}" for B, line in bubbles.items()
    )
    return holds_if(rises and falls, text)


def judge_larger_batch(results: Results) -> Judgement:
    """Whether the larger batch size is faster for every parallel configuration."""
    lines = grids.by_batch(results, THROUGHPUT, "p")
    low, high = lines[min(lines)], lines[max(lines)]
    gains = {f"p={p}": high[p] / low[p] - 1 for p in low}
    text = f"throughput at B={max(lines)} over B={min(lines)}: {listed(gains)}"
    return holds_if(all(gain > 0 for gain in gains.values()), text)


def judge_fits(results: Results) -> Judgement:
    """Whether the model fits with a model-parallel size of 2."""
    found = [point for point in results.points if point.parameters["p"] == 2]
    out = [point.series for point in found if point.status == "oom"]
    peaks = {point.series: results.value(point.key, "peak_memory") for point in found if point.series not in out}
    text = "peak memory with p=2, t=1: " + listed({k: v / 1e9 for k, v in peaks.items()}, "{:.1f} GB")
    text += f"; out of memory: {', '.join(out)}" if out else ""
    numbers = {f"peak_memory_{i}": Number(peak, "B", results.fidelity) for i, peak in enumerate(peaks.values())}
    return holds_if(bool(peaks) and not out, text, numbers)


def judge_batch_sizes(results: Results) -> Judgement:
    """The caption against the figure's own batch sizes."""
    batches = published.artifact(ID)["config"]["B"]
    return Judgement(
        "holds" if len(batches) == BATCH_SIZES_IN_CAPTION else "paper inconsistent",
        f"the plot and the authors' script have {len(batches)} batch sizes: {', '.join(map(str, batches))}",
        {"batch_sizes": Number(len(batches), "count", "paper")},
    )


CAPTION = (
    "Throughput per GPU of various parallel configurations that combine data and pipeline model parallelism using a "
    "GPT model with 5.9 billion parameters, three different batch sizes, microbatch size of 1, and 64 A100 GPUs."
)

CLAIMS = (
    Claim(
        id="throughput_falls_with_p",
        sentence=FALLS,
        place="Section 5.4.2",
        fidelity="simulated",
        tolerance="falls from each p to the next, at both batch sizes",
        judge=judge_falls,
        scales=laptop.SCALES,
    ),
    Claim(
        id="matches_analytical_model",
        sentence=FALLS,
        place="Section 5.4.2 (the analytical model)",
        fidelity="simulated",
        tolerance="the executed bubble rises from each p to the next, as (n-d)/b' does, while throughput falls",
        judge=judge_analytical,
        scales=laptop.SCALES,
    ),
    Claim(
        id="larger_batch_faster",
        sentence=(
            "For a given parallel configuration, as the batch size $B$ increases, $b'=B/b$ increases, $(n-d)/b'$ "
            "decreases, consequently increasing throughput."
        ),
        place="Section 3.3.1 (the throughput)",
        fidelity="simulated",
        tolerance="throughput is higher with the larger batch size for every (p, d)",
        judge=judge_larger_batch,
        scales=laptop.SCALES,
    ),
    Claim(
        id="fits_model_parallel_2",
        sentence=(
            "We use a smaller model than before since we want to show performance for models that fit when the "
            "model-parallel size is only 2."
        ),
        place="Section 5.4.2",
        fidelity="simulated",
        tolerance="p=2, t=1 fits in memory at both batch sizes",
        judge=judge_fits,
    ),
    Claim(
        id="three_batch_sizes",
        sentence=CAPTION,
        place="Figure 14, caption (the batch sizes)",
        fidelity="derived",
        tolerance="three of them",
        judge=judge_batch_sizes,
    ),
    size_claim("model_size", CAPTION, "Figure 14, caption (the size)", (("5.9", "B32_p2_d32"),)),
)

ARTIFACT = with_measured(
    Artifact(
        id=ID,
        label="Figure 14",
        section="5.4.2",
        title="Pipeline versus data parallelism, 5.9 billion parameters on 64 GPUs",
        description=(
            "Throughput per GPU of the five ways to split 64 GPUs into pipeline- and data-parallel size (t=1), for two "
            "batch sizes; 32 layers, hidden size 3840, 32 heads, microbatch size 1. FLOP/s by the paper's count (eq. "
            "3)."
        ),
        fidelities=("simulated", "emulated"),
        scales=laptop.SCALES,
        settings=laptop.settings(ID),
        points=points,
        quantities=(*grids.QUANTITIES, grids.DATA_TIME_QUANTITY),
        columns={"p": "p", "d": "d"},
        x_axis=XAxis("p", "(Pipeline-parallel size, data-parallel size)", scale="category"),
        claims=CLAIMS,
        draw=line_plot,
        notes=grids.notes,
    ),
    EXPERIMENTS[ID],
)
