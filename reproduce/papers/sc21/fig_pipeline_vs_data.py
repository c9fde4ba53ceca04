"""Figure 14: pipeline against data parallelism, 5.9 billion parameters on 64 GPUs."""

from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import Results, argmax, falls, listed, listed_by_batch, numbers_of, rises
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared.paper_models import size_claim

ARTIFACT = told(__name__, draw=line_plot)


@ARTIFACT.judge
def throughput_falls_with_p(results: Results) -> Judgement:
    r"""We see that for each batch size, the throughput decreases as the pipeline-parallel size increases, matching our
    analytical model from \S\ref{sec:data_and_model_parallelism_analytical_model}.
    """
    lines = results.by_batch(q.THROUGHPUT, "p")
    return holds_if(falls(*lines.values()), f"teraFLOP/s per GPU: {listed_by_batch(lines, 'p', '{:.1f}', 1e12)}")


@ARTIFACT.judge
def matches_analytical_model(results: Results) -> Judgement:
    bubbles = results.by_batch("bubble_fraction", "p")
    holds = rises(*bubbles.values()) and throughput_falls_with_p(results).verdict == "holds"
    return holds_if(holds, f"bubble over compute time: {listed_by_batch(bubbles, 'p', '{:.0%}')}")


@ARTIFACT.judge
def larger_batch_faster(results: Results) -> Judgement:
    lines = results.by_batch(q.THROUGHPUT, "p")
    low, high = min(lines), max(lines)
    gains = {f"p={p}": speed / lines[low][p] - 1 for p, speed in lines[high].items()}
    text = f"throughput at B={high} over B={low}: {listed(gains)}"
    return holds_if(min(gains.values()) > 0, text)


@ARTIFACT.judge
def all_reduce_more_infrequent(results: Results) -> Judgement:
    """All-reduce communication required by data parallelism also becomes more infrequent, further increasing
    throughput.
    """
    traffic, shares = results.by_batch("data_traffic", "p"), results.shares_of_time(q.DATA_PARALLEL_TIME, "p")
    low, high = min(traffic), max(traffic)
    fewer = all(traffic[high][p] / high < sent / low for p, sent in traffic[low].items())
    less = all(shares[high][p] < share for p, share in shares[low].items())
    text = (
        f"bytes per sequence at B={high} are {'' if fewer else 'not '}fewer than at B={low} for every p; exposed share "
        f"of the iteration: {listed_by_batch(shares, 'p', '{:.1%}')}"
    )
    return holds_if(fewer and less, text)


@ARTIFACT.judge
def data_parallelism_to_scale(results: Results) -> Judgement:
    """Pipeline model parallelism should be used primarily to support the training of large models that do not fit on a
    single worker, and data parallelism should be used to scale up training.
    """
    best = {B: argmax(line) for B, line in results.by_batch(q.THROUGHPUT, "p").items()}
    smallest = min(point.parameters["p"] for point in results.points)
    text = f"fastest p, by batch size: {listed(best, '{:g}')}; the smallest is {smallest}"
    return holds_if(set(best.values()) == {smallest}, text, results.numbers("count", best_p_b=best))


@ARTIFACT.judge
def fits_model_parallel_2(results: Results) -> Judgement:
    """We use a smaller model than before since we want to show performance for models that fit when the model-parallel
    size is only 2.
    """
    shallowest = [point for point in results.points if point.parameters["p"] == 2]
    out = [point.series for point in shallowest if point.status == "oom"]
    peaks = {point.series: results.value(point.key, "peak_memory") for point in shallowest if point.series not in out}
    text = "peak memory with p=2, t=1: " + listed(peaks, "{:.1f} GB", 1e9)
    text += f"; out of memory: {', '.join(out)}" if out else ""
    numbers = results.numbers("B", peak_memory_=dict(enumerate(peaks.values())))
    return holds_if(bool(peaks) and not out, text, numbers)


@ARTIFACT.judge
def three_batch_sizes(results: Results) -> Judgement:
    """Throughput per GPU of various parallel configurations that combine data and pipeline model parallelism using a
    GPT model with 5.9 billion parameters, three different batch sizes, microbatch size of 1, and 64 A100 GPUs.
    """
    sizes = sorted({row["B"] for row in published.rows("fig_pipeline_vs_data")})
    text = f"the plot and the authors' script have {len(sizes)} batch sizes: {', '.join(map(str, sizes))}"
    numbers = numbers_of("paper", "count", batch_sizes=len(sizes))
    return consistent_if(len(sizes) == 3, text, numbers)


size_claim(ARTIFACT, "model_size", three_batch_sizes, "Figure 14, caption (the size)", (("5.9", "B32_p2_d32"),))
