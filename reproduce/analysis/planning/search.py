"""Searches for the best way to train a model on n GPUs, by simulation, and follows the paper's takeaways (Section 3).

`search` considers every legal configuration (`space.py`), best first by a lower bound on its time: families of
configurations with the same passes, then their members (`bounds.py`). It stops when no bound is below the time of the
N-th best so far: the N best are the same as if all had been simulated. The result says how many were left out, and why.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, product
from math import fsum
from typing import NamedTuple

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import definition
from ptdp_core.simulator import operators
from ptdp_core.simulator.bounds import family_least_memory, family_least_time, fits, least_time, peak_memory
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.estimate import Estimate
from ptdp_core.simulator.network import tensor_group
from ptdp_core.simulator.simulate import simulate
from ptdp_core.simulator.steady_state import least_passes, short_batches
from reproduce.analysis.planning.space import (
    LARGEST_TENSOR_GROUP_NODES,
    PAPERS_TECHNIQUES,
    TECHNIQUES,
    Family,
    Techniques,
    TrainingJob,
    configurations,
    divisors,
    families,
)

# Passes of the part of a schedule that has to be executed, at about 10 us each, cold; and passes that it may come to
# before it settles, where the groups of messages have to be derived first, at about 50 us each.
MAX_PASSES, MAX_DERIVED = 100_000, 12_000


def order(estimate: Estimate) -> tuple[float, ...]:
    """A sorting key: the fastest first; of equally fast ones the one with less memory, then with smaller sizes."""
    parallel = estimate.config.parallel
    sizes = (parallel.p, parallel.t, parallel.v, parallel.b)
    return (estimate.iteration_time, estimate.peak_memory, *sizes, parallel.recompute == "none")


@dataclass(frozen=True)
class Search:
    """The result of a search.

    - `ranked`: the configurations that were simulated, the best first. All that take at most `complete_to_s` seconds
      are among them, so that up to there a position is the rank among everything that is legal and fits
    - of the `legal` configurations some were found `too_large` for the memory, some `too_long` to be executed, some
      were simulated, and the others were `discarded`: their least possible time is above `complete_to_s`
    """

    job: TrainingJob
    ranked: tuple[Estimate, ...]
    legal: int
    too_large: int
    too_long: int
    complete_to_s: float

    @property
    def discarded(self) -> int:
        """The number of configurations that were left out by the bound on their time."""
        return self.legal - self.too_large - self.too_long - len(self.ranked)

    def rank(self, config: TrainingConfig) -> int | None:
        """The place of a configuration among all that fit, from 1; None if the search is not complete up to it."""
        for rank, estimate in enumerate(self.ranked, 1):
            if estimate.config == config and estimate.iteration_time <= self.complete_to_s:
                return rank
        return None


def search(
    job: TrainingJob,
    cluster: Cluster,
    top: int = 3,
    techniques: Techniques = TECHNIQUES,
    prune: bool = True,
    on_step: Callable[[int], None] = lambda done: None,
) -> Search:
    """The `top` best legal configurations by simulated time.

    `techniques` are those that may be used: `PAPERS_TECHNIQUES` leaves out what came after the paper. `prune=False`
    simulates everything that fits. `on_step(done)` is called after each simulation. Nothing is found, which is no
    error, if nothing is legal or nothing fits.
    """
    model, tie = CostModel(cluster), count()
    waiting: list[tuple[float, int, Family | TrainingConfig]] = []
    legal = too_large = too_long = 0
    for family in families(job, cluster.gpus_per_node, techniques):
        legal += len(family)
        if family_least_memory(family.frugal, model) <= cluster.usable_memory:
            heappush(waiting, (family_least_time(family.frugal, model), next(tie), family))
        else:
            too_large += len(family)
    estimates: list[Estimate] = []
    times: list[float] = []
    while waiting:
        least, _, first = heappop(waiting)
        if prune and len(times) >= top and least > times[top - 1]:
            break
        if isinstance(first, Family):
            for config in first:
                heappush(waiting, (max(least, least_time(config, model)), next(tie), config))
        elif is_too_long(first):
            too_long += 1
        elif not fits(first, model, cluster):
            too_large += 1
        else:
            estimates.append(simulate(first, cluster))
            insort(times, estimates[-1].iteration_time)
            on_step(len(estimates))
    complete = times[top - 1] if waiting else float("inf")
    return Search(job, tuple(sorted(estimates, key=order)), legal, too_large, too_long, complete)


def is_too_long(config: TrainingConfig) -> bool:
    """Whether a search leaves a configuration out since too much of its schedule has to be executed."""
    parallel, schedule = config.parallel, definition(config.parallel.schedule)
    if schedule.exchanges != "derived":
        return least_passes(parallel.schedule, parallel.p, parallel.m, parallel.v) > MAX_PASSES
    longest = short_batches(schedule.name, parallel.p, parallel.m, parallel.v)[-2:][0]
    return schedule.passes(parallel.p, longest, parallel.v) > MAX_DERIVED


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
    model = CostModel(cluster)
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


def least_memory(job: TrainingJob, cluster: Cluster) -> tuple[int, TrainingConfig] | None:
    """The legal configuration that takes the least memory, and its bytes; None if nothing is legal."""
    model = CostModel(cluster)
    needs = ((peak_memory(c, model), c) for family in families(job, cluster.gpus_per_node) for c in _frugal(family))
    return min(needs, key=lambda need: need[0], default=None)


def _frugal(family: Family) -> Iterator[TrainingConfig]:
    """The members of a family that may take the least memory of all: the smallest microbatches, a sharded optimizer."""
    if family.shared["b"] == 1:
        members = (family.member(schedule, family.sharding[-1]) for schedule in family.schedules)
        yield from (config for config in members if not is_too_long(config))


def nearest_gpus(job: TrainingJob, cluster: Cluster) -> int | None:
    """The number of GPUs nearest to n on which some legal configuration fits, the smaller of two; None if none does."""
    model, per_node = CostModel(cluster), cluster.gpus_per_node
    sizes = (range(1, LARGEST_TENSOR_GROUP_NODES * per_node + 1), divisors(job.model.layers), divisors(job.B))
    for n in sorted({t * p * d for t, p, d in product(*sizes)}, key=lambda n: (abs(n - job.n), n)):
        for family in families(replace(job, n=n), per_node):
            if family_least_memory(family.frugal, model) > cluster.usable_memory:
                continue
            if any(fits(config, model, cluster) for config in _frugal(family)):
                return n
    return None


def time_shares(estimate: Estimate, cluster: Cluster) -> dict[str, float]:
    """The seconds of the iteration by use, mean over pipeline ranks. They add up to the iteration.

    `Estimate.phase_times`, with the collectives of tensor parallelism (Section 2.3) taken out of their passes.
    """
    config, phases = estimate.config, estimate.phase_times
    model, parallel = config.model, config.parallel
    costs, group = CostModel(cluster), tensor_group(parallel.t, cluster.gpus_per_node)

    def communicates(work: Callable[..., operators.Work]) -> float:
        sequence_parallel = parallel.sequence_parallel
        return costs.communication(work(model, parallel.b, parallel.t, sequence_parallel=sequence_parallel), group)

    layers = model.layers * parallel.m / parallel.p  # layers that a GPU passes a microbatch through
    forward, backward = map(communicates, (operators.layer_forward, operators.layer_backward))
    ends = fsum(map(communicates, operators.ENDS))
    again = layers * forward if parallel.recompute == "full" else 0.0
    tensor = layers * (forward + backward) + ends * parallel.m / parallel.p
    passes = phases["forward"] + phases["backward"] + phases["embedding_and_logits"]
    return {
        "computation": passes - tensor,
        "recomputation": phases["recompute"] - again,
        "tensor-parallel communication": tensor + again,
        "pipeline communication": phases["pipeline_communication"],
        "bubble": phases["bubble"],
        "data-parallel communication": phases["data_parallel"],
        "optimizer": phases["optimizer"],
        "host": phases["host"],
    }


def time_differences(one: Estimate, other: Estimate, cluster: Cluster) -> dict[str, float]:
    """Seconds by which `one` spends more than `other` on each of `time_shares`, the largest difference first."""
    here, there = time_shares(one, cluster), time_shares(other, cluster)
    differences = {use: here[use] - there[use] for use in here}
    return dict(sorted(differences.items(), key=lambda item: -abs(item[1])))
