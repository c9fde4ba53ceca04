"""Figure 9: weak scaling of a 530B model, 2,240 to 11,200 GPUs, Megatron-LM's bars."""

from functools import partial

from reproduce.annex.papers.megascale.table_2 import MEGATRON, configuration, megatron_rows
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.sweep import Point, Sweep, printed_points
from reproduce.output.figures import line_plot

ID = "megascale/figure_9"


def points() -> tuple[Point, ...]:
    """Megatron-LM's bars, with the flags that Table 2's first variant has."""
    return printed_points(ID, "gpus_{gpus}", MEGATRON, "{gpus}", partial(configuration, ID), rows=megatron_rows(ID))


ARTIFACT = Artifact(
    id=ID,
    label="Figure 9",
    section="6.1",
    title="Weak scaling of Megatron-LM, 530 billion parameters on 2,240 to 11,200 GPUs",
    description="MFU with a batch of one sequence for each GPU, with the flags fixed beforehand for Table 2.",
    quantities=(q.MFU, q.ITERATION, q.IDLE, q.PEAK_MEMORY),
    sweeps={"paper": Sweep(points)},
    columns={"gpus": "n"},
    x_axis=q.XAxis("gpus", "Number of GPUs", scale="category"),
    tolerance=0.05,
    draw=line_plot,
)
