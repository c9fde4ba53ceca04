"""One training iteration of a configuration on a cluster: `simulate`."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, compress, product
from math import fsum

from ptdp_core.config import LayerKind, ParallelConfig, TrainingConfig
from ptdp_core.layout import (
    ACTIVATION,
    FP32,
    GRADIENT,
    WEIGHT,
    Boundary,
    RankKinds,
    kind_collectives,
    layer_passes,
    rank_kinds,
    rank_sizes,
    recomputation_gathers,
    vocabulary_exchanges,
)
from ptdp_core.schedules import TimelineEvent, definition
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel, cost_model
from ptdp_core.simulator.estimate import BUBBLE_CAUSES, PHASES, Estimate
from ptdp_core.simulator.executor import PICOSECONDS, Costs
from ptdp_core.simulator.memory import FP32_BYTES, fullest_memory
from ptdp_core.simulator.software import Software
from ptdp_core.simulator.stage_times import Stages, hidden_in_pair
from ptdp_core.simulator.steady_state import Flush, flush, kind_fronts, pipeline_timeline
from ptdp_core.simulator.step import after_the_flush, reduced_bytes
from ptdp_core.simulator.vocabulary_times import collective_seconds, pass_seconds
from ptdp_core.simulator.zero3 import communication_bytes, sharded_stages

# What the collectives of a step count as in `Estimate.traffic`, by their group.
USES = {"tp": "tensor", "dp": "data", "edp": "data", "embedding": "embedding"}


def simulate(
    config: TrainingConfig,
    cluster: Cluster,
    software: Software | None = None,
    *,
    timeline: bool = False,
    bubble_times: bool = False,
) -> Estimate:
    """Simulate one iteration: pipeline flush, data-parallel and embedding reduction, optimizer step.

    `software` is the training program's; the default is the cluster file's. With `timeline=True` the whole schedule is
    executed and the estimate holds every rank's timeline; otherwise long schedules use their periodic steady state,
    with the same result. `bubble_times=True` splits the bubble by cause, which executes the schedule twice more. For
    `recompute="auto"` the estimate's configuration has what the cluster's GPUs have room for.
    """
    model = cost_model(cluster, config.parallel.n, software)
    if config.parallel.recompute == "auto":
        # Imported here, because every command imports this module.
        from ptdp_core.simulator.peak_memory import least_recomputation

        config, _ = least_recomputation(config, model)
    parallel = config.parallel
    stages = sharded_stages(config, model) if parallel.data_parallel == "zero3" else model.stages(config)
    costs = pipeline_costs(model, config, stages)
    schedule = (parallel.schedule, parallel.p, parallel.m, parallel.v)
    pipeline = flush(*schedule, costs)
    flush_s = [end / PICOSECONDS for end in pipeline.ends]
    kinds = rank_kinds(config)
    reduction, steps, gathers = after_the_flush(model, config, stages)
    # The gradient norm joins all ranks of a model replica before any of them steps (clip_grad = 1.0).
    step_start = max(end + reduce for end, reduce in zip(flush_s, reduction, strict=True))
    last_step = max(step + gather for step, gather in zip(steps, gathers, strict=True))
    iteration_time = step_start + last_step + cluster.iteration_host_time

    communication = [reduce + gather for reduce, gather in zip(reduction, gathers, strict=True)]
    phases = _phases(config, cluster, iteration_time, stages, costs, pipeline, communication, steps)
    causes: dict[str, float] = {}
    if bubble_times:
        free = replace(costs, message=([0] * len(stages), [0] * len(stages)), gather=0, exchange=0, collectives={})
        without = flush(*schedule, free).ends
        saved = step_start - max(end / PICOSECONDS + reduce for end, reduce in zip(without, reduction, strict=True))
        message_waiting = saved - phases["pipeline_communication"]
        causes = _bubble_times(parallel, free, phases["bubble"], message_waiting)
    layer, fronts = model.layer_bytes(config), kind_fronts(*schedule, pipeline.executed, kinds.uneven, kinds.of)
    memory = fullest_memory(config, cluster, model.software, kinds, layer, fronts)
    peak = sum(memory.values())
    return Estimate(
        config=config,
        cluster=cluster.name,
        peak_flops=cluster.peak_flops,
        iteration_time=iteration_time,
        phase_times=phases,
        bubble_fraction=phases["bubble"] / fsum(phases[name] for name in PHASES[:4]),
        peak_memory=peak,
        memory_bytes=memory,
        traffic=_traffic(config, model, kinds),
        fits=peak <= cluster.usable_memory,
        bubble_times=causes,
        timeline=_timeline(config, cluster, costs, flush_s, reduction, step_start, steps, gathers) if timeline else (),
    )


def pipeline_costs(model: CostModel, config: TrainingConfig, stages: Stages) -> Costs:
    """What the passes and messages of the configuration take, in picoseconds."""
    (forward, backward, weight_gradient), (alone, shared, gather) = stages.picoseconds, model.messages(config)
    of_passes, of_collectives = (
        (pass_seconds(model, config), collective_seconds(model, config)) if config.parallel.vocabulary else ({}, {})
    )
    return Costs(
        forward=forward,
        backward=backward,
        message=(_in_picoseconds(alone), _in_picoseconds(shared)),
        gather=round(gather * PICOSECONDS),
        exchange=round(model.cluster.exchange_host_time * PICOSECONDS),
        weight_gradient=weight_gradient,
        hidden=_hidden(config.parallel, stages) if definition(config.parallel.schedule).fuses else {},
        vocabulary={kind: round(seconds * PICOSECONDS) for kind, seconds in of_passes.items()},
        collectives={kind: round(seconds * PICOSECONDS) for kind, seconds in of_collectives.items()},
    )


def _in_picoseconds(seconds: Sequence[float]) -> list[int]:
    """Times of which most are alike."""
    rounded = {time: round(time * PICOSECONDS) for time in set(seconds)}
    return list(map(rounded.__getitem__, seconds))


def _hidden(parallel: ParallelConfig, stages: Stages) -> dict[tuple[int, int], tuple[int, int]]:
    """What fused pairs of the passes of two stages on one rank hide, in picoseconds."""
    saved = {}
    for held in parallel.placement.stages:
        for f, b in product(held, held):
            of_forward, of_backward = hidden_in_pair(stages[f], stages[b])
            saved[f, b] = round(of_forward * PICOSECONDS), round(of_backward * PICOSECONDS)
    return saved


def _phases(
    config: TrainingConfig,
    cluster: Cluster,
    iteration_time: float,
    stages: Stages,
    costs: Costs,
    pipeline: Flush,
    data_parallel: Sequence[float],
    steps: Sequence[float],
) -> dict[str, float]:
    """The seconds of each phase, mean over pipeline ranks. The bubble is the rest of the iteration."""
    p, m = config.parallel.p, config.parallel.m
    phases = {phase: seconds * m / p for phase, seconds in stages.sums.items()}
    for phase, saved in zip(("forward", "backward"), pipeline.hidden, strict=True):
        phases[phase] -= saved / PICOSECONDS / p
    if costs.vocabulary:
        phases["embedding_and_logits"] += m * sum(costs.vocabulary.values()) / PICOSECONDS
    sharding = phases["data_parallel"]
    phases |= {
        "pipeline_communication": sum(pipeline.communication) / PICOSECONDS / p,
        "data_parallel": sharding + fsum(data_parallel) / p,
        "optimizer": fsum(steps) / p,
        "host": cluster.iteration_host_time + phases["host"],
    }
    phases["bubble"] = iteration_time - fsum(phases.values())
    return {name: phases[name] for name in PHASES}


def _bubble_times(parallel: ParallelConfig, free: Costs, bubble: float, message_waiting: float) -> dict[str, float]:
    """The bubble by cause, in seconds; `free` are the costs with messages that take no time."""

    def mean(times: Sequence[int]) -> list[int]:
        return [round(sum(times) / len(times))] * len(times)

    forward, backward, weights = mean(free.forward), mean(free.backward), mean(free.weight_gradient)
    saved = [mean([pair[part] for pair in free.hidden.values()]) for part in range(2)] if free.hidden else ([], [])
    hidden_in_pairs = dict(zip(free.hidden, zip(*saved, strict=True), strict=True))
    equal = replace(free, forward=forward, backward=backward, weight_gradient=weights, hidden=hidden_in_pairs)
    pipeline = flush(parallel.schedule, parallel.p, parallel.m, parallel.v, equal)
    of_vocabulary = parallel.m * sum(free.vocabulary.values())
    work = parallel.m * parallel.v * (forward[0] + backward[0]) + of_vocabulary - sum(pipeline.hidden) // parallel.p
    fill_and_drain = (max(pipeline.ends) - work) / PICOSECONDS
    times = (fill_and_drain, bubble - message_waiting - fill_and_drain, message_waiting)
    return dict(zip(BUBBLE_CAUSES, times, strict=True))


def _traffic(config: TrainingConfig, model: CostModel, kinds: RankKinds) -> dict[str, int]:
    """Bytes one GPU sends in an iteration, by use, on the rank that sends most: exact counts times sizes.

    'pipeline' are boundary tensors, and what pipeline ranks exchange that share the vocabulary.
    'tensor' are the collectives of the transformer layers (Section 3.2), of scatter/gather, those that gather
    distributed inputs of recomputed blocks, and that of gradients with sequence parallelism. 'context', with c > 1, are
    those of attention over the context-parallel group, and 'experts', with e > 1, those of tokens to their experts and
    back.
    """
    parallel, cluster, gradient_bytes = config.parallel, model.cluster, reduced_bytes(model, config)
    t, m = parallel.t, parallel.m
    boundary, groups = Boundary.of(config), parallel.groups
    bytes_of = dict.fromkeys((ACTIVATION, WEIGHT), cluster.element_bytes) | {GRADIENT: gradient_bytes, FP32: FP32_BYTES}

    def per_layer(group: str, kind: LayerKind | None = None) -> float:
        """Elements that a rank sends for a layer of a microbatch over one group."""
        return fsum([call.sent(groups[group].number) for call in chain(*layer_passes(config, group, kind=kind))])

    of_layers = [per_layer("tp", kind) if t > 1 else 0.0 for kind in config.model.layer_kinds]
    per_message = boundary.gather.sent(t) if boundary.gather else 0.0
    sent = {"pipeline": 0.0, "tensor": 0.0, "data": 0.0, "embedding": 0.0}
    shared = 0.0
    if parallel.vocabulary:
        calls = vocabulary_exchanges(config).values()
        shared = m * fsum(bytes_of[call.element] * call.sent(parallel.p) for call in calls)
    for sizes, layers, sends, once in zip(
        kinds.sizes, kinds.layers, kinds.sends, kind_collectives(config), strict=True
    ):
        regathered = 0.0
        if parallel.distribute_checkpointed_activations:
            regathered = fsum(call.sent(t) for length in sizes.chunks for call in recomputation_gathers(config, length))
        in_layers = sum([count * each for count, each in zip(layers, of_layers, strict=True)])
        messages = m * sends
        rank = {
            "pipeline": cluster.element_bytes * messages * boundary.message_elements + shared,
            "tensor": cluster.element_bytes * (m * (in_layers + regathered) + messages * per_message),
            "data": 0.0,
            "embedding": 0.0,
        }
        for call in once:
            ranks = groups[call.group].number if call.group in groups else 2  # those of a tied embedding's uses
            rank[USES[call.group]] += bytes_of[call.element] * call.sent(ranks)
        sent = {use: max(size, rank[use]) for use, size in sent.items()}
    if parallel.data_parallel == "zero3":
        sent["data"] += max(communication_bytes(config, model, sizes) for sizes in rank_sizes(config))
    if parallel.c > 1:
        of_layers = [per_layer("cp", kind) for kind in config.model.layer_kinds]
        most = max(sum(count * each for count, each in zip(held, of_layers, strict=True)) for held in kinds.layers)
        sent["context"] = cluster.element_bytes * m * most
    if parallel.e > 1:
        with_experts = [kind.experts for kind in config.model.layer_kinds]
        most_experts = max(sum(compress(held, with_experts)) for held in kinds.layers)
        sent["experts"] = cluster.element_bytes * m * per_layer("ep") * most_experts
    return {use: round(size) for use, size in sent.items()}


def _timeline(
    config: TrainingConfig,
    cluster: Cluster,
    costs: Costs,
    flush_s: Sequence[float],
    reduction: Sequence[float],
    step_start: float,
    steps: Sequence[float],
    gathers: Sequence[float],
) -> tuple[tuple[TimelineEvent[float], ...], ...]:
    parallel = config.parallel
    timeline = []
    for rank, row in enumerate(pipeline_timeline(parallel.schedule, parallel.p, parallel.m, parallel.v, costs)):
        events = [
            TimelineEvent(kind, action, start / PICOSECONDS, end / PICOSECONDS) for kind, action, start, end, _ in row
        ]
        if reduction[rank]:
            events.append(TimelineEvent("data_parallel", None, flush_s[rank], flush_s[rank] + reduction[rank]))
        step_end = step_start + steps[rank]
        events.append(TimelineEvent("optimizer", None, step_start, step_end))
        if gathers[rank]:
            events.append(TimelineEvent("data_parallel", None, step_end, step_end := step_end + gathers[rank]))
        events.append(TimelineEvent("host", None, step_end, step_end + cluster.iteration_host_time))
        timeline.append(tuple(events))
    return tuple(timeline)
