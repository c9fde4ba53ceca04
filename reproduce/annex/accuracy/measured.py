"""How good a cluster file's predictions of measured training steps are: every such point of the records there are.

Beside the simulator two baselines that need no simulator: the FLOPs of a step over the fastest GEMM rate of the file,
and the same with the pipeline bubble (p-1)/(vm). Nothing is fitted to the measured steps.

Ranks that share cores are no cluster the simulator knows. On a CPU, n ranks on c < n cores are simulated as n devices,
and then the cores' work is the least there can be: the iteration takes no less than n/c times what a rank is busy.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from ptdp_core.config import DTYPES, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.formulas import bubble_fraction, hardware_flops_per_iteration
from ptdp_core.simulator import Cluster, cluster_path, load_cluster, simulate
from reproduce.annex import part
from reproduce.annex.accuracy.scores import Score, compared, mean_error, score
from results.records import ClusterRef, PointResult, Record, read_record
from results.records.errors import NothingSelectedError
from results.records.storage import digest_file

TIME = "iteration_time"
FOLDER = "accuracy_measured"
PATTERN = "*/measured*/record.json"
SHARED = "ranks share cores"
BASELINES = ("flops_over_peak", "flops_over_peak_with_bubble")
# How the engine ran when it was calibrated, and what is called the same: the fastest operators are a GPU's default.
ENGINE = {"exchange": ("blocking",), "attention": ("operators",), "kernels": ("auto", "reference", "triton")}


@dataclass(frozen=True)
class MeasuredAssessment:
    """All comparisons of a cluster file; `left_out` says for how many points there is none, and why.

    `steps` has a row per measured step, times in seconds:

    record, key, label         the record's id, the point's key, and its name for people
    point, config              the point itself and its training configuration
    paper, ours, error         the measured time, the predicted one and its relative error
    flops_over_peak[...]       the baselines, the second `_with_bubble`
    shared                     whether there were more ranks than cores
    group                      what it is scored with: the number of ranks, or that they share cores
    """

    cluster: ClusterRef
    host: str | None
    steps: DataFrame
    left_out: Mapping[str, int]

    def scores(self) -> dict[str, tuple[Score, dict[str, float]]]:
        """The score, and the mean errors of the baselines, of each group and under 'all' of all steps."""
        groups = [*self.steps.groupby("group", sort=False), ("all", self.steps)]
        return {
            name: (score(steps), {baseline: mean_error(steps[baseline] / steps.paper - 1) for baseline in BASELINES})
            for name, steps in groups
        }


def find(results: Path) -> list[Path]:
    """The records of measured runs in a results folder."""
    return sorted(results.glob(PATTERN))


def assess(paths: Sequence[Path], cluster: str) -> MeasuredAssessment:
    """Predict every measured step in these records.

    Raises `InvalidResultsError` for a record that is none, `NothingSelectedError` if no step can be compared.
    """
    model, host = load_cluster(cluster), part("calibrate", "write").host_of(cluster)
    steps, left_out = [], Counter[str]()
    for record in map(read_record, paths):
        for point in record.points:
            if why := _incomparable(record, point, model, host):
                left_out[why] += 1
            else:
                steps.append(_step(record, point, model))
    if not steps:
        why = "; ".join(f"{number} {reason}" for reason, number in left_out.items())
        raise NothingSelectedError(
            f"no measured training step to compare with{f' ({why})' if why else ''}; run an artifact with --fidelity "
            "measured, or reproduce calibrate --check"
        )
    path = cluster_path(cluster)
    return MeasuredAssessment(ClusterRef(path.stem, digest_file(path)), host, compared(DataFrame(steps)), left_out)


def _incomparable(record: Record, point: PointResult, cluster: Cluster, host: str | None) -> str | None:
    """Why a point cannot be compared with its prediction, as '... points'; None if it can."""
    metric = point.metrics.get(TIME)
    if point.status != "ok" or metric is None or metric.origin != "measured" or not metric.value:
        return "without a measured iteration time"
    parameters = point.parameters
    if host not in (
        None,
        part("calibrate", "write").machine(record.provenance.host, "cpu" if _on_cpu(record, point) else "cuda"),
    ):
        return f"measured on another machine than {host}"
    if (width := DTYPES.get(str(parameters.get("dtype")))) not in (None, cluster.element_bytes):
        return f"of {width} bytes an element, where the file has {cluster.element_bytes}"
    for name, like_calibrated in ENGINE.items():
        if parameters.get(name, like_calibrated[0]) not in like_calibrated:
            return f"with {name}={parameters[name]}, where the engine was calibrated with {like_calibrated[0]}"
    try:
        TrainingConfig.from_plain(parameters)
    except ConfigurationError:
        return "whose parameters are no training configuration"
    return None


def _on_cpu(record: Record, point: PointResult) -> bool:
    usual = "cuda" if record.provenance.host.gpu_count else "cpu"
    return str(point.parameters.get("device", usual)).startswith("cpu")


def _step(record: Record, point: PointResult, cluster: Cluster) -> dict[str, Any]:
    config = TrainingConfig.from_plain(point.parameters)
    parallel, n = config.parallel, config.parallel.n
    cores = (record.provenance.host.logical_cores or cluster.gpus_per_node) if _on_cpu(record, point) else None
    flops = hardware_flops_per_iteration(config.model, parallel.B, parallel.recompute)
    over_peak = flops / min(n, cores or n) / cluster.peak_flops
    shared = cores is not None and n > cores
    return {
        "record": record.id,
        "key": point.key,
        "label": f"{record.id}: {point.series}, {point.label}",
        "point": point,
        "config": config,
        "paper": float(point.metrics[TIME].value or 0),
        "ours": predict(config, cluster, cores),
        "flops_over_peak": over_peak,
        "flops_over_peak_with_bubble": over_peak * (1 + bubble_fraction(parallel.p, parallel.m, parallel.v)),
        "shared": shared,
        "group": SHARED if shared else f"{n} rank{'s' if n > 1 else ''}",
    }


def predict(config: TrainingConfig, cluster: Cluster, cores: int | None = None) -> float:
    """Predicted seconds of an iteration; with `cores`, of ranks that share so many cores of one machine."""
    n = config.parallel.n
    if cores is None or n <= min(cores, cluster.gpus_per_node):
        return simulate(config, cluster).iteration_time
    estimate = simulate(config, replace(cluster, gpus_per_node=max(n, cluster.gpus_per_node)))
    # What a rank's core works. Messages over loopback count, since cores copy them.
    busy = estimate.iteration_time - estimate.phase_times["bubble"]
    return max(estimate.iteration_time, n / cores * busy)
