"""The memory of a configuration on its fullest GPU, without executing its schedule, and what to recompute to fit it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from ptdp_core.config import TrainingConfig
from ptdp_core.layout import rank_kinds, rank_sizes
from ptdp_core.schedules import Moment, definition
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import fullest_memory, layer_bytes, rank_memory
from ptdp_core.simulator.software import Software
from ptdp_core.simulator.steady_state import joined, kind_fronts, rank_fronts


def rank_stash_fronts(config: TrainingConfig) -> Sequence[Sequence[Moment]]:
    """The `rank_fronts` of a configuration's schedule."""
    parallel = config.parallel
    return rank_fronts(parallel.schedule, parallel.p, parallel.m, parallel.v, chunks=rank_kinds(config).uneven)


def peak_memory(config: TrainingConfig, model: CostModel) -> int:
    """Bytes of memory on the fullest GPU, as `simulate` computes them, without executing the schedule."""
    return of_fullest(config, model, kind_stash_fronts(config))


def kind_stash_fronts(config: TrainingConfig) -> Sequence[Sequence[Moment]]:
    """The `kind_fronts` of a configuration's schedule, that of the first rank first."""
    parallel, kinds = config.parallel, rank_kinds(config)
    return kind_fronts(parallel.schedule, parallel.p, parallel.m, parallel.v, 0, kinds.uneven, kinds.of)


def of_fullest(config: TrainingConfig, model: CostModel, fronts: Sequence[Iterable[Moment]]) -> int:
    """Bytes of memory on the fullest GPU of the first kinds of ranks (`RankKinds`), those whose fronts are given."""
    kinds, layer = rank_kinds(config), model.layer_bytes(config)
    return sum(fullest_memory(config, model.cluster, model.software, kinds, layer, fronts).values())


def rank_memories(
    config: TrainingConfig, cluster: Cluster, stash_fronts: Sequence[Iterable[Moment]], software: Software
) -> list[dict[str, int]]:
    """The bytes by use on a GPU of each pipeline rank at its memory peak, which is in its `schedules.stash_fronts`."""
    sizes, layer = rank_sizes(config), layer_bytes(config)
    last = config.parallel.placement.last
    return [
        rank_memory(config, cluster, sizes[rank], layer, front, rank == last, software)
        for rank, front in enumerate(stash_fronts)
    ]


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
    return of_fullest(config, model, joined(fronts, rank_kinds(config).of))


def least_recomputation(config: TrainingConfig, model: CostModel) -> tuple[TrainingConfig, dict[str, int]]:
    """The configuration with the least recomputation that fits a GPU's memory, and the peak in bytes of each tried.

    If nothing fits, whole layers are recomputed. Unless `recompute` is 'auto', nothing is tried.
    """
    peaks: dict[str, int] = {}
    for recompute in _choices(config):
        config = replace(config, parallel=replace(config.parallel, recompute=recompute))
        peaks[recompute] = peak_memory(config, model)
        if peaks[recompute] <= model.cluster.usable_memory:
            break
    return config, peaks


def _choices(config: TrainingConfig) -> tuple[str, ...]:
    """What 'auto' may be, the fastest first; selective recomputation has no effect where no scores are written."""
    parallel = config.parallel
    if parallel.recompute != "auto":
        return ()
    if parallel.distribute_checkpointed_activations:
        return ("full",)
    choices = ("none", "selective", "full") if config.writes_scores() else ("none", "full")
    return choices[:-1] if parallel.offloaded_modules else choices
