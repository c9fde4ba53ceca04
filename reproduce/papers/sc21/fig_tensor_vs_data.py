"""Figure 15: tensor against data parallelism, 5.9 billion parameters on 64 GPUs."""

from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, falls, listed_by_batch
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared import efficiency
from reproduce.papers.shared.paper_models import size_claim

ARTIFACT = told(__name__, further=efficiency.kernel_metrics, draw=line_plot)


@ARTIFACT.judge
def tensor_every_microbatch(results: Results) -> Judgement:
    r"""With larger batch sizes and a microbatch size of 1, data-parallel communication is infrequent; the all-to-all
    communication required in tensor model parallelism needs to be performed for \emph{every} microbatch in a batch.
    """
    tensor, data = (results.by_batch(f"{use}_traffic", "t") for use in ("tensor", "data"))
    per_sequence = {B: {t: sent / B for t, sent in line.items()} for B, line in tensor.items()}
    spreads = {
        name: max(max(sent) / min(sent) - 1 for sent in zip(*(line.values() for line in lines.values()), strict=True))
        for name, lines in (("tensor", per_sequence), ("data", data))
    }
    text = (
        f"over the batch sizes, tensor-parallel bytes per sequence vary by at most {spreads['tensor']:.1%}, and "
        f"data-parallel bytes per iteration by at most {spreads['data']:.1%}"
    )
    return holds_if(max(spreads.values()) <= 1e-9, text, results.numbers(spread=spreads))


def shares_inside_and_across(results: Results) -> tuple[list[float], list[float]]:
    """The shares of an iteration that tensor all-reduces take: where t GPUs fit in a node, and where they do not."""
    shares = [(t, share) for line in results.shares_of_time(q.TENSOR_TIME, "t").values() for t, share in line.items()]
    node = results.gpus_per_node
    return [share for t, share in shares if t <= node], [share for t, share in shares if t > node]


def _least_share(results: Results, beyond: int) -> Judgement:
    """Whether tensor all-reduces take over half of an iteration for every t > `beyond`, at all but the smallest B."""
    shares = results.shares_of_time(q.TENSOR_TIME, "t")
    larger = [line for B, line in shares.items() if min(shares) != B]
    least = min(share for line in larger for t, share in line.items() if t > beyond)
    numbers = results.numbers(smallest_share=least)
    return holds_if(least > 0.5, f"share of the iteration: {listed_by_batch(shares, 't', '{:.0%}')}", numbers)


@ARTIFACT.judge
def tensor_dominates(results: Results) -> Judgement:
    """This all-to-all communication with tensor model parallelism dominates end-to-end training time, especially when
    communication needs to be performed across multi-GPU nodes.
    """
    return _least_share(results, beyond=0)


@ARTIFACT.judge
def tensor_dominates_across_nodes(results: Results) -> Judgement:
    return _least_share(results, beyond=results.gpus_per_node)


@ARTIFACT.judge
def especially_across_nodes(results: Results) -> Judgement:
    inside, across = shares_inside_and_across(results)
    text = (
        f"share of the iteration in tensor all-reduces: {min(inside):.0%} to {max(inside):.0%} within a node, "
        f"{min(across):.0%} to {max(across):.0%} across nodes"
    )
    numbers = results.numbers(largest_inside=max(inside), smallest_across=min(across))
    return holds_if(min(across) > max(inside), text, numbers)


@ARTIFACT.judge
def smaller_multiplications(results: Results) -> Judgement:
    """Additionally, as the tensor-model-parallel size increases, we perform smaller matrix multiplications on every
    GPU, decreasing utilization on each GPU.
    """
    lines = results.by_batch(q.GEMM_RATE, "t")
    smallest = {min(lines): lines[min(lines)]}
    text = (
        f"teraFLOP/s inside the GEMMs of a layer: {listed_by_batch(smallest, 't', '{:.0f}', 1e12)}, the same at every "
        "batch size since the microbatch size is 1"
    )
    return holds_if(falls(*lines.values()), text)


size_claim(
    ARTIFACT,
    "model_size",
    "Throughput per GPU of various parallel configurations that combine data and tensor model parallelism using a GPT "
    "model with 5.9 billion parameters, three different batch sizes, microbatch size of 1, and 64 A100 GPUs.",
    "Figure 15, caption",
    (("5.9", "B32_t2_d32"),),
)
