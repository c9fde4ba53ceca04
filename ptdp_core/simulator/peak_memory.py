"""The memory of a configuration on its fullest GPU, without executing its schedule."""

from collections.abc import Sequence
from functools import lru_cache

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import build, definition, stash_fronts
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import rank_memory
from ptdp_core.simulator.steady_state import short_batches
from ptdp_core.simulator.zero3 import zero3_memory


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
    return stash_fronts(build(name, p, m, v))


def peak_memory(config: TrainingConfig, model: CostModel) -> int:
    """Bytes of memory on the fullest GPU, as `simulate` computes them, without executing the schedule."""
    if config.parallel.data_parallel == "zero3":
        return sum(zero3_memory(config, model.cluster).values())
    return sum(fullest_memory(config, model, rank_stash_fronts(config)).values())


def fullest_memory(
    config: TrainingConfig, model: CostModel, stash_fronts: Sequence[Sequence[tuple[int, int]]]
) -> dict[str, int]:
    """The bytes by use on the fullest GPU at its peak, which is in its rank's `schedules.stash_fronts`."""
    sizes, last = model.rank_sizes(config), config.parallel.placement.last
    # Of ranks that are otherwise alike, only the one that stashes most is looked at.
    stashes: dict[tuple[int, int, bool, int], int] = {}
    for rank, front in enumerate(stash_fronts):
        for stash, deferred in front:
            alike = *sizes[rank], rank == last, deferred
            stashes[alike] = max(stash, stashes.get(alike, 0))
    return max(
        (
            rank_memory(config, model.cluster, count, layers, stash, computes_loss, model.software, deferred)
            for (count, layers, computes_loss, deferred), stash in stashes.items()
        ),
        key=lambda memory: sum(memory.values()),
    )


def fits(config: TrainingConfig, model: CostModel, cluster: Cluster) -> bool:
    """Whether the fullest GPU's memory suffices."""
    return peak_memory(config, model) <= cluster.usable_memory
