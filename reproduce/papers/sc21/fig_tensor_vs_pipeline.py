"""Figure 13: tensor against pipeline parallelism, 162.2 billion parameters on 64 GPUs."""

from ptdp_core.formulas import parameters
from ptdp_core.schedules import bubble_fraction, build
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import Results, argmax, falls, listed, listed_by_batch, numbers_of, rises
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.sc21.fig_tensor_vs_data import shares_inside_and_across
from reproduce.papers.shared import efficiency
from reproduce.papers.shared.paper_models import model_of, size_claim

SIZE_IN_CAPTION, SIZE_IN_TEXT = "162.2", 161  # billions of parameters, of the same model


ARTIFACT = told(__name__, further=efficiency.kernel_metrics, draw=line_plot)


@ARTIFACT.judge
def best_at_node_size(results: Results) -> Judgement:
    """Consequently, we see peak performance when the tensor-parallel size is equal to the number of GPUs in a single
    node (8 with DGX A100 nodes).
    """
    lines, node = results.by_batch(q.THROUGHPUT, "t"), results.gpus_per_node
    best = {B: argmax(line) for B, line in lines.items()}
    text = f"teraFLOP/s by tensor-parallel size: {listed_by_batch(lines, 't', '{:.0f}', 1e12)}"
    return holds_if(set(best.values()) == {node}, text, results.numbers("count", best_t_b=best))


@ARTIFACT.judge
def up_to_two_times_lower(results: Results) -> Judgement:
    r"""For example, in our experiments, we found that sub-optimal combinations of tensor and pipeline model parallelism
    can lead to up to 2$\times$ lower throughput, even with high-bandwidth network links between servers;
    """
    lines = results.by_batch(q.THROUGHPUT, "t")
    ratios = {B: max(line.values()) / min(line.values()) for B, line in lines.items()}
    text = f"fastest over slowest combination of t and p, by batch size: {listed(ratios, '{:.2f}')}"
    numbers, most = results.numbers(ratio_b=ratios), max(ratios.values())
    if most < 1.95:
        return Judgement("inconclusive", f"not in Figure 13, and the sentence names no figure; {text}", numbers)
    return holds_if(most <= 2.05, text, numbers)


@ARTIFACT.judge
def tensor_best_within_node(results: Results) -> Judgement:
    """We observe that tensor model parallelism is best within a node (DGX A100 server) due to its expensive all-reduce
    communication.
    """
    node = results.gpus_per_node
    shares, other_shares = shares_inside_and_across(results)
    inside, across = max(shares), min(other_shares)
    slower = all(
        speed < line[node]
        for line in results.by_batch(q.THROUGHPUT, "t").values()
        for t, speed in line.items()
        if t > node
    )
    text = (
        f"share of the iteration in tensor all-reduces: at most {inside:.0%} within a node (t <= {node}), at "
        f"least {across:.0%} across nodes, where throughput is {'lower' if slower else 'not lower'} at every batch size"
    )
    numbers = results.numbers(largest_inside=inside, smallest_across=across)
    return holds_if(across > inside and slower, text, numbers)


@ARTIFACT.judge
def pipeline_messages_cheap(results: Results) -> Judgement:
    """Pipeline model parallelism, on the other hand, uses much cheaper point-to-point communication that can be
    performed across nodes without bottlenecking the entire computation.
    """
    lines = results.shares_of_time("pipeline_communication_time", "p")
    shares = {f"B={B}, p={p}": share for B, line in lines.items() for p, share in line.items()}
    worst = argmax(shares)
    text = f"exposed point-to-point communication takes at most {shares[worst]:.1%} of an iteration ({worst})"
    return holds_if(shares[worst] <= 0.10, text, results.numbers(largest_share=shares[worst]))


@ARTIFACT.judge
def bubble_falls_with_t(results: Results) -> Judgement:
    """As $t$ increases, the pipeline bubble thus decreases for fixed $B$, $b$, and $d$"""
    bubbles = {B: dict(sorted(line.items())) for B, line in results.by_batch("bubble_fraction", "t").items()}
    text = f"bubble over compute time: {listed_by_batch(bubbles, 't', '{:.0%}')}"
    return holds_if(falls(*bubbles.values()), text)


