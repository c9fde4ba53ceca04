"""How the score moves when a number of the cluster is moved through its range, or a mechanism is dropped.

One at a time, all else as in the cluster file. A mechanism is dropped by the value that takes it out of the model: no
time, no penalty, the full peak.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.records import PointResult
from ptdp_core.config import padded_vocab
from ptdp_core.simulator import Cluster, ClusterParameter
from reproduce.analysis.scoring.published_points import FLOPS, Published, configuration
from reproduce.analysis.scoring.scores import ScoredPair, mean_error
from reproduce.experiment.sweep import Point
from reproduce.running.simulated import Simulated

LOW, HIGH, DROPPED = "low", "high", "dropped"
NOTHING = float("inf")  # an efficiency at which the work takes no time


@dataclass(frozen=True)
class Mechanism:
    """Something the simulator models: what it is called, what dropping it means, the values that do so.

    `parameter` is the cluster parameter it belongs to, if it is one alone's.
    """

    name: str
    meaning: str
    values: Mapping[str, float]
    parameter: str | None = None


def _of_parameter(name: str, value: float, meaning: str) -> Mechanism:
    return Mechanism(name, meaning, {name: value}, parameter=name)


MECHANISMS = (
    _of_parameter("host_per_call", 0.0, "the host never limits"),
    _of_parameter("microbatch_host_time", 0.0, "fetching a microbatch costs nothing"),
    _of_parameter("iteration_host_time", 0.0, "nothing on the host once an iteration"),
    _of_parameter("network_latency", 0.0, "no latency between nodes"),
    _of_parameter("gemm_tile_intensity", 0.0, "small tiles as fast as large ones"),
    _of_parameter("gemm_write_efficiency", NOTHING, "writing a tile takes no time"),
    _of_parameter("gemm_memory_efficiency", NOTHING, "GEMMs are never bound by memory"),
    _of_parameter("gemm_plateau", 1.0, "no power limit"),
    _of_parameter("tree_hop_latency", NOTHING, "collectives between nodes are rings"),
    Mechanism("shared_hcas", "every GPU has an HCA to itself", {"gpus_per_hca": 1, "gpus_per_switch": 1}),
    _of_parameter("memory_efficiency", NOTHING, "memory-bound kernels take only their gaps"),
    _of_parameter("zero3_interference", 1.0, "ZeRO-3's traffic does not slow computation"),
    Mechanism(
        "nvlink_latency",
        "collectives inside a node have no latency",
        {"nvlink_latency_2": 0.0, "nvlink_latency_4": 0.0, "nvlink_latency_8": 0.0},
    ),
    Mechanism(
        "tensor_all_reduce",
        "collectives inside a node take no time",
        {
            **{f"nvlink_latency_{k}": 0.0 for k in (2, 4, 8)},
            **{f"nvlink_bandwidth_{k}": NOTHING for k in (2, 4, 8)},
        },
    ),
)
LOGITS = Mechanism("embedding_and_logits", "almost no vocabulary in time and memory, the FLOP count as before", {})


Known = tuple[Published, ScoredPair]  # a published value and what is predicted with the cluster as it is set


@dataclass(frozen=True)
class Move:
    """The score with one thing changed.

    `name` of the parameter or mechanism; `way` is low, high or dropped; `value` is the parameter's, None for a
    mechanism of several or where it has no finite one. `mean` (None if no point has a result) is the mean absolute
    error over all points that have one, `change` what it has grown by over the same points, `groups` both means by
    artifact: before, after. `lost` counts points that no longer have a result.
    """

    name: str
    way: str
    value: float | None
    mean: float | None
    change: float
    groups: Mapping[str, tuple[float, float]]
    lost: int
    meaning: str = ""


def moves(
    points: Sequence[Known],
    evaluators: Mapping[str, Simulated],
    cluster: Cluster,
    parameters: Mapping[str, ClusterParameter],
    on_move: Callable[[str], None] = lambda label: None,
) -> list[Move]:
    """Every parameter at both ends of its range and every mechanism dropped, scored on `points`, each once."""
    rows = []
    for name, way, value, meaning, changed in _variants(cluster, parameters):
        rows.append(_scored(points, evaluation(evaluators, changed), name, way, value, meaning))
        on_move(f"{name} {way}")
    rows.append(_scored(points, _without_logits(evaluators), LOGITS.name, DROPPED, None, LOGITS.meaning))
    on_move(f"{LOGITS.name} {DROPPED}")
    return rows


def count(cluster: Cluster, parameters: Mapping[str, ClusterParameter]) -> int:
    """How many moves there are."""
    return sum(1 for _ in _variants(cluster, parameters)) + 1


def _variants(
    cluster: Cluster, parameters: Mapping[str, ClusterParameter]
) -> Iterator[tuple[str, str, float | None, str, Cluster]]:
    for name, parameter in parameters.items():
        for way, value in ((LOW, parameter.low), (HIGH, parameter.high)):
            if value != parameter.value:
                yield name, way, value, "", replace(cluster, **{name: value})  # type: ignore[arg-type]
    for mechanism in MECHANISMS:
        alone = mechanism.values[mechanism.parameter] if mechanism.parameter else None
        changed = replace(cluster, **dict(mechanism.values))  # type: ignore[arg-type]
        yield mechanism.name, DROPPED, alone, mechanism.meaning, changed


Evaluation = Callable[[Published], PointResult]


def evaluation(evaluators: Mapping[str, Simulated], cluster: Cluster) -> Evaluation:
    """Evaluates published points on a changed cluster."""
    changed = {id: replace(evaluator, cluster=cluster) for id, evaluator in evaluators.items()}
    return lambda published: changed[published.artifact].evaluate(published.point)


def _without_logits(evaluators: Mapping[str, Simulated]) -> Evaluation:
    """Evaluates with the smallest vocabulary there is, and counts the FLOPs of the real one."""

    def evaluate(published: Published) -> PointResult:
        config = configuration(published.point)
        parameters = {**published.point.parameters, "vocab": padded_vocab(1, config.parallel.t)}
        small: Point = replace(published.point, parameters=parameters)
        result = evaluators[published.artifact].evaluate(small)
        name = published.quantity.name
        metric = result.metrics.get(name)
        if name not in FLOPS or metric is None or metric.value is None:
            return result
        full, reduced = (FLOPS[name](c.model, config.parallel.B) for c in (config, configuration(small)))
        return replace(result, metrics={**result.metrics, name: replace(metric, value=metric.value * full / reduced)})

    return evaluate


def _scored(
    points: Sequence[Known], evaluate: Evaluation, name: str, way: str, value: float | None, meaning: str
) -> Move:
    pairs = [(published.artifact, before, published.pair(evaluate(published))) for published, before in points]
    kept = [(id, before, after) for id, before, after in pairs if after is not None]
    groups = {
        id: (
            mean_error([before for artifact, before, _ in kept if artifact == id]),
            mean_error([after for artifact, _, after in kept if artifact == id]),
        )
        for id in dict.fromkeys(id for id, _, _ in kept)
    }
    mean = mean_error([after for _, _, after in kept]) if kept else None
    change = mean - mean_error([before for _, before, _ in kept]) if mean is not None else 0.0
    return Move(name, way, _finite(value), mean, change, groups, len(pairs) - len(kept), meaning)


def _finite(value: float | None) -> float | None:
    return None if value is None or value == NOTHING else value
