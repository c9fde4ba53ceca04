"""Section 5.8: throughput with and without the fused operators of Section 4.2."""

from reproduce.artifacts.shared import measured_fusion
from reproduce.artifacts.shared.zero3_points import model_sizes
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.results import Judgement, Results, holds_if, numbers_of
from reproduce.experiment.sweep import Point, Sweep

ID = "table_fused_operators"
GPT_3, LARGER = "GPT-3 175B", "530B"
GAIN_TOLERANCE = 0.05


# What the paper leaves open: one model replica, p and t as elsewhere, 1F1B, a batch large enough for p.
SHARED = {"d": 1, "v": 1, "b": 1, "t": 8}
CONFIGURATIONS = {
    GPT_3: {**model_sizes("175B"), **SHARED, "p": 12, "B": 60},
    LARGER: {**model_sizes("530B"), **SHARED, "p": 35, "B": 280},
}


def points() -> tuple[Point, ...]:
    """Both models, unfused and fused."""
    return tuple(
        Point(
            key=f"{row['model'].lower().replace('-', '').replace(' ', '_')}_{'fused' if row['fused'] else 'unfused'}",
            series=row["model"],
            label="fused" if row["fused"] else "unfused",
            parameters={**CONFIGURATIONS[row["model"]], "fused": row["fused"]},
            paper=published.paper_values(ID, row),
        )
        for row in published.rows(ID)
    )


TOLERANCE = "the gain within 5 percentage points; configuration assumed, the paper gives none"


def notes(results: Results) -> tuple[str, ...]:
    """What was assumed, and what the simulator calls unfused."""
    return (
        "Not stated in the paper: GPUs, batch size, p, t and schedule of these runs. Assumed: one replica (d=1), 1F1B, "
        "and p=12, t=8, B=60 for 175B (the largest batch of Figure 12, where the paper has the same 135 teraFLOP/s) "
        "and p=35, t=8, B=280 (m = 8p) for 530B.",
        "Unfused: bias + GeLU, bias + dropout + add, and scale + mask + softmax as single kernels, the latter in fp32 "
        "copies of the scores, and the transposes of the [b, s, a, h] layout (Section 4.2), counted in bytes and "
        "kernels.",
    )


ARTIFACT = Artifact(
    id="table_fused_operators",
    label="Section 5.8",
    section="5.8",
    title="Fused operators: throughput with and without",
    subject="Fused operators, and a training step with and without them",
    description=(
        "Throughput per GPU with the operators and the data layout of Section 4.2 unfused and fused, for 175 and "
        "530 billion parameters. The configurations are assumed: the paper gives none."
    ),
    quantities=(q.THROUGHPUT, q.ITERATION, q.PEAK_MEMORY),
    sweeps={
        "paper": Sweep(points),
        "cpu": measured_fusion.sweep("compiled", layers=2, hidden=512, heads=8, seq=256, vocab=1024),
        "gpu": measured_fusion.sweep("triton"),
    },
    columns={"fused": "fused", "p": "p", "t": "t", "B": "B"},
    measure=measured_fusion.measure,
    notes=notes,
)


def _gain(results: Results, model: str, stated: float) -> Judgement:
    ours, paper = (read(model, q.THROUGHPUT, "fused") for read in (results.series, results.paper_series))
    gain, theirs = (values[True] / values[False] - 1 for values in (ours, paper))
    text = (
        f"{gain:+.1%}, from {ours[False] / 1e12:.1f} to {ours[True] / 1e12:.1f} teraFLOP/s per GPU "
        f"(the paper's numbers: {theirs:+.1%})"
    )
    numbers = results.numbers(gain=gain) | numbers_of("paper", paper_gain=theirs)
    return holds_if(abs(gain - stated) <= GAIN_TOLERANCE, text, numbers)


@ARTIFACT.claim(TOLERANCE)
def fusion_175b(results: Results) -> Judgement:
    r"""For the GPT-3 model (175 billion parameters), throughput increased by 19\% with fusion (113 teraFLOP/s per GPU
    to 135 teraFLOP/s per GPU).
    """
    return _gain(results, GPT_3, 0.19)


@ARTIFACT.claim(TOLERANCE)
def fusion_530b(results: Results) -> Judgement:
    r"""For the larger GPT model with 530 billion parameters (model configuration in Figure~\ref{fig:megatron_scaling}),
    throughput increased by 11\% (133 teraFLOP/s per GPU to 148 teraFLOP/s per GPU).
    """
    return _gain(results, LARGER, 0.11)
