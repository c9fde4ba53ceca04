"""How good a cluster file's predictions of measured training steps are: every such point of the records there are.

Beside the simulator two baselines that need no simulator: the FLOPs of a step over the fastest GEMM rate of the file,
and the same with the pipeline bubble (p-1)/(vm). Nothing is fitted to the measured steps.

Ranks that share cores are no cluster the simulator knows. On a CPU, n ranks on c < n cores are simulated as n devices,
and then the cores' work is the least there can be: the iteration takes no less than n/c times what a rank is busy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.records import ClusterRef, PointResult, Record, read_record
from benchmarks.records.errors import NothingSelectedError
from benchmarks.records.storage import digest_file
from ptdp_core.config import DTYPES, TrainingConfig
from ptdp_core.formulas import bubble_fraction, hardware_flops_per_iteration
from ptdp_core.simulator import Cluster, Estimate, cluster_path, load_cluster, simulate
from reproduce.analysis.calibration.write import host_of, machine
from reproduce.analysis.scoring.scores import Score, ScoredPair, score

TIME = "iteration_time"
PATTERN = "*/measured*/record.json"
SHARED = "ranks share cores"
# How the engine ran when it was calibrated, and what is called the same: the fastest operators are a GPU's default.
ENGINE = {"exchange": ("blocking",), "attention": ("operators",), "kernels": ("auto", "reference", "triton")}


@dataclass(frozen=True)
class MeasuredComparison:
    """A measured step beside its predictions, in seconds.

    `source` is the record's id; `shared` says that there were more ranks than cores.
    """

    source: str
    point: PointResult
    config: TrainingConfig
    measured: float
    predicted: float
    flops_over_peak: float
    shared: bool

    @property
    def with_bubble(self) -> float:
        """The baseline that knows the schedule, too."""
        parallel = self.config.parallel
        return self.flops_over_peak * (1 + bubble_fraction(parallel.p, parallel.m, parallel.v))

    @property
    def group(self) -> str:
        """What it is scored with."""
        n = self.config.parallel.n
        return SHARED if self.shared else f"{n} rank{'s' if n > 1 else ''}"

    @property
    def label(self) -> str:
        """The point for people: record, series and label."""
        return f"{self.source}: {self.point.series}, {self.point.label}"

    def pair(self, ours: float) -> ScoredPair:
        """A prediction of this step (in seconds) beside its measured time, as scores take it."""
        return ScoredPair(self.label, ours, self.measured)


@dataclass(frozen=True)
class Scores:
    """Of a group of points: the simulator's score, and the mean absolute relative errors of the baselines."""

    simulated: Score
    baselines: Mapping[str, float]


@dataclass(frozen=True)
class MeasuredAssessment:
    """All comparisons of a cluster file; `left_out` says for how many points there is none, and why."""

    cluster: ClusterRef
    host: str | None
    comparisons: tuple[MeasuredComparison, ...]
    left_out: Mapping[str, int]

    def scores(self) -> dict[str, Scores]:
        """The scores of each group, and under 'all' those of all comparisons."""
        groups = list(dict.fromkeys(c.group for c in self.comparisons))
        by_group = {name: _scores([c for c in self.comparisons if c.group == name]) for name in groups}
        return {**by_group, "all": _scores(self.comparisons)}


def _scores(points: Sequence[MeasuredComparison]) -> Scores:
    def mean(predictions: Sequence[float]) -> float:
        return sum(abs(c.pair(p).error) for c, p in zip(points, predictions, strict=True)) / len(points)

    return Scores(
        score([c.pair(c.predicted) for c in points]),
        {
            "flops_over_peak": mean([c.flops_over_peak for c in points]),
            "flops_over_peak_with_bubble": mean([c.with_bubble for c in points]),
        },
    )


def find(results: Path) -> list[Path]:
    """The records of measured runs in a results folder."""
    return sorted(results.glob(PATTERN))


def assess(paths: Sequence[Path], cluster: str) -> MeasuredAssessment:
    """Predict every measured step in these records.

    Raises `InvalidResultsError` for a record that is none, `NothingSelectedError` if no step can be compared.
    """
    model, host = load_cluster(cluster), host_of(cluster)
    comparisons, left_out = [], dict[str, int]()
    for path in paths:
        record = read_record(path)
        for point in record.points:
            outcome = _compare(record, point, model, host)
            if isinstance(outcome, MeasuredComparison):
                comparisons.append(outcome)
            else:
                left_out[outcome] = left_out.get(outcome, 0) + 1
    if not comparisons:
        why = "; ".join(f"{number} {reason}" for reason, number in left_out.items())
        raise NothingSelectedError(
            f"no measured training step to compare with{f' ({why})' if why else ''}; run an artifact with --fidelity "
            "measured, or reproduce calibrate --check"
        )
    path = cluster_path(cluster)
    return MeasuredAssessment(ClusterRef(path.stem, digest_file(path)), host, tuple(comparisons), left_out)


def _compare(record: Record, point: PointResult, cluster: Cluster, host: str | None) -> MeasuredComparison | str:
    """The point beside its prediction, or why there is none, as '... points'."""
    metric = point.metrics.get(TIME)
    if point.status != "ok" or metric is None or metric.origin != "measured" or not metric.value:
        return "without a measured iteration time"
    where, parameters = record.provenance.host, point.parameters
    on_cpu = str(parameters.get("device", "cuda" if where.gpu_count else "cpu")).startswith("cpu")
    if host not in (None, machine(where, "cpu" if on_cpu else "cuda")):
        return f"measured on another machine than {host}"
    if (width := DTYPES.get(str(parameters.get("dtype")))) not in (None, cluster.element_bytes):
        return f"of {width} bytes an element, where the file has {cluster.element_bytes}"
    for name, like_calibrated in ENGINE.items():
        if parameters.get(name, like_calibrated[0]) not in like_calibrated:
            return f"with {name}={parameters[name]}, where the engine was calibrated with {like_calibrated[0]}"
    try:
        config = TrainingConfig.from_plain(parameters)
    except (ValueError, TypeError):
        return "whose parameters are no training configuration"
    n, cores = config.parallel.n, (where.logical_cores or cluster.gpus_per_node) if on_cpu else None
    return MeasuredComparison(
        record.id,
        point,
        config,
        float(metric.value),
        predict(config, cluster, cores),
        flops(config) / min(n, cores or n) / cluster.peak_flops,
        cores is not None and n > cores,
    )


def predict(config: TrainingConfig, cluster: Cluster, cores: int | None = None) -> float:
    """Predicted seconds of an iteration; with `cores`, of ranks that share so many cores of one machine."""
    n = config.parallel.n
    if cores is None or n <= min(cores, cluster.gpus_per_node):
        return simulate(config, cluster).iteration_time
    estimate = simulate(config, replace(cluster, gpus_per_node=max(n, cluster.gpus_per_node)))
    return max(estimate.iteration_time, n / cores * _busy(estimate))


def _busy(estimate: Estimate) -> float:
    """Seconds of an iteration in which a rank's core works. Messages over loopback count, since cores copy them."""
    return estimate.iteration_time - estimate.phase_times["bubble"]


def flops(config: TrainingConfig) -> int:
    """FLOPs that an iteration executes, recomputation included; eq. (3) if whole layers are recomputed."""
    return hardware_flops_per_iteration(config.model, config.parallel.B, config.parallel.recompute)
