"""What is known of a configuration before its schedule is executed: its memory, exactly, and a bound on its time.

Both are cheap, so that a search need not simulate what does not fit or cannot win (`search.py`).
"""

from ptdp_core.config import TrainingConfig
from ptdp_core.layout import longest_chunk, rank_elements
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import rank_memory

# The executor rounds every duration to whole picoseconds; none is shorter than a microsecond.
_ROUNDING = 1e-6


def warmup_passes(config: TrainingConfig, rank: int) -> int:
    """Forward passes of a rank before its first backward pass follows a forward one (Section 2.2)."""
    parallel = config.parallel
    p, m, v = parallel.p, parallel.m, parallel.v
    if parallel.schedule == "gpipe" or (parallel.schedule == "interleaved" and m == p):
        return m * v
    if parallel.schedule == "interleaved":
        return min((p - rank - 1) * 2 + (v - 1) * p, m * v)
    return min(p - rank - 1, m)


def stash(config: TrainingConfig, rank: int) -> int:
    """Most microbatches of a chunk whose activations a rank holds at once: `schedules.peak_stash`, as a formula."""
    return min(warmup_passes(config, rank) + 1, config.parallel.m * config.parallel.v)


def peak_memory(config: TrainingConfig, model: CostModel) -> int:
    """Bytes of memory on the fullest GPU: what `simulate` finds, without executing the schedule.

    With equal stages the first rank has the most parameters and stashes most, the last computes the loss; no other has
    more than these.
    """
    last = config.parallel.p - 1
    equal = config.model.layers % (config.parallel.p * config.parallel.v) == 0
    parameters = rank_elements(config)
    return max(
        sum(
            rank_memory(
                config, model.cluster, parameters[rank], longest_chunk(config, rank), stash(config, rank), rank == last
            ).values()
        )
        for rank in ({0, last} if equal else range(last + 1))
    )


def fits(config: TrainingConfig, model: CostModel, cluster: Cluster) -> bool:
    """Whether the fullest GPU's memory suffices."""
    return peak_memory(config, model) <= cluster.usable_memory


def least_time(config: TrainingConfig, model: CostModel) -> float:
    """Seconds that an iteration takes at least: never more than `simulate` finds, and usually a few percent less.

    Take any pipeline rank R. Its first pass waits until stages 0 to R-1 have passed the first microbatch on. Then it
    computes all its passes, and receives their inputs in groups that it waits for. After its last pass stages R-1 to 0
    are still to come: with equal stages, (1 + (p-1)/(vm)) of the ideal time (Section 2.2). Then rank 0 reduces its
    gradients, all step, and the host adds its part.
    """
    parallel, cluster = config.parallel, model.cluster
    p, m = parallel.p, parallel.m
    stages = model.stages(config)
    forward, backward = [s.forward for s in stages], [s.backward for s in stages]
    crossing = set(model.boundaries_between_nodes(config))
    single, double = (
        min((model.message(config, between, k) for between in crossing), default=0.0) + cluster.exchange_host_time
        for k in (1, 2)
    )
    gather = model.gather(config)
    hop = single + gather
    flush = 0.0
    for rank in {0, max(p - 2, 0), p - 1}:
        alone, paired = _receives(config, rank)
        work = m * (sum(forward[rank::p]) + sum(backward[rank::p]))
        waits = alone * hop + paired * (double + 2 * gather)
        way = sum(forward[:rank]) + sum(backward[:rank]) + max(2 * rank - 1, 0) * hop
        flush = max(flush, way + work + waits)
    parameters = rank_elements(config)
    reduction = model.data_parallel(config, parameters[0], sum(backward[::p]))
    if p > 1:
        reduction += model.embedding_reduction(config)
    step = max(
        model.optimizer(config, count) + model.weight_gather(config, count) for count in {parameters[0], parameters[-1]}
    )
    return (flush + reduction + step + cluster.iteration_host_time) * (1 - _ROUNDING)


def _receives(config: TrainingConfig, rank: int) -> tuple[int, int]:
    """Groups in which a rank receives one tensor, and those in which it may receive two (an activation and a gradient).

    Only an interleaved steady state receives two at a time; the first stage receives no activation, the last no
    gradient.
    """
    parallel = config.parallel
    p, m, v = parallel.p, parallel.m, parallel.v
    if p == 1:
        return 0, 0
    activations = m * (v - 1 if rank == 0 else v)
    gradients = m * (v - 1 if rank == p - 1 else v)
    if v == 1:
        return activations + gradients, 0
    paired = min(activations, gradients, m * v - warmup_passes(config, rank) + 1)
    return activations + gradients - 2 * paired, paired
