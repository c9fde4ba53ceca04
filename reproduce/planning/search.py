"""Searches for the best way to train a model on n GPUs, by simulation, and follows the paper's takeaways (Section 3).

The best configuration is the fastest one that leaves room: a GPU keeps the `headroom` of its memory free. Of those
whose times differ by no more than `NEAR_TIE` the one that leaves more tenths of it free comes first (`ranked`).

`search` considers every legal configuration (`cells.py`), best first by a lower bound on its time: cells of
configurations whose layers have the same work, then, with what is recomputed, families of those with the same passes,
then a family's with one schedule, then its members (`bounds.py`). It stops when all bounds are above the time up to
which the N best depend on what else there is (`settled_to`): the N best are the same as if all had been simulated. The
result says how many were left out, and why.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain, count, product
from typing import Any, NamedTuple

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator.bounds import family_least_memory, family_least_time, least_time, schedule_least_time
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel, cost_model
from ptdp_core.simulator.estimate import Estimate
from ptdp_core.simulator.kernels import FP16_BYTES
from ptdp_core.simulator.peak_memory import fits, kind_stash_fronts, of_fullest, peak_memory
from ptdp_core.simulator.simulate import simulate
from ptdp_core.simulator.steady_state import least_passes, no_collection
from reproduce.planning.cells import (
    PAPERS_TECHNIQUES,
    TECHNIQUES,
    Cell,
    Family,
    Techniques,
    cells,
    configurations,
    families,
)
from reproduce.planning.space import LARGEST_TENSOR_GROUP_NODES, TrainingJob, divisors

# Passes of the part of a schedule that has to be executed, at 1 to 10 us each, tables included. Up to 64 pipeline ranks
# and 2,048 microbatches no schedule has more.
MAX_PASSES = 4_000_000
_ROUNDING = 1e-6  # durations are whole picoseconds
# The share of the memory to fill that a configuration should leave free: peaks are less sure than times.
HEADROOM = 0.10
# Times that differ by no more are taken as equal: it is far inside the margin of a ratio of two (docs/margins.md).
NEAR_TIE = 0.02


def order(estimate: Estimate) -> tuple[float, ...]:
    """A sorting key: the fastest first; of equally fast ones the one with less memory, then with smaller sizes."""
    parallel = estimate.config.parallel
    sizes = (parallel.p, parallel.t, parallel.v, parallel.b)
    return (estimate.iteration_time, estimate.peak_memory, *sizes, parallel.recompute == "none")


def is_tight(estimate: Estimate, cluster: Cluster, headroom: float) -> bool:
    """Whether a configuration leaves less than this share of the memory that can be filled free."""
    return estimate.peak_memory > (1 - headroom) * cluster.usable_memory


def tenths_free(estimate: Estimate, cluster: Cluster) -> int:
    """The whole tenths of the memory to fill that a configuration leaves free: smaller differences are no risk."""
    return int(10 * (1 - estimate.peak_memory / cluster.usable_memory))


def ranked(estimates: Iterable[Estimate], cluster: Cluster, headroom: float = HEADROOM) -> tuple[Estimate, ...]:
    """Configurations that fit, the best first: those that leave room, then the tight ones.

    Of each kind the fastest makes a group with all that are no more than `NEAR_TIE` slower, in which those that leave
    most tenths of their memory free come first, the fastest before the others; what is slower makes further groups.
    """
    best: list[Estimate] = []
    kinds: tuple[list[Estimate], list[Estimate]] = ([], [])
    for estimate in sorted(estimates, key=order):
        kinds[is_tight(estimate, cluster, headroom)].append(estimate)
    for kind in kinds:
        times, first = [estimate.iteration_time for estimate in kind], 0
        while first < len(kind):
            last = bisect_right(times, times[first] * (1 + NEAR_TIE))
            best += sorted(kind[first:last], key=lambda estimate: (-tenths_free(estimate, cluster), *order(estimate)))
            first = last
    return tuple(best)


def settled_to(times: Sequence[float], top: int) -> float:
    """The seconds up to which all configurations that leave room have to be known, so that the `top` best are.

    It is where the group of near-ties ends that holds the last of them; `times`, ascending, are those known. What takes
    longer joins no group up to there, and makes none of these begin elsewhere. Infinite if too few are known.
    """
    known, end = 0, float("inf")
    while known < top:
        if known == len(times):
            return float("inf")
        end = times[known] * (1 + NEAR_TIE)
        known = bisect_right(times, end)
    return end


@dataclass(frozen=True)
class Search:
    """The result of a search.

    - `ranked`: the configurations that were simulated, the best first (`search.ranked`). All that take at most
      `complete_to_s` seconds are among them: up to there the place of one that leaves room is its rank among all that
      are legal and fit. That of tight ones, which are the `tight` last, is so only if nothing was left out
    - of the `legal` configurations some were found `too_large` for the memory, some `too_long` to be executed, some
      were simulated, and the others were `discarded`: their least possible time is above `complete_to_s`
    """

    job: TrainingJob
    ranked: tuple[Estimate, ...]
    legal: int
    too_large: int
    too_long: int
    tight: int
    complete_to_s: float

    @property
    def discarded(self) -> int:
        """The number of configurations that were left out by the bound on their time."""
        return self.legal - self.too_large - self.too_long - len(self.ranked)

    def rank(self, config: TrainingConfig) -> int | None:
        """The place of a configuration among all that fit, from 1; None if the search is not complete up to it."""
        roomy = len(self.ranked) - self.tight
        for rank, estimate in enumerate(self.ranked, 1):
            if estimate.config == config:
                complete = estimate.iteration_time <= self.complete_to_s and (rank <= roomy or not self.discarded)
                return rank if complete else None
        return None


@no_collection()
def search(
    job: TrainingJob,
    cluster: Cluster,
    top: int = 3,
    techniques: Techniques = TECHNIQUES,
    prune: bool = True,
    on_step: Callable[[int], None] = lambda done: None,
    headroom: float = HEADROOM,
) -> Search:
    """The `top` best legal configurations by simulated time, and by the memory that they leave free (`ranked`).

    `techniques` are those that may be used: `PAPERS_TECHNIQUES` leaves out what came after the paper. `prune=False`
    simulates everything that fits. `on_step(done)` is called after each simulation. Nothing is found, which is no
    error, if nothing is legal or nothing fits.
    """
    model, tie = cost_model(cluster, job.n), count()
    waiting: list[tuple[float, int, Cell | tuple[Cell, Mapping[str, Any]] | Family | TrainingConfig]] = []
    legal = too_large = too_long = 0
    full: set[Hashable] = set()  # columns of cells of which no larger microbatch fits
    for cell in cells(job, cluster.gpus_per_node, _possible(cluster, techniques)):
        legal += len(cell)
        if cell.column in full or cell_is_full(cell, model):
            full.add(cell.column)
            too_large += len(cell)
        else:
            heappush(waiting, (cell_least_time(cell, cell.example, model), next(tie), cell))
    estimates: list[Estimate] = []
    roomy: list[float] = []  # the times of those that leave room
    complete = float("inf")
    while waiting:
        least, _, first = heappop(waiting)
        if prune and least > (settled := settled_to(roomy, top)):
            complete = settled
            break
        if isinstance(first, Cell):
            for recomputed in first.recomputed:
                bound = cell_least_time(first, first.recomputing(recomputed), model)
                heappush(waiting, (max(least, bound), next(tie), (first, recomputed)))
        elif isinstance(first, tuple):
            for family in first[0].families(first[1]):
                if all(family_least_memory(config, model) > cluster.usable_memory for config in family.frugal):
                    too_large += len(family)
                else:
                    bound = family_least_time(family.frugal[0], model)
                    heappush(waiting, (max(least, bound), next(tie), family))
        elif isinstance(first, Family) and len(first.schedules) > 1:
            for family in first.by_schedule():
                bound = schedule_least_time(family.frugal[0], model)
                heappush(waiting, (max(least, bound), next(tie), family))
        elif isinstance(first, Family):
            if first_rank_is_full(first, model):
                too_large += len(first)
                continue
            for config in first:
                heappush(waiting, (max(least, least_time(config, model)), next(tie), config))
        elif is_too_long(first):
            too_long += 1
        elif not fits(first, model, cluster):
            too_large += 1
        else:
            estimates.append(simulate(first, cluster))
            if not is_tight(estimates[-1], cluster, headroom):
                insort(roomy, estimates[-1].iteration_time)
            on_step(len(estimates))
    best, tight = ranked(estimates, cluster, headroom), len(estimates) - len(roomy)
    return Search(job, best, legal, too_large, too_long, tight, complete)


def _possible(cluster: Cluster, techniques: Techniques) -> Techniques:
    """The techniques, and FSDP where the cluster's program has it."""
    return (*techniques, "fsdp") if cluster.software.fsdp else techniques


