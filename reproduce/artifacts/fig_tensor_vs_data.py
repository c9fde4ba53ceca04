"""Figure 15: tensor against data parallelism, 5.9 billion parameters on 64 GPUs."""

from reproduce.artifacts.shared import efficiency, grids, laptop
from reproduce.artifacts.shared.grids import THROUGHPUT
from reproduce.artifacts.shared.measured_experiments import EXPERIMENTS
from reproduce.artifacts.shared.measured_points import with_measured
from reproduce.artifacts.shared.model_sizes import size_claim
from reproduce.experiment.artifact import Artifact, Claim, Judgement, Point, Results, Scalar, XAxis
from reproduce.experiment.claims import holds_if, listed, strictly_decreasing
from reproduce.output.figures import line_plot

ID = "fig_tensor_vs_data"
PROPORTIONAL_TOLERANCE = 0.05
DOMINATES = 0.5


def points(scale: str) -> tuple[Point, ...]:
    """The figure's fifteen points: three batch sizes for five pairs (t, d)."""
    if scale == laptop.SCALE:
        return laptop.points(ID)
    return grids.grid(ID, grids.batch_lines(ID), grids.pair_marks(ID))


def _lines(results: Results, metric: str) -> dict[int, dict[Scalar, float]]:
    return grids.by_batch(results, metric, "t")


def _by_t(lines: dict[int, dict[Scalar, float]], show: str, factor: float = 1.0) -> str:
    return "; ".join(
        f"B={B}: {listed({f't={t}': value / factor for t, value in line.items()}, show)}" for B, line in lines.items()
    )


def judge_every_microbatch(results: Results) -> Judgement:
    """Tensor-parallel bytes in proportion to the batch size, data-parallel bytes the same for every batch size."""
    tensor, data = (_lines(results, f"{use}_traffic") for use in ("tensor", "data"))
    per_sequence = {B: {t: sent / B for t, sent in line.items()} for B, line in tensor.items()}
    spreads = {
        name: max(max(line[t] for line in lines.values()) / min(line[t] for line in lines.values()) - 1 for t in first)
        for name, lines in (("tensor", per_sequence), ("data", data))
        if (first := next(iter(lines.values())))
    }
    text = (
        f"over the batch sizes, tensor-parallel bytes per sequence vary by at most {spreads['tensor']:.1%}, and "
        f"data-parallel bytes per iteration by at most {spreads['data']:.1%}"
    )
    numbers = {f"spread_{name}": grids.ratio(value, results.fidelity) for name, value in spreads.items()}
    return holds_if(max(spreads.values()) <= PROPORTIONAL_TOLERANCE, text, numbers)


def _tensor_shares(results: Results) -> dict[int, dict[Scalar, float]]:
    time, tensor = _lines(results, "iteration_time"), _lines(results, efficiency.TENSOR_TIME)
    return {B: {t: tensor[B][t] / time[B][t] for t in time[B]} for B in time}


def judge_dominates(results: Results) -> Judgement:
    """Whether tensor all-reduces are most of the iteration across nodes, with the larger batch sizes."""
    per_node = grids.per_node(results)
    shares = _tensor_shares(results)
    larger = {B: line for B, line in shares.items() if min(shares) != B}
    across = min(v for line in larger.values() for t, v in line.items() if int(str(t)) > per_node)
    numbers = {"smallest_share_across_nodes": grids.ratio(across, results.fidelity)}
    return holds_if(across >= DOMINATES, f"share of the iteration: {_by_t(shares, '{:.0%}')}", numbers)


def judge_especially(results: Results) -> Judgement:
    """Whether the share is larger for every t beyond a node than for any t within."""
    per_node = grids.per_node(results)
    shares = _tensor_shares(results)
    inside, across = (
        [v for line in shares.values() for t, v in line.items() if (int(str(t)) > per_node) == beyond]
        for beyond in (False, True)
    )
    text = (
        f"share of the iteration in tensor all-reduces: {min(inside):.0%} to {max(inside):.0%} within a node, "
        f"{min(across):.0%} to {max(across):.0%} across nodes"
    )
    numbers = {
        "largest_inside": grids.ratio(max(inside), results.fidelity),
        "smallest_across": grids.ratio(min(across), results.fidelity),
    }
    return holds_if(min(across) > max(inside), text, numbers)


