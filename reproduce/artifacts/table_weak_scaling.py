"""Table 1: weak-scaling throughput of ten GPT models, 1.7 billion to a trillion parameters, 32 to 3072 GPUs."""

from benchmarks.records import PaperValue
from reproduce.artifacts.shared import efficiency, grids, table_1
from reproduce.artifacts.shared.grids import THROUGHPUT
from reproduce.artifacts.shared.measured_experiments import EXPERIMENTS
from reproduce.artifacts.shared.measured_points import with_measured
from reproduce.artifacts.shared.weak_scaling_claims import CLAIMS
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact, Point, Quantity, Results

ID = "table_weak_scaling"


def points(scale: str) -> tuple[Point, ...]:
    """The ten rows, smallest first."""
    printed = published.artifact(ID)["rows"]
    return tuple(
        Point(
            key=row.key,
            series="",
            label=row.label,
            parameters={"model": row.label, "gpus": row.gpus, **row.parameters},
            paper={
                THROUGHPUT: PaperValue(entry["tflops_per_gpu"] * 1e12, "FLOP/s", "table", 1e12),
                "share_of_peak": PaperValue(entry["percent_of_peak"] / 100, "1", "table", 0.01),
                "aggregate_throughput": PaperValue(entry["aggregate_pflops"] * 1e15, "FLOP/s", "table", 1e14),
            },
        )
        for row, entry in zip(table_1.rows(), printed, strict=True)
    )


def notes(results: Results) -> tuple[str, ...]:
    """How the rows were configured."""
    return (
        "b, v and the kind of data parallelism are those of the authors' script; the 1.7, 3.6, 7.5 and 18.4 billion "
        "rows (p=1) overlap the gradient all-reduce with the last backward pass, the others do it after the flush.",
    )


ARTIFACT = with_measured(
    Artifact(
        id=ID,
        label="Table 1",
        section="5.1",
        title="Weak-scaling throughput for GPT models from 1 billion to 1 trillion parameters",
        description=(
            "Throughput per GPU, share of the 312 teraFLOP/s peak and aggregate throughput of the ten models, each on "
            "the GPUs and with the configuration of its run. FLOP/s by the paper's count (eq. 3)."
        ),
        fidelities=("simulated",),
        points=points,
        quantities=(
            grids.THROUGHPUT_QUANTITY,
            Quantity("share_of_peak", "share of peak", "1", "%", 0.01, 1),
            Quantity("aggregate_throughput", "aggregate", "FLOP/s", "petaFLOP/s", 1e15, 1),
            *grids.QUANTITIES[1:],
            efficiency.TENSOR_TIME_QUANTITY,
            efficiency.GEMM_RATE_QUANTITY,
        ),
        columns={
            "model": "parameters",
            "heads": "a",
            "hidden": "h",
            "layers": "l",
            "t": "t",
            "p": "p",
            "d": "d",
            "gpus": "n",
            "B": "B",
            "b": "b",
            "v": "v",
        },
        claims=CLAIMS,
        further=efficiency.scaling_metrics,
        notes=notes,
    ),
    EXPERIMENTS[ID],
)
