"""What limits an iteration: one thing at a time is changed, and the tokens per second are compared.

Each change is simulated, of the cluster's numbers or of the configuration; nothing is extrapolated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ptdp_core.config import ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.schedules import default_schedule
from ptdp_core.simulator import Cluster, Estimate, simulate
from ptdp_core.simulator.network import NETWORK, NVLINK
from reproduce.output.columns import Column, Table, key
from reproduce.planning.cells import SPLIT_SCHEDULES
from reproduce.planning.space import divisors
from reproduce.planning.time_shares import time_shares

MORE_MEMORY = 16e9
PRODUCTS = ("peak_flops", "fp8_peak_flops", "fp4_peak_flops")
HOST = "the host"  # whose numbers are seconds, not rates
# What an iteration may be bound by, and the cluster's numbers that say how fast it is.
RATES: Mapping[str, Sequence[str]] = {
    "the network": NETWORK,
    "NVLink": NVLINK,
    "matrix products": PRODUCTS,
    "memory bandwidth": ("memory_bandwidth",),
    HOST: ("host_per_call", "iteration_host_time", "exchange_host_time"),
}
FASTER = 1.1  # by so much each is tried
LEAST_SHARE = 0.01  # of the time: what has less is not told
BAR = 30  # characters of the longest bar


def elasticities(estimate: Estimate, cluster: Cluster) -> list[dict[str, Any]]:
    """Every change with what it makes of the tokens per second: as a fraction more, the largest gain first.

    A change of the configuration that is not legal is left out; one that does not fit in memory is said to be so.
    """
    base = estimate.sequences_per_s
    found = []
    for change, kind, config, changed in _changes(estimate.config, cluster):
        other = simulate(config, changed)
        found.append(
            {
                "change": change,
                "of": kind,
                "iteration_time": other.iteration_time,
                "faster_by": other.sequences_per_s / base - 1,
                "fits": other.fits,
            }
        )
    return sorted(found, key=lambda row: -row["faster_by"])


def _changes(config: TrainingConfig, cluster: Cluster) -> Iterator[tuple[str, str, TrainingConfig, Cluster]]:
    """What is changed, of what it is ('cluster' or 'configuration'), and both with the change."""
    for change, numbers, factor in (
        ("network x2", NETWORK, 2),
        ("NVLink x2", NVLINK, 2),
        ("GEMM rate +10%", PRODUCTS, 1.1),
        ("memory bandwidth x2", ("memory_bandwidth",), 2),
    ):
        yield change, "cluster", config, _scaled(cluster, numbers, factor)
    # A configuration that fits gains from more memory only by recomputing less, so that is what is compared.
    roomy = replace(cluster, memory_bytes=cluster.memory_bytes + MORE_MEMORY)
    yield "least recomputation that fits", "configuration", _least_recomputation(config, cluster), cluster
    yield "memory +16 GB, least recomputation", "cluster", _least_recomputation(config, roomy), roomy
    for change, parallel in _configurations(config):
        yield change, "configuration", replace(config, parallel=parallel), cluster


def _least_recomputation(config: TrainingConfig, cluster: Cluster) -> TrainingConfig:
    """What fits and is faster: the configuration, whose modules may be others, or what recompute='auto' makes of it."""
    automatic = _legal(config, recompute="auto", recompute_modules="core_attn")
    if automatic is None:
        return config
    tried = [simulate(each, cluster) for each in (replace(config, parallel=automatic), config)]
    return min(tried, key=lambda each: (not each.fits, each.iteration_time)).config


def _scaled(cluster: Cluster, numbers: Sequence[str], factor: float) -> Cluster:
    return replace(cluster, **{name: factor * getattr(cluster, name) for name in numbers})


def what_limits(estimate: Estimate, cluster: Cluster) -> str:
    """Where an iteration's time goes, the largest parts, and which rates of the cluster it is bound by, on one line.

    A rate's share is how much of the time is in proportion to it, by a simulation in which it is a tenth higher.
    """
    seconds = estimate.iteration_time

    def largest(shares: Mapping[str, float]) -> str:
        order = sorted(shares, key=lambda name: -shares[name])
        return ", ".join(f"{name} {shares[name]:.0%}" for name in order[:3] if shares[name] >= LEAST_SHARE)

    bound = {}
    for what, numbers in RATES.items():
        faster = simulate(estimate.config, _scaled(cluster, numbers, 1 / FASTER if what == HOST else FASTER))
        bound[what] = (1 - faster.iteration_time / seconds) / (1 - 1 / FASTER)
    parts = {use: part / seconds for use, part in time_shares(estimate, cluster).items()}
    return f"spent on {largest(parts)}; bound by {largest(bound) or 'latencies'}"


def _configurations(config: TrainingConfig) -> Iterator[tuple[str, ParallelConfig]]:
    """The legal neighbours of a configuration: another batch, microbatch size, v or schedule."""
    parallel = config.parallel
    usual = default_schedule(parallel.v)
    yield "batch x2", replace(parallel, B=2 * parallel.B)
    for more in range(1, parallel.p + 1):  # an interleaved schedule needs a multiple of p
        if (bigger := _legal(config, B=parallel.B + more * parallel.d * parallel.b)) is not None:
            yield f"{more} more microbatch{'es' * (more > 1)}", bigger
            break
    for b in (parallel.b // 2, 2 * parallel.b):
        if b and (other := _legal(config, b=b)) is not None:
            yield f"b={b}", other
    for v in divisors(config.model.all_layers // parallel.p):
        if parallel.p > 1 and v != parallel.v and parallel.schedule == usual:
            other = _legal(config, v=v, schedule=default_schedule(v))
            if other is not None:
                yield f"v={v}", other
    for schedule in SPLIT_SCHEDULES if parallel.p > 1 else ():
        if schedule == parallel.schedule:
            continue
        for v in (1, 2):
            if (other := _legal(config, schedule=schedule, v=v)) is not None:
                yield f"{schedule}, v={v}", other


def _legal(config: TrainingConfig, **changed: Any) -> ParallelConfig | None:
    """The parallelisation with these values, None if it is not legal."""
    try:
        return replace(config, parallel=replace(config.parallel, **changed)).parallel
    except ConfigurationError:
        return None


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """The changes as a table with bars."""
    largest = max((abs(row["faster_by"]) for row in rows), default=0.0) or 1.0

    def bar(row: dict[str, Any]) -> str:
        length = round(BAR * abs(row["faster_by"]) / largest)
        return ("+" if row["faster_by"] > 0 else "-") * length

    return Table(
        [
            Column("change", lambda row: row["change"] + ("" if row["fits"] else " (does not fit)")),
            Column("iteration", key("iteration_time"), "s", ".3f"),
            Column("tokens/s", key("faster_by"), "%", "+z.1f", 0.01),
            Column("gain or loss", bar),
        ],
        rows,
    )
