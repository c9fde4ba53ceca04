"""Claims of the first paper judged on configurations of its models that no figure shows, or on their memory."""

from ptdp_core import formulas
from ptdp_core.simulator.memory import GRADIENT_BYTES, OPTIMIZER_BYTES, WEIGHT_BYTES
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, listed, numbers_of
from reproduce.papers.sc21 import fig_tensor_vs_pipeline
from reproduce.papers.shared import paper_points
from reproduce.papers.shared.paper_models import GPT_3, model_of, table_1
from reproduce.papers.shared.whole_paper import ARTIFACT, SLOWER

STATE_BYTES = WEIGHT_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES  # of a parameter
GPU_BYTES = 80e9


@ARTIFACT.claim(
    "limitation a): Table 1's 1.7B model at B = 512 on Selene with data parallelism alone, each GPU's share as one "
    "microbatch: with 1 sequence a GPU (512 GPUs) against 16 (32 GPUs), FLOP/s inside the GEMMs are lower and the "
    "exposed gradient all-reduce takes a larger share of the iteration, by any amount; that it 'usually works well' "
    "is not tested",
    "Section 1 (data parallelism)",
    rule="direction",
)
def data_parallel_scale_out(results: Results) -> Judgement:
    """Data-parallel scale-out usually works well, but suffers from two limitations: a) beyond a point, the per-GPU
    batch size becomes too small, reducing GPU utilization and increasing communication cost, [...]
    """
    rates = results.series(paper_points.DATA_PARALLEL, q.GEMM_RATE, "d")
    exposed, times = (
        results.series(paper_points.DATA_PARALLEL, name, "d") for name in (q.DATA_PARALLEL_TIME, "iteration_time")
    )
    shares = {d: exposed[d] / times[d] for d in exposed}
    few, many = min(rates), max(rates)
    text = (
        f"by GPUs: teraFLOP/s inside GEMMs {listed(rates, '{:.0f}', 1e12)}; exposed all-reduce's share of the "
        f"iteration {listed(shares, '{:.1%}')}"
    )
    numbers = results.numbers(share_d=shares)
    return holds_if(rates[many] < rates[few] and shares[many] > shares[few], text, numbers)


@ARTIFACT.claim(
    "'pipeline model parallelism must be used for larger models': none of Table 1's models with p > 1 fits "
    "one server of eight 80 GB A100s with tensor parallelism alone (t=8, p=1, one sequence, every layer "
    "recomputed), as simulated; with pipeline parallelism they were run; that tensor parallelism is effective "
    "within a server is tested by fig_tensor_vs_pipeline.tensor_best_within_node",
    "Section 1 (pipeline parallelism)",
    rule="counted",
    by="simulated",
)
def pipeline_for_larger_models(results: Results) -> Judgement:
    """[...] tensor model parallelism is effective within a multi-GPU server, but pipeline model parallelism must be
    used for larger models.
    """
    points = results.of(paper_points.IN_A_SERVER)
    fit = [point.label for point in points if point.status == "ok"]
    peaks = {p.label: metric.value for p in points if (metric := p.metrics.get("peak_memory")) and metric.value}
    text = f"{', '.join(fit) or 'none'} of {len(points)} fit; GB a GPU: {listed(peaks, '{:.0f}', 1e9)}"
    return holds_if(bool(points) and not fit, text, results.numbers("count", fit=len(fit)))


@ARTIFACT.claim(
    "our reading of 'slower inter-node interconnects' as half their bandwidth, and of 'more communication-intensive "
    "partitionings' as twice and four times the tensor-parallel size, whose groups then span nodes (t = 16 and 32, "
    "with half and a quarter of the stages, d as before): Table 1's 1T model on 3072 GPUs of Selene, as simulated, "
    "has lower throughput with each than as it ran; 'scaling' is tested on this one number of GPUs",
    "Section 1 (the interconnects)",
    rule="ours",
)
def slower_links_hinder(results: Results) -> Judgement:
    """Using slower inter-node interconnects or more communication-intensive partitionings would hinder scaling
    performance.
    """
    speeds, slower = (results.series(paper_points.PARTITIONINGS, name, "t") for name in (q.THROUGHPUT, SLOWER))
    as_it_ran = min(speeds)
    others = {f"t={t}": speed for t, speed in speeds.items() if t != as_it_ran}
    others[f"t={as_it_ran}, half the bandwidth"] = slower[as_it_ran]
    text = f"teraFLOP/s per GPU: {speeds[as_it_ran] / 1e12:.1f} as it ran; {listed(others, '{:.1f}', 1e12)}"
    numbers = results.numbers(largest_share=max(others.values()) / speeds[as_it_ran])
    return holds_if(max(others.values()) < speeds[as_it_ran], text, numbers)


