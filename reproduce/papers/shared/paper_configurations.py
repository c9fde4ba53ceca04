"""Claims of the first paper judged on configurations of its models that no figure shows, or on their memory."""

from ptdp_core import formulas
from ptdp_core.simulator.memory import GRADIENT_BYTES, OPTIMIZER_BYTES, WEIGHT_BYTES
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, listed, numbers_of
from reproduce.experiment.sized import model_of
from reproduce.papers.shared import paper_points
from reproduce.papers.shared.paper_models import GPT_3, table_1
from reproduce.papers.shared.whole_paper import ARTIFACT, SLOWER

STATE_BYTES = WEIGHT_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES  # of a parameter
GPU_BYTES = 80e9

ARTIFACT.judge_told(__name__)


@ARTIFACT.judge
def pipeline_for_larger_models(results: Results) -> Judgement:
    points = results.of(paper_points.IN_A_SERVER)
    fit = [point.label for point in points if point.status == "ok"]
    peaks = {p.label: metric.value for p in points if (metric := p.metrics.get("peak_memory")) and metric.value}
    text = f"{', '.join(fit) or 'none'} of {len(points)} fit; GB a GPU: {listed(peaks, '{:.0f}', 1e9)}"
    return holds_if(bool(points) and not fit, text, results.numbers("count", fit=len(fit)))


@ARTIFACT.judge
def slower_links_hinder(results: Results) -> Judgement:
    speeds, slower = (results.series(paper_points.PARTITIONINGS, name, "t") for name in (q.THROUGHPUT, SLOWER))
    as_it_ran = min(speeds)
    others = {f"t={t}": speed for t, speed in speeds.items() if t != as_it_ran}
    others[f"t={as_it_ran}, half the bandwidth"] = slower[as_it_ran]
    text = f"teraFLOP/s per GPU: {speeds[as_it_ran] / 1e12:.1f} as it ran; {listed(others, '{:.1f}', 1e12)}"
    numbers = results.numbers(largest_share=max(others.values()) / speeds[as_it_ran])
    return holds_if(max(others.values()) < speeds[as_it_ran], text, numbers)


@ARTIFACT.judge
def less_optimized_partitioning(results: Results) -> Judgement:
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


@ARTIFACT.judge
def data_communication_same_for_b(results: Results) -> Judgement:
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


@ARTIFACT.judge
def every_model_fits(results: Results) -> Judgement:
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


def _sharded(results: Results, metric: str) -> tuple[float, float]:
    """A metric with every replica's own optimizer, and with the sharded one."""
    whole, shard = (results.value(point.key, metric) for point in results.of(paper_points.SHARDED))
    return whole, shard


@ARTIFACT.judge
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


@ARTIFACT.judge
def needs_both_kinds(results: Results) -> Judgement:
    model = model_of(table_1()[-1].parameters)
    states = STATE_BYTES * formulas.parameters(model)
    sizes = {f"p={model.layers}": states / model.layers, f"t={model.heads}": states / model.heads}
    text = f"GB of states a GPU with one of them alone: {listed(sizes, '{:.0f}', 1e9)}; a GPU has {GPU_BYTES / 1e9:.0f}"
    return holds_if(min(sizes.values()) > GPU_BYTES, text, numbers_of("derived", "B", states=sizes))


@ARTIFACT.judge
def data_parallelism_needs_memory(results: Results) -> Judgement:
    states = STATE_BYTES * formulas.parameters(model_of(published.model(GPT_3)))
    text = f"states of {states / 1e12:.2f} TB on every GPU, which has {GPU_BYTES / 1e9:.0f} GB"
    return holds_if(states > GPU_BYTES, text, numbers_of("derived", "B", states=states))