@ARTIFACT.judge
def both_in_conjunction(results: Results) -> Judgement:
    r"""This result indicates that neither tensor model parallelism (used by Megatron~\cite{shoeybi2019megatron}) nor
    pipeline model parallelism (used by PipeDream~\cite{narayanan2021memory} and others) in isolation can match the
    performance of using both techniques in conjunction.
    """
    lines = results.by_batch(q.THROUGHPUT, "t")
    shares = {
        B: [v / max(line.values()) for v in (list(line.values())[i] for i in (0, -1))] for B, line in lines.items()
    }
    has_ends = all(1 in {point.parameters[size] for point in results.points} for size in ("p", "t"))
    text = (
        "share of the best throughput at the figure's two ends, most tensor and most pipeline parallel: "
        + "; ".join(f"B={B}: {a:.0%} and {b:.0%}" for B, (a, b) in shares.items())
        + ("" if has_ends else ". The figure has neither p=1 nor t=1")
    )
    return holds_if(all(share < 1 for ends in shares.values() for share in ends), text)


@ARTIFACT.judge
def bubble_in_terms_of_t(results: Results) -> Judgement:
    r"""The pipeline bubble size in terms of $t$ is: $$\frac{p-1}{m} = \frac{n/t-1}{m}.$$"""
    off = {}
    for point in results.points:
        p, t, m = (point.parameters[name] for name in ("p", "t", "B"))
        n = p * t * point.parameters["d"]
        off[f"t={t}, m={m}"] = abs(float(bubble_fraction(build("1f1b", n // t, m), 1, 2)) - (n / t - 1) / m)
    worst = argmax(off)
    text = f"executed bubble against (n/t-1)/m in {len(off)} configurations: largest difference {off[worst]:.1e}"
    return holds_if(off[worst] <= 1e-9, text, numbers_of("derived", largest_difference=off[worst]))


@ARTIFACT.judge
def communication_rises_with_t(results: Results) -> Judgement:
    """Consequently, we see that tensor model parallelism increases the amount of communication between devices."""
    tensor, pipeline = (results.by_batch(f"{use}_traffic", "t") for use in ("tensor", "pipeline"))
    sent = {B: {t: line[t] + pipeline[B][t] for t in sorted(line)} for B, line in tensor.items()}
    text = f"GB sent by the GPU that sends most: {listed_by_batch(sent, 't', '{:.0f}', 1e9)}"
    return holds_if(rises(*sent.values()), text)


@ARTIFACT.judge
def stages_should_be_limited(results: Results) -> Judgement:
    """However, with pipeline parallelism, significant time can be spent in the pipeline bubble: the total number of
    pipeline stages should thus be limited so that the number of microbatches in the pipeline is a reasonable multiple
    of the number of pipeline stages.
    """
    shares = results.shares_of_time("bubble_time", "p")
    deepest = {B: line[B] for B, line in shares.items() if B in line}  # m = B, since b = d = 1
    multiples = {B: B / argmax(line) for B, line in results.by_batch(q.THROUGHPUT, "p").items()}
    text = (
        f"bubble's share of the iteration where m = p: {listed(deepest, '{:.0%}')}; m over p of the fastest "
        f"combination, by batch size: {listed(multiples, '{:g}')}"
    )
    numbers = results.numbers(share_b=deepest, multiple_b=multiples)
    return holds_if(min(deepest.values()) >= 0.25 and min(multiples.values()) >= 4, text, numbers)


size_claim(
    ARTIFACT,
    "model_size_in_caption",
    "Throughput per GPU of various parallel configurations that combine pipeline and tensor model parallelism "
    "using a GPT model with 162.2 billion parameters and 64 A100 GPUs.",
    "Figure 13, caption",
    ((SIZE_IN_CAPTION, "B32_p2_t32"),),
)


@ARTIFACT.judge
def model_size_in_text(results: Results) -> Judgement:
    """to train a 161-billion-parameter GPT model (32 transformer layers to support pipeline-parallel size of 32, 128
    attention heads, hidden size of 20480)
    """
    model = model_of(results.points[0].parameters)
    count = parameters(model)
    text = (
        f"161 billion here and 162.2 billion in the caption of Figure 13 are the same model; eq. (2) gives "
        f"{count / 1e9:.2f} billion ({12 * model.layers * model.hidden**2 / 1e9:.1f} without embeddings)"
    )
    return consistent_if(round(count / 1e9) == SIZE_IN_TEXT, text, numbers_of("derived", "count", parameters=count))