@ARTIFACT.claim(
    "a less-optimized partitioning is, in our reading, one with larger t: Table 1's 1T model on 3072 GPUs of Selene, "
    "as simulated: with twice and four times the tensor-parallel size (t = 16 and 32, with half and a quarter of "
    "the stages, d as before) a GPU sends more bytes to other nodes (counted), and throughput is lower; 'scaling' is "
    "tested on this one number of GPUs",
    "Section 5.9 (the partitioning)",
    rule="ours",
)
def less_optimized_partitioning(results: Results) -> Judgement:
    """A less-optimized partitioning of operators across devices would lead to more inter-node communication, hampering
    scaling performance.
    """
    speeds, pipeline, data, tensor = (
        results.series(paper_points.PARTITIONINGS, name, "t")
        for name in (q.THROUGHPUT, "pipeline_traffic", "data_traffic", "tensor_traffic")
    )
    node = published.gpus_per_node()
    # One in `node` of a tensor ring's links leaves a node, if the ring does.
    sent = {t: pipeline[t] + data[t] + (tensor[t] / node if t > node else 0.0) for t in speeds}
    text = (
        f"GB that a GPU sends to other nodes, by t: {listed(sent, '{:.0f}', 1e9)}; teraFLOP/s "
        f"{listed(speeds, '{:.1f}', 1e12)}"
    )
    as_it_ran, *others = sorted(speeds)
    holds = all(sent[t] > sent[as_it_ran] and speeds[t] < speeds[as_it_ran] for t in others)
    return holds_if(holds, text)


@ARTIFACT.claim(
    "by construction, in the simulator as in the engine, so that 'holds' is no evidence: over the microbatch sizes b "
    "from 1 to 16 the bytes of the gradient all-reduce, counted, are equal, for Figure 16's model (91B, t = p = 8) "
    "on 64 d GPUs, at each d of 2, 4, 8 and 16 and both batch sizes (128 and 512)",
    "Section 3.4 (the amount)",
    rule="counted",
    by="counted",
)
def data_communication_same_for_b(results: Results) -> Judgement:
    """The amount of data-parallel communication will be the same regardless of the microbatch size."""
    sent: dict[tuple[int, int], set[float]] = {}
    for point in results.of(paper_points.BY_D):
        if point.parameters["d"] > 1 and point.status == "ok":
            case = point.parameters["d"], point.parameters["B"]
            sent.setdefault(case, set()).add(results.value(point.key, "data_traffic"))
    if not sent:
        raise MissingResultError("no point with d > 1 fits in memory")
    differ = [case for case, sizes in sent.items() if len(sizes) > 1]
    text = f"equal bytes for every b in {len(sent) - len(differ)} of {len(sent)} cases of d and B"
    return holds_if(not differ, text)


@ARTIFACT.claim(
    "every plotted configuration of Figures 13 to 16 (64 GPUs) fits in a GPU's 80 GB, as simulated; the other "
    "microbenchmarks are not tested",
    "Section 5 (the models)",
    rule="counted",
    by="simulated",
)
def every_model_fits(results: Results) -> Judgement:
    """In particular, for any given microbenchmark, the model needs to fit on the number of model-parallel GPUs used in
    the experiment.
    """
    figures = {
        "fig_tensor_vs_pipeline": paper_points.TENSOR_VS_PIPELINE,
        "fig_pipeline_vs_data": paper_points.MODEL_PARALLEL,
        "fig_tensor_vs_data": paper_points.MODEL_PARALLEL,
        "fig_microbatch": paper_points.BY_MODEL,
    }
    plotted = [p for id, series in figures.items() for p in results.of(series) if published.values(id, p.parameters)]
    out = [point.label for point in plotted if point.status != "ok"]
    text = f"out of memory: {'; '.join(out)}" if out else f"all {len(plotted)} fit"
    return holds_if(bool(plotted) and not out, text, results.numbers("count", plotted=len(plotted), fit_not=len(out)))


@ARTIFACT.claim(
    "'tensor model parallelism in isolation': Figure 13's model (162.2B) on 64 GPUs with t=64, p=1, as simulated, is "
    "slower than (t, p) = (8, 8) at both batch sizes (32 and 128); pipeline parallelism alone cannot use 64 GPUs, as "
    "the model has 32 layers, and is not tested; the figure's ends: fig_tensor_vs_pipeline.both_in_conjunction",
    "Section 5.4.1 (in isolation)",
    sentence=fig_tensor_vs_pipeline.both_in_conjunction,
    rule="direction",
)
def tensor_in_isolation(results: Results) -> Judgement:
    node = published.gpus_per_node()
    alone = results.series(paper_points.IN_ISOLATION, q.THROUGHPUT, "B")
    both = {
        point.parameters["B"]: results.value(point.key, q.THROUGHPUT)
        for point in results.of(paper_points.TENSOR_VS_PIPELINE)
        if point.parameters["t"] == node
    }
    shares = {B: speed / both[B] for B, speed in alone.items()}
    text = f"throughput with tensor parallelism alone over that of (8, 8), by batch size: {listed(shares, '{:.0%}')}"
    return holds_if(max(shares.values()) < 1, text, results.numbers(share_b=shares))


