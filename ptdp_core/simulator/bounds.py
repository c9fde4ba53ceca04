"""Lower bounds on the time of a configuration, without executing its schedule.

They are cheap, so that a search need not simulate a configuration that cannot win (`search.py`). For configurations
that differ in schedule and sharding alone, time and memory are bounded at once, which is cheaper still.
"""

from functools import lru_cache
from operator import add

from ptdp_core.config import TrainingConfig, kept
from ptdp_core.layout import rank_kinds, rank_sizes
from ptdp_core.schedules import MESSAGES_AT_ONCE, definition, wave
from ptdp_core.simulator.costs import NOT_IN_PASSES, CostModel, fields_but
from ptdp_core.simulator.executor import PICOSECONDS
from ptdp_core.simulator.memory import rank_memory
from ptdp_core.simulator.stage_times import Stages
from ptdp_core.simulator.step import of_rank

# The executor rounds every duration to whole picoseconds; none is shorter than a microsecond.
_ROUNDING = 1e-6
# The bound on a flush depends on what passes do, on the schedule, on m and, as messages may leave a node, on d.
_of_flush = fields_but(NOT_IN_PASSES - {"d", "schedule"})


def family_least_memory(config: TrainingConfig, model: CostModel) -> int:
    """A lower bound on the bytes of all configurations that are as this one but for schedule and sharding.

    The rank of the first stage holds one microbatch of its longest chunk at least. `config` has the fewest bytes of
    model states of them all (`Family.frugal`).
    """
    sizes, layer = rank_sizes(config)[config.parallel.placement.first], model.layer_bytes(config)
    memory = rank_memory(config, model.cluster, sizes, layer, [(1, 0)], False, model.software)
    return sum(memory.values())


def family_least_time(config: TrainingConfig, model: CostModel) -> float:
    """A lower bound on the seconds of all configurations that are as this one but for schedule and sharding.

    The pipeline rank with most work computes all of it, in the placement in which that is least.
    """
    parallel = config.parallel
    p, v = parallel.p, parallel.v
    work = model.stages(config).each(lambda stage: stage.forward + stage.backward)
    looped_most = max(sum(work[rank::p]) for rank in range(p))
    most = looped_most if v == 1 else min(looped_most, max(sum(work[s] for s in held) for held in wave(p, v).stages))
    return (parallel.m * most + model.cluster.iteration_host_time) * (1 - _ROUNDING)


def least_time(config: TrainingConfig, model: CostModel) -> float:
    """A lower bound on the seconds of an iteration, usually a few percent below the time that `simulate` computes.

    Take any pipeline rank R, whose first stage is g. Its first pass waits until stages 0 to g-1 have sent the first
    microbatch on. Then it computes all its passes, and waits for the groups in which it receives their inputs. After
    its last pass the backward passes of stages g-1 to 0 follow: with equal stages this adds up to (1 + (p-1)/(vm)) of
    the ideal time (Section 2.2). Then the rank of stage 0 reduces its gradients, all ranks step, and the host adds its
    part. Where backward passes are split, R's last pass may be a W, so that what follows it is not counted; but if the
    schedule's own formula covers its bubble, the time with the shortest passes and no messages is a bound, too. Any
    rank may end last then, and the one that reduces least is taken.
    """
    placement, stages, sizes = config.parallel.placement, model.stages(config), rank_sizes(config)
    splits = definition(config.parallel.schedule).splits
    ranks = rank_kinds(config).ranks if splits else dict.fromkeys((placement.first, placement.last))
    once = [of_rank(model, config, stages, rank, sizes[rank]) for rank in ranks]
    reductions, steps, gathers = zip(*once, strict=True)
    reduction, step = min(reductions) if splits else reductions[0], max(map(add, steps, gathers))
    flush = _least_flush(model, config)
    return (flush + reduction + step + model.cluster.iteration_host_time) * (1 - _ROUNDING)


def schedule_least_time(config: TrainingConfig, model: CostModel) -> float:
    """A lower bound on the seconds of all configurations that are as this one but for sharding: their flush alone."""
    return (_least_flush(model, config) + model.cluster.iteration_host_time) * (1 - _ROUNDING)


@kept(lambda model, config: (model, config.parallel.m, *_of_flush(config)))
def _least_flush(model: CostModel, config: TrainingConfig) -> float:
    """A lower bound on the seconds of the pipeline flush, by the first part of `least_time`."""
    parallel, placement = config.parallel, config.parallel.placement
    p, m = parallel.p, parallel.m
    stages = model.stages(config)
    forward, backward = stages.seconds
    forward_before, backward_before = stages.seconds_before
    *wire, gather = model.messages(config)
    single, double = (min(times, default=0.0) + model.cluster.exchange_host_time for times in wire)
    hop = single + gather
    flush = _formula_time(config, stages)
    schedule = definition(parallel.schedule)
    for rank in {placement.first, max(p - 2, 0), p - 1}:
        alone, paired = _receives(parallel.schedule, p, m, parallel.v, rank)
        work = m * sum(forward[stage] + backward[stage] for stage in placement.stages[rank])
        if schedule.fuses:  # all all-to-alls may be hidden
            held = [stages[stage] for stage in placement.stages[rank]]
            work -= m * sum(2 * stage.exchange + stage.recomputed_exchange for stage in held)
        # Which receives are paired is known by the stash, where passes are split on the first rank only.
        waits = 0.0 if schedule.splits and rank != placement.first else alone * hop + paired * (double + 2 * gather)
        first = placement.stages[rank][0]
        hops = placement.crossings[first]
        way = forward_before[first] + max(hops - 1, 0) * hop
        if not schedule.splits:
            way += backward_before[first] + hops * hop
        flush = max(flush, way + work + waits)
    return flush


def _formula_time(config: TrainingConfig, stages: Stages) -> float:
    """Seconds of the pipeline flush by the formula of a schedule with split passes; 0 where it covers these not.

    Every stage is as fast as the fastest: a table's execution takes no longer if a pass gets shorter.
    """
    parallel, schedule = config.parallel, definition(config.parallel.schedule)
    if not schedule.splits or schedule.bubble is None or (schedule.fuses and parallel.e > 1):
        return 0.0
    forward, weights, inputs = (
        int(min(getattr(stage, part) for stage in stages.alike[0]) * PICOSECONDS)
        for part in ("forward", "weight_gradient", "input_gradient")
    )
    if weights > min(forward, inputs):
        return 0.0
    p, m, v = parallel.p, parallel.m, parallel.v
    bubble = schedule.bubble(p, m, v, forward, inputs + weights, weights)
    return 0.0 if bubble is None else float(m * v * (forward + inputs + weights) + bubble) / PICOSECONDS


@lru_cache(maxsize=4096)
def _receives(name: str, p: int, m: int, v: int, rank: int) -> tuple[int, int]:
    """The numbers of groups in which a rank receives one tensor, and two (an activation and a gradient).

    It may receive two only in a steady state with 'slots'. The groups of 'derived' exchanges are not known before
    these are derived, and none of them is counted.
    """
    schedule, placement = definition(name), definition(name).placement(p, v)
    if schedule.exchanges == "derived":
        return 0, 0
    activations, gradients = (
        m * sum([crosses[stage] for stage in placement.stages[rank]])
        for crosses in (placement.received, placement.sent)
    )
    paired = min(activations, gradients) if MESSAGES_AT_ONCE[schedule.exchanges] > 2 else 0
    if schedule.stash is not None:  # as many pairs of an F and a B as follow the warm-up
        paired = min(paired, m * v - schedule.stash(p, m, v)[rank] + 2)
    return activations + gradients - 2 * paired, paired
