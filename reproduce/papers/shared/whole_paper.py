"""The artifact of what belongs to no one figure or table: its points, and what is simulated of them.

Its claims stand beside it, in `paper_formulas`, `paper_configurations` and `sc21/paper_claims.py`. It draws nothing.
The configurations are in `paper_points`.
"""

from collections.abc import Mapping
from dataclasses import replace

from ptdp_core.simulator import Cluster, Estimate, simulate
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.sweep import Point, Sweep
from reproduce.papers.shared import efficiency, paper_points

SLOWER = "throughput_with_half_the_bandwidth"
BETWEEN_NODES = ("hca_bandwidth", "p2p_bandwidth", "tensor_hca_bandwidth", "allreduce_hca_bandwidth")


def further(point: Point, estimate: Estimate, cluster: Cluster) -> Mapping[str, float]:
    """The rate inside GEMMs where data parallelism is alone; the 1T model with half the bandwidth between nodes."""
    if point.series == paper_points.DATA_PARALLEL:
        return efficiency.kernel_metrics(point, estimate, cluster)
    if point.series == paper_points.PARTITIONINGS:
        slower = replace(cluster, **{name: getattr(cluster, name) / 2 for name in BETWEEN_NODES})
        throughput = simulate(estimate.config, slower).throughput_per_gpu
        return {SLOWER: throughput}
    return {}


ARTIFACT = Artifact(
    id="paper_claims",
    label="The paper as a whole",
    section="1 to 6",
    title="Takeaways, and sentences that belong to no one figure",
    description=(
        "Claims of the abstract, the introduction, the analysis and the related work that no figure or table judges, "
        "and the configurations they are judged on."
    ),
    quantities=(q.THROUGHPUT,),
    units={SLOWER: "FLOP/s"},
    sweeps={"paper": Sweep(paper_points.points)},
    columns={"p": "p", "t": "t", "d": "d", "b": "b", "B": "B"},
    further=further,
    notes=(),
)
