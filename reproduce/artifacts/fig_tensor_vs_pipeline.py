"""Figure 13: tensor against pipeline parallelism, 162.2 billion parameters on 64 GPUs."""

from benchmarks.records import Number
from reproduce.artifacts.shared import efficiency, grids, laptop
from reproduce.artifacts.shared.grids import THROUGHPUT
from reproduce.artifacts.shared.measured_experiments import EXPERIMENTS
from reproduce.artifacts.shared.measured_points import with_measured
from reproduce.artifacts.shared.model_sizes import model_of, size_claim
from reproduce.experiment.artifact import Artifact, Claim, Judgement, Point, Results, Scalar, XAxis
from reproduce.experiment.claims import holds_if, listed, strictly_decreasing
from reproduce.output.figures import line_plot

ID = "fig_tensor_vs_pipeline"
TWO_TIMES = (1.6, 2.4)  # "up to 2x", within 20%
BOTTLENECK = 0.10


def points(scale: str) -> tuple[Point, ...]:
    """The figure's ten points: two batch sizes for five pairs (p, t)."""
    if scale == laptop.SCALE:
        return laptop.points(ID)
    return grids.grid(ID, grids.batch_lines(ID), grids.pair_marks(ID))


def _shown(by_t: dict[int, dict[Scalar, float]], factor: float = 1e12) -> str:
    return "; ".join(
        f"B={B}: {listed({f't={t}': v / factor for t, v in line.items()}, '{:.0f}')}" for B, line in by_t.items()
    )


def _throughput(results: Results) -> dict[int, dict[Scalar, float]]:
    return grids.by_batch(results, THROUGHPUT, "t")


def judge_best(results: Results) -> Judgement:
    """Whether t = GPUs of a node is the fastest, at every batch size."""
    lines, node = _throughput(results), grids.per_node(results)
    best = {B: max(line, key=lambda t: line[t]) for B, line in lines.items()}
    numbers = {f"best_t_b{B}": Number(int(str(t)), "count", results.fidelity) for B, t in best.items()}
    text = f"teraFLOP/s by tensor-parallel size: {_shown(lines)}"
    return holds_if(all(t == node for t in best.values()), text, numbers)


def judge_two_times(results: Results) -> Judgement:
    """Whether the slowest combination is up to two times slower than the fastest."""
    lines = _throughput(results)
    ratios = {B: max(line.values()) / min(line.values()) for B, line in lines.items()}
    worst = max(ratios.values())
    text = f"fastest over slowest combination of t and p, by batch size: {listed(ratios, '{:.2f}')}"
    numbers = {f"ratio_b{B}": grids.ratio(value, results.fidelity) for B, value in ratios.items()}
    return holds_if(TWO_TIMES[0] <= worst <= TWO_TIMES[1], text, numbers)


def judge_within_node(results: Results) -> Judgement:
    """Whether tensor all-reduces take a larger share of the iteration across nodes than inside, and slow it down."""
    time, tensor = (grids.by_batch(results, name, "t") for name in ("iteration_time", efficiency.TENSOR_TIME))
    shares = {B: {t: tensor[B][t] / time[B][t] for t in time[B]} for B in time}
    node = grids.per_node(results)
    inside = max(v for line in shares.values() for t, v in line.items() if int(str(t)) <= node)
    across = min(v for line in shares.values() for t, v in line.items() if int(str(t)) > node)
    slower = all(line[t] < line[node] for line in _throughput(results).values() for t in line if int(str(t)) > node)
    text = (
        f"share of the iteration in tensor all-reduces: at most {inside:.0%} within a node (t <= {node}), at "
        f"least {across:.0%} across nodes, where throughput is {'lower' if slower else 'not lower'} at every batch size"
    )
    numbers = {
        "largest_inside": grids.ratio(inside, results.fidelity),
        "smallest_across": grids.ratio(across, results.fidelity),
    }
    return holds_if(across > inside and slower, text, numbers)


def judge_cheap_messages(results: Results) -> Judgement:
    """Whether exposed point-to-point communication stays a small share of the iteration everywhere."""
    time, sent = (grids.by_batch(results, name, "p") for name in ("iteration_time", "pipeline_communication_time"))
    shares = {f"B={B}, p={p}": sent[B][p] / time[B][p] for B in time for p in time[B]}
    worst = max(shares, key=lambda where: shares[where])
    text = f"exposed point-to-point communication takes at most {shares[worst]:.1%} of an iteration ({worst})"
    return holds_if(shares[worst] <= BOTTLENECK, text, {"largest_share": grids.ratio(shares[worst], results.fidelity)})


def judge_bubble_by_t(results: Results) -> Judgement:
    """Whether the bubble falls from each t to the next, at every batch size."""
    bubbles = {
        B: dict(sorted(line.items(), key=lambda item: int(str(item[0]))))
        for B, line in grids.by_batch(results, "bubble_fraction", "t").items()
    }
    text = "; ".join(
        f"B={B}: {listed({f't={t}': v for t, v in line.items()}, '{:.0%}')}" for B, line in bubbles.items()
    )
    return holds_if(
        all(strictly_decreasing(list(line.values())) for line in bubbles.values()), f"bubble over compute time: {text}"
    )


def judge_both(results: Results) -> Judgement:
    """Whether both ends of the figure, mostly tensor and mostly pipeline parallel, are slower than the best."""
    lines = _throughput(results)
    shares = {
        B: [v / max(line.values()) for v in (list(line.values())[i] for i in (0, -1))] for B, line in lines.items()
    }
    text = (
        "share of the best throughput at the figure's two ends, most tensor and most pipeline parallel: "
        + "; ".join(f"B={B}: {a:.0%} and {b:.0%}" for B, (a, b) in shares.items())
        + ("" if _has_ends(results) else ". The figure has neither p=1 nor t=1")
    )
    return holds_if(all(share < 1 for ends in shares.values() for share in ends), text)


