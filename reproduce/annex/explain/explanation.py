"""Why a measured iteration takes as long as it does: single causes that would explain it, and the gap to another run.

A cause is one change of the simulated machine, program or configuration. That of a rate has a size, which is fitted so
that the simulated time is the measured one, as far as a size is plausible; a switch is either on or off. Causes are
ranked by `Cause.score`. A run that is as fast as simulated has none; of a time that no GPU could do only what is
counted can be the cause.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from itertools import chain, combinations
from math import exp, factorial, log
from pathlib import Path
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.formulas import model_flops_per_iteration
from ptdp_core.simulator import PAPER, Cluster, simulate
from ptdp_core.simulator.cluster import with_program
from ptdp_core.simulator.network import NETWORK, NVLINK
from ptdp_core.simulator.programs import load_program, program_names
from reproduce.annex.explain.throughput_lines import Measurement
from reproduce.experiment import margins
from reproduce.planning.advice import as_typed
from reproduce.planning.lengths import applied

MOST_PLAYERS = 12  # differences whose 2^n coalitions are all simulated
LEAST = 0.02  # of a gap that a cause explains, to be one
ACCOUNTING = 0.15  # a log's FLOPs per token farther from the model's than this are counted otherwise


class NamedCause(NamedTuple):
    """A cause with a name, a row of explanation.toml."""

    decided_by: str
    usual: float = 0.0
    most: float = 0.0
    numbers: tuple[str, ...] = ()


LINKS = {"network": NETWORK, "NVLink": NVLINK}
CAUSES = {
    name: NamedCause(**{"numbers": LINKS.get(name, ()), **row})
    for name, row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
RATES = {name: known for name, known in CAUSES.items() if known.numbers}
SOCKETS = 30.0  # by which a network is slower whose messages go through TCP sockets in place of RDMA
SLOWER_ONLY = ("power cap", "straggler")
LEAST_SAMPLE = 64  # tokens
# How unusual a configuration is that differs in sizes: those of a run, and those of a model, which is known.
OF_RUN, OF_MODEL = 1.5, 3.0


@dataclass(frozen=True)
class Cause:
    """One change that would make the simulated iteration take `seconds`.

    `explained` is its share of the gap between the simulated and the measured time, of their logarithms. `score` is
    the square of how far it leaves the time from the measured one, in margins beyond the first, and of how unusual it
    is, as of normally distributed errors: 0 is likely. A log that contradicts itself has -1.
    """

    name: str
    change: str
    seconds: float
    explained: float
    score: float
    decided_by: str


@dataclass(frozen=True)
class Explanation:
    """A measured iteration time beside the simulated one, and what would explain it, best first.

    `low` and `high` are the interval; None where the cluster's errors are not known, and `tolerance` is then Selene's.
    """

    measured: float
    simulated: float
    low: float | None
    high: float | None
    tolerance: float
    causes: tuple[Cause, ...]

    @property
    def inside(self) -> bool:
        """Whether the measured time is as near to the simulated one as the simulator is sure."""
        return 1 / self.tolerance <= self.measured / self.simulated <= self.tolerance

    @property
    def deciding(self) -> str | None:
        """The measurement that would decide between the first two causes; None with fewer than two."""
        if len(self.causes) < 2:
            return None
        return self.causes[0].decided_by


def explain(config: TrainingConfig, cluster: Cluster, measurement: Measurement) -> Explanation:
    """What would explain a measurement of `config` on `cluster`."""
    simulated = simulate(config, cluster).iteration_time
    measured = measurement.iteration_time(config, cluster.peak_flops)
    known, scored = margins.read(cluster.name), margins.read("selene")
    assert scored is not None
    margin = (known or scored).throughput
    if config.parallel.data_parallel == "zero3":
        margin = (known or scored).zero3
    of = _Measured(config, cluster, simulated, measured, scored.throughput.factor)
    interval = margin.interval(simulated) if known else None
    low, high = (interval.low, interval.high) if interval else (None, None)
    found = Explanation(measured, simulated, low, high, margin.factor, tuple(_accounting(of, measurement)))
    if found.inside:
        return found
    others: Iterable[Cause] = _packing(of)
    if utilization(config, cluster, measured) <= 1:
        others = chain(others, _programs(of), _rates(of), _times(of), _switches(of), _fields(of))
    causes = [*found.causes, *(cause for cause in others if cause.explained > LEAST)]
    return replace(found, causes=tuple(sorted(causes, key=lambda cause: (cause.score, -cause.explained))))


@dataclass(frozen=True)
class _Measured:
    """What every cause is judged against."""

    config: TrainingConfig
    cluster: Cluster
    simulated: float
    measured: float
    margin: float

    @property
    def gap(self) -> float:
        return log(self.measured / self.simulated)

    def cause(self, name: str, change: str, seconds: float, unusual: float) -> Cause:
        left = abs(log(self.measured / seconds))
        explained = 1 - left / abs(self.gap) if self.gap else 0.0
        score = max(0.0, left / log(self.margin) - 1) ** 2 + unusual**2
        decided_by = CAUSES[name].decided_by if name in CAUSES else f"whether the run has {change}"
        return Cause(name, change, seconds, explained, score, decided_by)


def _accounting(of: _Measured, measurement: Measurement) -> Iterator[Cause]:
    """A log whose rate and time contradict each other: it counts FLOPs of another model, or not all parameters.

    Or a time in which no GPU can do what the configuration has to.
    """
    if (share := utilization(of.config, of.cluster, of.measured)) > 1:
        change = f"{share:.0%} of the GPUs' peak: B, seq, the model or the number of GPUs is another"
        yield Cause("accounting", change, of.measured, 0.0, -1.0, CAUSES["accounting"].decided_by)
        return
    implied = measurement.flops_per_token(of.config, of.cluster.peak_flops)
    if implied is None:
        return
    parallel, model = of.config.parallel, of.config.model
    counted = model_flops_per_iteration(model, parallel.B) / (parallel.B * model.seq)
    if abs(log(implied / counted)) > ACCOUNTING:
        change = f"the log counts {implied / 1e9:.3g} GFLOP a token, the model has {counted / 1e9:.3g}"
        yield Cause("accounting", change, of.measured, 0.0, -1.0, CAUSES["accounting"].decided_by)


def _rates(of: _Measured) -> Iterator[Cause]:
    """Rates that are lower, or higher, by the factor that explains the time, as far as that is plausible."""
    for name, rate in RATES.items():
        if (name == "network" and of.config.parallel.n <= of.cluster.gpus_per_node) or (
            name in SLOWER_ONLY and of.gap < 0
        ):
            continue

        def seconds(factor: float, numbers: tuple[str, ...] = rate.numbers) -> float:
            slower: dict[str, Any] = {number: getattr(of.cluster, number) / factor for number in numbers}
            return simulate(of.config, replace(of.cluster, **slower)).iteration_time

        factor, reached = _fitted(seconds, of.measured, rate.most if of.gap > 0 else 1 / rate.most)
        change = f"{name} at 1/{factor:.3g}" if factor > 1 else f"{name} x{1 / factor:.3g}"
        if name == "straggler":
            change = f"the slowest GPU {factor - 1:.0%} slower"
        if name == "power cap":
            change = f"the GPUs' clocks at {1 / factor:.0%}"
        yield of.cause(name, change, reached, abs(log(factor)) / log(rate.usual))
        if name == "network" and of.gap > 0:
            yield of.cause(name, f"{name} through TCP sockets, at 1/{SOCKETS:.0f}", seconds(SOCKETS), 2.0)


def _times(of: _Measured) -> Iterator[Cause]:
    """What may only take longer: the host's data, tokens that a rank's experts have more, and kernels of experts."""
    if of.gap < 0:
        return
    config, late = of.config, CAUSES["data loading"]
    factor = min(exp(of.gap), late.most)
    more = (factor - 1) * of.simulated
    yield of.cause(
        "data loading", f"{more:.3g} s more of a step for data", of.simulated + more, log(factor) / log(late.usual)
    )
    if config.parallel.e == 1:
        return

    def imbalanced(factor: float) -> float:
        parallel = replace(config.parallel, expert_imbalance=config.parallel.expert_imbalance * factor)
        return simulate(replace(config, parallel=parallel), of.cluster).iteration_time

    def launched(factor: float) -> float:
        return simulate(config, replace(of.cluster, expert_launch_time=cost * factor)).iteration_time

    known = CAUSES["expert imbalance"]
    factor, reached = _fitted(imbalanced, of.measured, min(known.most, config.parallel.e))
    change = f"the busiest rank's experts with {config.parallel.expert_imbalance * factor:.3g} times the mean of tokens"
    yield of.cause("expert imbalance", change, reached, log(factor) / log(known.usual))
    if cost := of.cluster.expert_launch_time:
        known = CAUSES["dispatch"]
        factor, reached = _fitted(launched, of.measured, known.most)
        change = f"{cost * factor * 1e6:.3g} us for each kernel of an expert in place of {cost * 1e6:.3g}"
        yield of.cause("dispatch", change, reached, log(factor) / log(known.usual))


def _packing(of: _Measured) -> Iterator[Cause]:
    """Samples that are shorter than sequences, packed: fewer sequences, and attention inside of each sample."""
    if of.gap > 0 or of.config.model.seq < 2 * LEAST_SAMPLE:
        return
    seq = of.config.model.seq

    def length(factor: float) -> int:
        return round(seq * factor)

    def seconds(factor: float) -> float:
        packed, _ = applied(of.config, [length(factor)] * (8 * seq // length(factor)))
        return simulate(packed, of.cluster).iteration_time

    factor, reached = _fitted(seconds, of.measured, LEAST_SAMPLE / seq)
    change = f"samples of {length(factor):,} tokens, of which as many as fit are packed into seq={seq}"
    yield of.cause("packing", change, reached, 1.0)


def _fitted(seconds: Callable[[float], float], measured: float, end: float) -> tuple[float, float]:
    """The factor between 1 and `end` at which `seconds` is nearest to `measured`, by bisection, and the seconds."""
    low, high = 0.0, log(end)
    if (seconds(end) - measured) * high < 0:
        return end, seconds(end)
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if (seconds(exp(middle)) - measured) * log(end) < 0 else (low, middle)
    return exp(high), seconds(exp(high))


def _programs(of: _Measured) -> Iterator[Cause]:
    """The training program that comes nearest with the same configuration, of those that have its techniques."""
    found = []
    for name in program_names():
        try:
            load_program(name).check(of.config)
        except ConfigurationError:
            continue
        seconds = simulate(of.config, with_program(of.cluster, name)).iteration_time
        found.append(of.cause("program", f"program={name}", seconds, 0.25))
    yield min(found, key=lambda cause: cause.score)


def _switches(of: _Measured) -> Iterator[Cause]:
    """The training program with one feature on or off, and with GEMMs in fp32 on CUDA cores."""
    for name, value in vars(of.cluster.software).items():
        software = replace(of.cluster.software, **{name: not value})
        seconds = simulate(of.config, of.cluster, software).iteration_time
        yield of.cause(name, f"{name}={as_typed(not value)}", seconds, 1.0)
    # `gemm_unaligned` is the rate of CUDA cores, which are all that fp32 has without TF32.
    numbers: dict[str, Any] = {"peak_flops": of.cluster.peak_flops * of.cluster.gemm_unaligned, "element_bytes": 4}
    seconds = simulate(of.config, replace(of.cluster, **numbers)).iteration_time
    yield of.cause("precision", "fp32 in place of 16 bits", seconds, 0.5)


def _fields(of: _Measured) -> Iterator[Cause]:
    """The configuration with one field another: switches and choices, sizes halved and doubled."""
    plain = asdict(of.config.model) | asdict(of.config.parallel)
    for changed in _other_values(plain):
        words = ", ".join(f"{name}={as_typed(value)}" for name, value in changed.items())
        try:
            seconds = simulate(TrainingConfig.from_plain(plain | changed), of.cluster).iteration_time
        except ConfigurationError:
            continue
        name, value = next(iter(changed.items()))
        unusual = 1.0 if isinstance(value, bool | str) else OF_MODEL if name in ("layers", "hidden") else OF_RUN
        yield of.cause(name, words, seconds, unusual)


def _other_values(plain: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for item in fields(ParallelConfig):
        values = (True, False) if type(item.default) is bool else item.metadata["choices"]
        yield from ({item.name: value} for value in values if value not in (plain[item.name], "auto"))
    for name in ("b", "v", "B", "seq", "layers"):
        yield from ({name: value} for value in (plain[name] // 2, plain[name] * 2) if value)
    yield {"hidden": plain["hidden"] // 2, "heads": plain["heads"] // 2}
    yield {"hidden": plain["hidden"] * 2, "heads": plain["heads"] * 2}
    for one, other in (("p", "d"), ("d", "p"), ("t", "d"), ("d", "t"), ("p", "t"), ("t", "p")):
        if plain[other] % 2 == 0:
            yield {one: plain[one] * 2, other: plain[other] // 2}


@dataclass(frozen=True)
class Share:
    """A difference of two configurations, and its Shapley share of the gap of their MFU, as a factor."""

    change: str
    factor: float


CLUSTER = "cluster"
# What is one difference in any case: the model, and the sizes of the layout with the batch.
MODEL = tuple(item.name for item in fields(ModelConfig))
SIZES = tuple(item.name for item in fields(ParallelConfig) if type(item.default) is int)
Player = tuple[str, ...]  # names of fields that change together


@dataclass(frozen=True)
class Gap:
    """The ratio of one run's MFU to another's: `simulated` is the product of the `shares`, worst first.

    `measured` is that of the measured times, and `unexplained` measured over simulated; None where one is not known.
    Of the differences beyond the eleventh, `together` says how many fields are one share.
    """

    simulated: float
    shares: tuple[Share, ...]
    together: int
    measured: float | None = None

    @property
    def unexplained(self) -> float | None:
        """The factor that the differences do not explain."""
        return None if self.measured is None else self.measured / self.simulated


def split_gap(
    slow: TrainingConfig,
    fast: TrainingConfig,
    cluster: Cluster,
    other: Cluster | None = None,
    measured: float | None = None,
) -> Gap:
    """Split the simulated ratio of the MFU of `slow` on `cluster` to that of `fast`, on the `other`, by difference.

    The model is one difference, the layout's sizes with the batch are one, and so are fields that are possible only
    together. Each has its Shapley value of the logarithm: the mean of what it adds over all orders in which `fast` can
    be made into `slow`. `measured` is the ratio as measured.
    """
    other = cluster if other is None else other
    before, after = (asdict(config.model) | asdict(config.parallel) for config in (fast, slow))
    different = [name for name in before if before[name] != after[name]]
    groups = [tuple(name for name in different if name in together) for together in (MODEL, SIZES)]
    players = [group for group in groups if group] + [(n,) for n in different if n not in MODEL + SIZES]
    if vars(other) != vars(cluster):
        before[CLUSTER], after[CLUSTER] = (f"{on.name}{_beyond(on)}" for on in (other, cluster))
        players.insert(0, (CLUSTER,))
    together = 0
    if len(players) > MOST_PLAYERS:
        last = tuple(name for group in players[MOST_PLAYERS - 1 :] for name in group)
        players, together = [*players[: MOST_PLAYERS - 1], last], len(last)

    @cache
    def value(changed: frozenset[str]) -> float | None:
        """The logarithm of the MFU with these fields as they are after; None if there is no such configuration."""
        mixed = {name: (after if name in changed else before)[name] for name in before if name != CLUSTER}
        try:
            estimate = simulate(TrainingConfig.from_plain(mixed), cluster if CLUSTER in changed else other)
        except ConfigurationError:
            return None
        return log(estimate.model_flops_utilization)

    players = _possible(players, lambda chosen: value(_names(chosen)) is not None)
    values = {}
    for size in range(len(players) + 1):
        for chosen in combinations(range(len(players)), size):
            found = value(_names(players[player] for player in chosen))
            assert found is not None
            values[frozenset(chosen)] = found
    shares = (
        Share(_words([n for n in before if n in names], before, after), exp(_shapley(player, len(players), values)))
        for player, names in enumerate(players)
    )
    ratio = exp(values[frozenset(range(len(players)))] - values[frozenset()])
    return Gap(ratio, tuple(sorted(shares, key=lambda share: share.factor)), together, measured)


def _names(players: Iterable[Player]) -> frozenset[str]:
    return frozenset(name for player in players for name in player)


def _possible(players: list[Player], possible: Callable[[Sequence[Player]], bool]) -> list[Player]:
    """The players, those that are possible only together made one: then any of them may change without the rest.

    All together are possible. The fewest that are not join the fewest others with which they are.
    """
    for size in range(1, len(players)):
        for chosen in combinations(players, size):
            if not possible(chosen):
                rest = [player for player in players if player not in chosen]
                sets = (more for k in range(1, len(rest) + 1) for more in combinations(rest, k))
                joined = next(more for more in sets if possible((*chosen, *more)))
                one = tuple(name for player in (*chosen, *joined) for name in player)
                return _possible([*(player for player in rest if player not in joined), one], possible)
    return players


def utilization(config: TrainingConfig, cluster: Cluster, seconds: float) -> float:
    """MFU of an iteration that takes so many seconds."""
    flops = model_flops_per_iteration(config.model, config.parallel.B)
    return flops / (config.parallel.n * cluster.peak_flops * seconds)


def _beyond(cluster: Cluster) -> str:
    """What the program of a cluster does beyond the paper's, in words."""
    features = [name for name, value in vars(cluster.software).items() if value != getattr(PAPER, name)]
    return f" ({', '.join(features)})" if features else ""


def _words(names: list[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {before[name]} to {after[name]}" for name in names)


def _shapley(player: int, n: int, values: Mapping[frozenset[int], float]) -> float:
    """Shapley 1953: the sum over coalitions S without the player of |S|! (n-|S|-1)! / n! (v(S + player) - v(S))."""
    total = 0.0
    for coalition, value in values.items():
        if player not in coalition:
            size = len(coalition)
            weight = factorial(size) * factorial(n - size - 1) / factorial(n)
            total += weight * (values[coalition | {player}] - value)
    return total