def cell_least_time(cell: Cell, example: TrainingConfig, model: CostModel) -> float:
    """A lower bound on the seconds of all configurations of a cell that recompute what the example does.

    All GPUs of a pipeline together do all the work of its batch, so the one with most at least the mean.
    """
    parallel, (stage,) = example.parallel, model.stages(example)
    sequences = cell.job.B * parallel.t * parallel.c / cell.job.n
    work = (stage.forward + stage.backward) * sequences / parallel.b
    return (work + model.cluster.iteration_host_time) * (1 - _ROUNDING)


def cell_is_full(cell: Cell, model: CostModel) -> bool:
    """Whether what a GPU keeps of a layer, and works with, does not fit, for all of a cell and larger microbatches."""
    room = model.cluster.usable_memory * FP16_BYTES / model.cluster.element_bytes
    layers = (model.layer_bytes(cell.recomputing(recomputed)) for recomputed in cell.recomputed)
    return all(layer.kept + layer.working > room for layer in layers)


def first_rank_is_full(family: Family, model: CostModel) -> bool:
    """Whether none of the configurations of a family with one schedule fits the GPUs of the first pipeline rank."""
    for config in family.frugal:
        if is_too_long(config):
            return False
        if of_fullest(config, model, kind_stash_fronts(config)[:1]) <= model.cluster.usable_memory:
            return False
    return True