def _sharded(results: Results, metric: str) -> tuple[float, float]:
    """A metric with every replica's own optimizer, and with the sharded one."""
    whole, shard = (results.value(point.key, metric) for point in results.of(paper_points.SHARDED))
    return whole, shard


@ARTIFACT.claim(
    "advantage (a), which holds by construction of the counts, so that 'holds' is no evidence: Figure 14's fastest "
    "configuration, (p, d) = (2, 32) on 64 GPUs, with a sharded optimizer against without: a GPU sends as many bytes "
    "for data parallelism, counted, or fewer; advantage (b) is tested by sharded_optimizer_cost",
    "Section 6 (the communication)",
    rule="counted",
    by="counted",
)
def sharded_optimizer_communication(results: Results) -> Judgement:
    """This method has two advantages: (a) it does not introduce extra communication over vanilla data parallelism, and
    (b) it divides the optimizer's computation and memory cost across the data-parallel partitions.
    """
    whole, shard = _sharded(results, "data_traffic")
    text = f"{whole / 1e9:.2f} GB of a GPU without, {shard / 1e9:.2f} GB with a sharded optimizer"
    return holds_if(shard <= whole, text, results.numbers("B", replicated=whole, sharded=shard))


@ARTIFACT.claim(
    "advantage (b), our reading of 'divides' as by d: Figure 14's fastest configuration, (p, d) = (2, 32) on 64 "
    "GPUs, with a sharded optimizer against without: the optimizer step takes 1/d of its time, within 10%, by "
    "construction of the simulator, so that this half is no evidence, and the fullest GPU has less memory by at "
    "least 1 - 1/d of the optimizer's states; advantage (a) is tested by sharded_optimizer_communication",
    "Section 6 (the cost)",
    sentence=sharded_optimizer_communication,
    rule="ours",
)
def sharded_optimizer_cost(results: Results) -> Judgement:
    (whole, shard), (peak, less) = (_sharded(results, name) for name in ("optimizer_time", "peak_memory"))
    first = results.of(paper_points.SHARDED)[0].parameters
    states = OPTIMIZER_BYTES * formulas.parameters(model_of(first)) / (first["p"] * first["t"])
    text = (
        f"optimizer step {whole * 1e3:.1f} ms without, {shard * 1e3:.1f} ms sharded over d={first['d']}; peak memory "
        f"{peak / 1e9:.1f} and {less / 1e9:.1f} GB, of {states / 1e9:.1f} GB of optimizer states"
    )
    numbers = results.numbers(time_share=shard / whole, memory_saved=(peak - less) / states)
    divided = abs(shard * first["d"] / whole - 1) <= 0.10
    return holds_if(divided and peak - less >= (1 - 1 / first["d"]) * states, text, numbers)


@ARTIFACT.claim(
    "our reading, by memory alone: weights, gradients and optimizer states of Table 1's largest model (16 bytes a "
    "parameter) exceed 80 GB a GPU with the most that either has alone, a stage for each layer (128) or a tensor rank "
    "for each head (160); other reasons why past systems cannot are not tested",
    "Section 1 (past systems)",
    fidelity="derived",
    rule="ours",
    by="counted",
)
def needs_both_kinds(results: Results) -> Judgement:
    r"""[...] past systems~\cite{shoeybi2019megatron, narayanan2019pipedream} cannot train such large models since they
    do not combine pipeline and tensor parallelism.
    """
    model = model_of(table_1()[-1].parameters)
    states = STATE_BYTES * formulas.parameters(model)
    sizes = {f"p={model.layers}": states / model.layers, f"t={model.heads}": states / model.heads}
    text = f"GB of states a GPU with one of them alone: {listed(sizes, '{:.0f}', 1e9)}; a GPU has {GPU_BYTES / 1e9:.0f}"
    return holds_if(min(sizes.values()) > GPU_BYTES, text, numbers_of("derived", "B", states=sizes))


@ARTIFACT.claim(
    "reason a), 'insufficient memory capacity', for GPT-3: its weights, gradients and optimizer states (16 bytes a "
    "parameter) exceed the 80 GB of one GPU; reason b), the batch size, is tested by data_parallel_to_1536; that data "
    "parallelism can lead to efficient scaling by fig_pipeline_vs_data.data_parallelism_to_scale",
    "Section 5.4.3 (the memory)",
    fidelity="derived",
    rule="counted",
)
def data_parallelism_needs_memory(results: Results) -> Judgement:
    """We should note that although data parallelism can lead to efficient scaling, we cannot use data parallelism in
    isolation for very large models with a limited training batch size because of a) insufficient memory capacity, [...]
    """
    states = STATE_BYTES * formulas.parameters(model_of(published.model(GPT_3)))
    text = f"states of {states / 1e12:.2f} TB on every GPU, which has {GPU_BYTES / 1e9:.0f} GB"
    return holds_if(states > GPU_BYTES, text, numbers_of("derived", "B", states=states))
