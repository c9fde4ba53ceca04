"""The memory of a configuration on its fullest GPU, without executing its schedule."""

from collections.abc import Sequence
from functools import lru_cache
from math import inf

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import definition, stash_fronts
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import RankSizes, moment_bytes, rank_memory
from ptdp_core.simulator.steady_state import no_collection, short_batches


def rank_stash_fronts(config: TrainingConfig) -> Sequence[Sequence[tuple[int, int]]]:
    """`schedules.stash_fronts` of every rank: by the schedule's formula where there is one, else from its table."""
    parallel = config.parallel
    return _stash_fronts(parallel.schedule, parallel.p, parallel.m, parallel.v)


@lru_cache(maxsize=4096)
def _stash_fronts(name: str, p: int, m: int, v: int) -> Sequence[Sequence[tuple[int, int]]]:
    schedule = definition(name)
    if schedule.splits or schedule.stash is None:
        # The longest batch but the whole is in the steady state, in which no longer one holds more at once.
        return _table_fronts(name, p, short_batches(name, p, m, v)[-2:][0], v)
    return [[(stash, 0)] for stash in schedule.stash(p, m, v)]


@lru_cache(maxsize=512)
def _table_fronts(name: str, p: int, m: int, v: int) -> Sequence[Sequence[tuple[int, int]]]:
    with no_collection():
        return stash_fronts(definition(name).table(p, m, v))  # not `build`, which would keep all of its objects


def peak_memory(config: TrainingConfig, model: CostModel) -> int:
    """Bytes of memory on the fullest GPU, as `simulate` computes them, without executing the schedule."""
    return sum(fullest_memory(config, model, rank_stash_fronts(config)).values())


def fullest_memory(
    config: TrainingConfig, model: CostModel, stash_fronts: Sequence[Sequence[tuple[int, int]]]
) -> dict[str, int]:
    """The bytes by use on the fullest GPU at its peak, which is in its rank's `schedules.stash_fronts`."""
    sizes, last, layer = model.rank_sizes(config), config.parallel.placement.last, model.layer_bytes(config)
    # Of ranks that are otherwise alike, only the one that holds most is looked at.
    moments: dict[tuple[RankSizes, bool], set[tuple[int, int]]] = {}
    for rank, front in enumerate(stash_fronts):
        moments.setdefault((sizes[rank], rank == last), set()).update(front)
    memories = []
    for (of_rank, computes_loss), held in moments.items():
        stash, deferred = next(iter(held))
        if len(held) > 1:
            stashed, put_off = moment_bytes(config, model.cluster, of_rank.layers, computes_loss, layer)
            stash, deferred = max(sorted(held), key=lambda moment: moment[0] * stashed + moment[1] * put_off)
        memories.append(
            rank_memory(config, model.cluster, of_rank, layer, stash, computes_loss, model.software, deferred)
        )
    return max(memories, key=lambda memory: sum(memory.values()))


def fits(config: TrainingConfig, model: CostModel, cluster: Cluster) -> bool:
    """Whether the fullest GPU's memory suffices."""
    return _most_memory(config, model) <= cluster.usable_memory or peak_memory(config, model) <= cluster.usable_memory


def _most_memory(config: TrainingConfig, model: CostModel) -> float:
    """An upper bound on `peak_memory` by the formula of a schedule with split passes, without its table.

    The formula bounds the microbatches stashed and deferred together, so that one moment with all of them stashed, and
    one with all of them deferred, bound all moments. Infinite for other schedules.
    """
    parallel, schedule = config.parallel, definition(config.parallel.schedule)
    if schedule.stash is None or not schedule.splits:
        return inf
    fronts = [[(stash, 0), (0, stash)] for stash in schedule.stash(parallel.p, parallel.m, parallel.v)]
    return sum(fullest_memory(config, model, fronts).values())