def is_too_long(config: TrainingConfig) -> bool:
    """Whether a search leaves a configuration out since too much of its schedule has to be executed."""
    parallel = config.parallel
    return least_passes(parallel.schedule, parallel.p, parallel.m, parallel.v) > MAX_PASSES


class MemoryFit(NamedTuple):
    """A model-parallel size M = t*p and the least bytes of memory that any microbatch size takes with it."""

    p: int
    t: int
    d: int
    memory_bytes: int
    fits: bool


@dataclass(frozen=True)
class Takeaways:
    """The choice of the paper's takeaways: M from the `sizes` tried in their order, then b from `microbatches`.

    The estimates of `microbatches` are sorted, the slowest last. Both are empty where there was nothing to try;
    `chosen` is None if nothing fits.
    """

    sizes: tuple[MemoryFit, ...]
    microbatches: tuple[Estimate, ...]

    @property
    def chosen(self) -> Estimate | None:
        """The configuration that the takeaways choose."""
        return min(self.microbatches, key=order, default=None)


def takeaways(job: TrainingJob, cluster: Cluster) -> Takeaways:
    """Follow the paper's heuristics (Sections 3.2 to 3.4). They do not choose v and recomputation: v = 1, and it is on.

    Takeaway 1: tensor parallelism up to the GPUs of a node, then pipeline parallelism. Takeaway 2: the smallest such
    M = t*p whose parameters and activations fit in memory, then data parallelism. Takeaway 3: the best microbatch
    size depends on all of these, so each that fits is tried.
    """
    model = cost_model(cluster, job.n)
    plain = [
        config
        for config in configurations(job, cluster.gpus_per_node, PAPERS_TECHNIQUES)
        if config.parallel.v == 1 and config.parallel.recompute == "full" and config.parallel.t <= cluster.gpus_per_node
    ]
    largest = max((config.parallel.t for config in plain), default=0)
    by_size: dict[tuple[int, int], list[TrainingConfig]] = {}
    for config in plain:
        if config.parallel.t == largest or config.parallel.p == 1:
            by_size.setdefault((config.parallel.t, config.parallel.p), []).append(config)
    sizes: list[MemoryFit] = []
    for (t, p), configs in sorted(by_size.items()):
        least = min(peak_memory(config, model) for config in configs)
        sizes.append(MemoryFit(p, t, job.n // (p * t), least, least <= cluster.usable_memory))
        if sizes[-1].fits:
            inside = [c for c in configs if fits(c, model, cluster) and not is_too_long(c)]
            return Takeaways(tuple(sizes), tuple(simulate(config, cluster) for config in inside))
    return Takeaways(tuple(sizes), ())


def least_memory(
    job: TrainingJob, cluster: Cluster, techniques: Techniques = TECHNIQUES
) -> tuple[int, TrainingConfig] | None:
    """The legal configuration that takes the least memory, and its bytes; None if nothing is legal."""
    model, possible = cost_model(cluster, job.n), _possible(cluster, techniques)
    legal = families(job, cluster.gpus_per_node, possible)
    needs = ((peak_memory(config, model), config) for family in legal for config in _frugal(family))
    return min(needs, key=lambda need: need[0], default=None)


def _frugal(family: Family) -> Iterator[TrainingConfig]:
    """The members of a family that may take the least memory of all: the smallest microbatches, a sharded optimizer."""
    if family.shared["b"] == 1 and family.shared["recompute"] == "full":
        members = chain.from_iterable(each.frugal for each in family.by_schedule())
        yield from (config for config in members if not is_too_long(config))


def nearest_gpus(job: TrainingJob, cluster: Cluster, techniques: Techniques = TECHNIQUES) -> int | None:
    """The number of GPUs nearest to n on which some legal configuration fits, the smaller of two; None if none does."""
    model, per_node, possible = cost_model(cluster, job.n), cluster.gpus_per_node, _possible(cluster, techniques)
    sizes = (range(1, LARGEST_TENSOR_GROUP_NODES * per_node + 1), divisors(job.model.all_layers), divisors(job.B))
    for n in sorted({t * p * d for t, p, d in product(*sizes)}, key=lambda n: (abs(n - job.n), n)):
        for family in families(replace(job, n=n), per_node, possible):
            if all(family_least_memory(config, model) > cluster.usable_memory for config in family.frugal):
                continue
            if any(fits(config, model, cluster) for config in _frugal(family)):
                return n
    return None