def _has_ends(results: Results) -> bool:
    return {1} <= {p.parameters["p"] for p in results.points} & {p.parameters["t"] for p in results.points}


def judge_sizes(results: Results) -> Judgement:
    """The caption and the text print two sizes for one model."""
    from ptdp_core.formulas import parameters

    model = model_of(results.points[0].parameters)
    count = parameters(model)
    text = (
        f"161 billion here and 162.2 billion in the caption of Figure 13 are the same model; eq. (2) gives "
        f"{count / 1e9:.2f} billion ({12 * model.layers * model.hidden**2 / 1e9:.1f} without embeddings)"
    )
    return Judgement(
        "holds" if round(count / 1e9) == 161 else "paper inconsistent",
        text,
        {"parameters": Number(count, "count", "derived")},
    )


WITHIN_NODE = (
    "We observe that tensor model parallelism is best within a node (DGX A100 server) due to its expensive all-reduce "
    "communication."
)

CLAIMS = (
    Claim(
        id="best_at_node_size",
        sentence=(
            "Consequently, we see peak performance when the tensor-parallel size is equal to the number of GPUs in a "
            "single node (8 with DGX A100 nodes)."
        ),
        place="Section 5.4.1",
        fidelity="simulated",
        tolerance="t equal to the GPUs of a node, 8 in the paper, is the fastest, at both batch sizes",
        judge=judge_best,
        scales=laptop.SCALES,
    ),
    Claim(
        id="up_to_two_times_lower",
        sentence=(
            "For example, in our experiments, we found that sub-optimal combinations of tensor and pipeline model "
            r"parallelism can lead to up to 2$\times$ lower throughput, even with high-bandwidth network links between "
            "servers;"
        ),
        place="Section 1",
        fidelity="simulated",
        tolerance="fastest over slowest combination at one batch size, the larger of the two: between 1.6 and 2.4",
        judge=judge_two_times,
    ),
    Claim(
        id="tensor_best_within_node",
        sentence=WITHIN_NODE,
        place="Section 5.4.1",
        fidelity="simulated",
        tolerance=(
            "every t > 8 spends a larger share of its iteration in tensor all-reduces than any t <= 8, and is slower "
            "than t = 8, at both batch sizes"
        ),
        judge=judge_within_node,
    ),
    Claim(
        id="pipeline_messages_cheap",
        sentence=(
            "Pipeline model parallelism, on the other hand, uses much cheaper point-to-point communication that can be "
            "performed across nodes without bottlenecking the entire computation."
        ),
        place="Section 5.4.1",
        fidelity="simulated",
        tolerance="exposed point-to-point communication takes at most 10% of an iteration at every point",
        judge=judge_cheap_messages,
    ),
    Claim(
        id="bubble_falls_with_t",
        sentence="As $t$ increases, the pipeline bubble thus decreases for fixed $B$, $b$, and $d$",
        place="Section 3.2",
        fidelity="simulated",
        tolerance="the executed bubble over compute time falls from each t to the next, at both batch sizes",
        judge=judge_bubble_by_t,
        scales=laptop.SCALES,
    ),
    Claim(
        id="both_in_conjunction",
        sentence=(
            "This result indicates that neither tensor model parallelism (used by "
            r"Megatron~\cite{shoeybi2019megatron}) nor pipeline model parallelism (used by "
            r"PipeDream~\cite{narayanan2021memory} and others) in isolation can match the performance of using both "
            "techniques in conjunction."
        ),
        place="Section 5.4.1",
        fidelity="simulated",
        tolerance="both ends of the figure, in the paper (2, 32) and (32, 2), are slower than its best at both sizes",
        judge=judge_both,
        scales=laptop.SCALES,
    ),
    size_claim(
        "model_size_in_caption",
        (
            "Throughput per GPU of various parallel configurations that combine pipeline and tensor model parallelism "
            "using a GPT model with 162.2 billion parameters and 64 A100 GPUs."
        ),
        "Figure 13, caption",
        (("162.2", "B32_p2_t32"),),
    ),
    Claim(
        id="model_size_in_text",
        sentence=(
            "to train a 161-billion-parameter GPT model (32 transformer layers to support pipeline-parallel size of "
            "32, 128 attention heads, hidden size of 20480)"
        ),
        place="Section 5.4.1",
        fidelity="derived",
        tolerance="eq. (2), rounded to the digits printed, and the same as in the caption",
        judge=judge_sizes,
    ),
)

ARTIFACT = with_measured(
    Artifact(
        id=ID,
        label="Figure 13",
        section="5.4.1",
        title="Tensor versus pipeline parallelism, 162 billion parameters on 64 GPUs",
        description=(
            "Throughput per GPU of the five ways to split 64 GPUs into pipeline- and tensor-parallel size, for two "
            "batch sizes; 32 layers, hidden size 20480, 128 heads, microbatch size 1, non-interleaved 1F1B. FLOP/s by "
            "the paper's count (eq. 3)."
        ),
        fidelities=("simulated", "emulated"),
        scales=laptop.SCALES,
        settings=laptop.settings(ID),
        points=points,
        quantities=(*grids.QUANTITIES, efficiency.TENSOR_TIME_QUANTITY, efficiency.GEMM_RATE_QUANTITY),
        columns={"p": "p", "t": "t"},
        x_axis=XAxis("p", "(Pipeline-parallel size, tensor-parallel size)", scale="category"),
        claims=CLAIMS,
        further=efficiency.kernel_metrics,
        draw=line_plot,
        notes=grids.notes,
    ),
    EXPERIMENTS[ID],
)
