"""Published training iterations by name, ARTIFACT:KEY or STUDY:NUMBER: their configuration, cluster and time."""

from dataclasses import dataclass, replace

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import Cluster
from reproduce.annex.accuracy.ledger import studies
from reproduce.annex.accuracy.published_points import FLOPS
from reproduce.experiment import catalog
from reproduce.experiment.fidelity import PAPERS_CLUSTER
from reproduce.running.simulated import open_cluster
from results.records.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class PublishedRow:
    """A training iteration that was published, of a program with `cluster.software`, in seconds."""

    config: TrainingConfig
    cluster: Cluster
    seconds: float


def is_row(name: str) -> bool:
    """Whether a text is the name of a row, as far as its form tells; else it is a file's."""
    return name.partition(":")[0] in (*catalog.ids(), *(study.id for study in studies()))


def find_row(name: str) -> PublishedRow:
    """The row of this name. Raises `UsageError` if there is none, or no time can be told from what was published."""
    source, _, key = name.partition(":")
    study = next((study for study in studies() if study.id == source), None)
    if study is not None:
        numbers = [str(number) for number in range(1, len(study.points) + 1)]
        if key not in numbers:
            raise UsageError(f"{name} is no row; needs {source}:1 to {source}:{numbers[-1]}")
        row = study.points.iloc[int(key) - 1]
        cluster, _ = open_cluster(study.cluster)
        return PublishedRow(row.config, replace(cluster, software=study.software), row.iteration_time)
    artifact = catalog.load(source)
    rows = {point.key: point for point in artifact.points(artifact.scales[0]) if FLOPS.keys() & point.paper.keys()}
    if key not in rows:
        there = f"there are {', '.join(rows)}" if rows else "it has no published throughput"
        raise UsageError(f"{name} is no row{did_you_mean(key, list(rows))}; {there}")
    config = TrainingConfig.from_plain(rows[key].parameters)
    metric = next(metric for metric in FLOPS if metric in rows[key].paper)
    flops = FLOPS[metric](config.model, config.parallel.B) / config.parallel.n
    return PublishedRow(config, open_cluster(PAPERS_CLUSTER)[0], flops / rows[key].paper[metric].value)
