"""Figure 11: weak scaling of the non-interleaved pipeline schedule; the model grows with the pipeline."""

from benchmarks.records import Number
from ptdp_core.formulas import bubble_fraction
from reproduce.artifacts.shared import grids, laptop
from reproduce.artifacts.shared.grids import THROUGHPUT
from reproduce.artifacts.shared.measured_experiments import EXPERIMENTS
from reproduce.artifacts.shared.measured_points import with_measured
from reproduce.artifacts.shared.model_sizes import size_claim
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact, Claim, Judgement, Point, Results, XAxis
from reproduce.experiment.claims import holds_if, listed
from reproduce.output.figures import line_plot

ID = "fig_pipeline_weak_scaling"
LAYERS_PER_STAGE = 3  # "3p" in the script
BUBBLE_TOLERANCE = 0.10


def points(scale: str) -> tuple[Point, ...]:
    """The figure's eight points: two batch sizes at four pipeline sizes."""
    if scale == laptop.SCALE:
        return laptop.points(ID)
    config = published.artifact(ID)["config"]
    marks = []
    for p in config["p"]:
        sizes = {"p": p, "layers": LAYERS_PER_STAGE * p, "d": 1}
        marks.append(grids.Mark(f"p={p}", sizes))
    return grids.grid(ID, grids.batch_lines(ID), marks)


def judge_scales_better(results: Results) -> Judgement:
    """Whether the larger batch size keeps more of the throughput of p=1 at the largest p."""
    lines = {B: list(by_p.values()) for B, by_p in grids.by_batch(results, THROUGHPUT, "p").items()}
    kept = {B: line[-1] / line[0] for B, line in lines.items()}
    low, high = min(kept), max(kept)
    return holds_if(
        kept[high] > kept[low],
        f"share of the throughput of p=1 that is left at the largest p, by batch size: {listed(kept, '{:.0%}')}",
        {f"kept_b{B}": grids.ratio(share, results.fidelity) for B, share in kept.items()},
    )


def judge_bubble(results: Results) -> Judgement:
    """Whether the executed bubble is (p-1)/m at every point."""
    bubbles = grids.by_batch(results, "bubble_fraction", "p")
    apart = {
        f"p={p}, m={B}": bubble - bubble_fraction(int(str(p)), B)
        for B, by_p in bubbles.items()
        for p, bubble in by_p.items()
    }
    worst = max(apart, key=lambda where: abs(apart[where]))
    text = f"executed bubble minus (p-1)/m, as fractions of compute time: {listed(apart, '{:+.3f}')}"
    return holds_if(
        abs(apart[worst]) <= BUBBLE_TOLERANCE, text, {"largest_difference": Number(apart[worst], "1", results.fidelity)}
    )


CLAIMS = (
    Claim(
        id="higher_batch_scales_better",
        sentence=(
            "As expected, the higher batch size scales better since the pipeline bubble is amortized over more "
            "microbatches."
        ),
        place="Section 5.3.1",
        fidelity="simulated",
        tolerance="throughput at the largest p over that at p=1 is higher with the larger batch size",
        judge=judge_scales_better,
        scales=laptop.SCALES,
    ),
    Claim(
        id="bubble_behaves_as_formula",
        sentence=(
            r"Figure~\ref{fig:pipeline_parallelism_weak_scaling} shows throughput per GPU for two different batch "
            r"sizes to illustrate the impact of the pipeline bubble, which behaves as $\frac{p-1}{m}$ "
            r"(\S\ref{sec:pipeline_parallelism_bubble})."
        ),
        place="Section 5.3.1",
        fidelity="simulated",
        tolerance=(
            "the executed bubble over compute time is within 0.10 of (p-1)/m at every point; the rest is the last "
            "stage's logits, which the formula does not know"
        ),
        judge=judge_bubble,
        scales=laptop.SCALES,
    ),
    size_claim(
        "model_sizes",
        (
            "with a pipeline-parallel size of 1, we use a model with 3 transformer layers and ~15 billion parameters, "
            "and with a pipeline-parallel size of 8, we use a model with 24 transformer layers and ~121 billion "
            "parameters."
        ),
        "Section 5.3.1",
        (("15", "B8_p1_layers3_d1"), ("121", "B8_p8_layers24_d1")),
    ),
)

ARTIFACT = with_measured(
    Artifact(
        id=ID,
        label="Figure 11",
        section="5.3.1",
        title="Weak scaling of pipeline parallelism",
        description=(
            "Throughput per GPU against the pipeline-parallel size p for two batch sizes; three layers a stage, hidden "
            "size 20480, 128 heads, t=8, microbatch size 1, 8p GPUs, non-interleaved 1F1B. FLOP/s by the paper's count "
            "(eq. 3)."
        ),
        fidelities=("simulated", "emulated"),
        scales=laptop.SCALES,
        settings=laptop.settings(ID),
        points=points,
        quantities=grids.QUANTITIES,
        columns={"p": "p", "layers": "l"},
        x_axis=XAxis("p", "Pipeline-parallel size", scale="log2"),
        claims=CLAIMS,
        draw=line_plot,
        notes=grids.notes,
    ),
    EXPERIMENTS[ID],
)