def judge_utilization(results: Results) -> Judgement:
    """Whether FLOP/s inside GEMMs fall from each t to the next."""
    lines = _lines(results, efficiency.GEMM_RATE)
    return holds_if(
        all(strictly_decreasing(list(line.values())) for line in lines.values()),
        f"teraFLOP/s inside the GEMMs of a layer: {_by_t({min(lines): lines[min(lines)]}, '{:.0f}', 1e12)}, the same "
        "at every batch size since the microbatch size is 1",
    )


def judge_falls(results: Results) -> Judgement:
    """Whether throughput falls from each t to the next, at every batch size."""
    lines = _lines(results, THROUGHPUT)
    rising = [f"B={B}" for B, line in lines.items() if not strictly_decreasing(list(line.values()))]
    text = f"teraFLOP/s per GPU: {_by_t(lines, '{:.1f}', 1e12)}"
    return holds_if(not rising, text + (f"; it does not fall throughout at {', '.join(rising)}" if rising else ""))


DOMINATES_SENTENCE = (
    "This all-to-all communication with tensor model parallelism dominates end-to-end training time, especially when "
    "communication needs to be performed across multi-GPU nodes."
)
SMALLER = (
    "Additionally, as the tensor-model-parallel size increases, we perform smaller matrix multiplications on every "
    "GPU, decreasing utilization on each GPU."
)

CLAIMS = (
    Claim(
        id="tensor_every_microbatch",
        sentence=(
            "With larger batch sizes and a microbatch size of 1, data-parallel communication is infrequent; the "
            "all-to-all communication required in tensor model parallelism needs to be performed for \\emph{every} "
            "microbatch in a batch."
        ),
        place="Section 5.4.3",
        fidelity="simulated",
        tolerance=(
            "over the batch sizes, tensor-parallel bytes per sequence and data-parallel bytes per iteration are each "
            "equal within 5%, at every t"
        ),
        judge=judge_every_microbatch,
    ),
    Claim(
        id="tensor_dominates",
        sentence=DOMINATES_SENTENCE,
        place="Section 5.4.3",
        fidelity="simulated",
        tolerance="at least half of the iteration for every t > 8 at the larger batch sizes (all but the smallest)",
        judge=judge_dominates,
    ),
    Claim(
        id="especially_across_nodes",
        sentence=DOMINATES_SENTENCE,
        place="Section 5.4.3 (across nodes)",
        fidelity="simulated",
        tolerance="a larger share of the iteration for every t > 8 than for any t <= 8",
        judge=judge_especially,
    ),
    Claim(
        id="smaller_multiplications",
        sentence=SMALLER,
        place="Section 5.4.3 (the utilization)",
        fidelity="simulated",
        tolerance="FLOP/s inside the GEMMs of a transformer layer fall from each t to the next",
        judge=judge_utilization,
    ),
    Claim(
        id="throughput_falls_with_t",
        sentence=SMALLER,
        place="Section 5.4.3 (the throughput)",
        fidelity="simulated",
        tolerance="throughput falls from each t to the next, at every batch size",
        judge=judge_falls,
        scales=laptop.SCALES,
    ),
    size_claim(
        "model_size",
        (
            "Throughput per GPU of various parallel configurations that combine data and tensor model parallelism "
            "using a GPT model with 5.9 billion parameters, three different batch sizes, microbatch size of 1, and 64 "
            "A100 GPUs."
        ),
        "Figure 15, caption",
        (("5.9", "B32_t2_d32"),),
    ),
)

ARTIFACT = with_measured(
    Artifact(
        id=ID,
        label="Figure 15",
        section="5.4.3",
        title="Tensor versus data parallelism, 5.9 billion parameters on 64 GPUs",
        description=(
            "Throughput per GPU of the five ways to split 64 GPUs into tensor- and data-parallel size (p=1), for three "
            "batch sizes; 32 layers, hidden size 3840, 32 heads, microbatch size 1. FLOP/s by the paper's count (eq. "
            "3)."
        ),
        fidelities=("simulated", "emulated"),
        scales=laptop.SCALES,
        settings=laptop.settings(ID),
        points=points,
        quantities=(
            *(quantity for quantity in grids.QUANTITIES if quantity.name != "bubble_fraction"),
            grids.DATA_TIME_QUANTITY,
            efficiency.TENSOR_TIME_QUANTITY,
            efficiency.GEMM_RATE_QUANTITY,
        ),
        columns={"t": "t", "d": "d"},
        x_axis=XAxis("t", "(Tensor-parallel size, data-parallel size)", scale="category"),
        claims=CLAIMS,
        further=efficiency.kernel_metrics,
        draw=line_plot,
        notes=grids.notes,
    ),
    EXPERIMENTS[ID],
)
