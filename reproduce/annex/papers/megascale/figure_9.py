"""Figure 9: weak scaling of a 530B model, 2,240 to 11,200 GPUs, Megatron-LM's bars."""

from functools import partial

from reproduce.annex.papers.megascale.table_2 import MEGATRON, configuration, megatron_rows
from reproduce.experiment.sweep import Point, printed_points
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot

ID = "megascale/figure_9"


def points() -> tuple[Point, ...]:
    """Megatron-LM's bars, with the flags that Table 2's first variant has."""
    return printed_points(ID, "gpus_{gpus}", MEGATRON, "{gpus}", partial(configuration, ID), rows=megatron_rows(ID))


ARTIFACT = told(__name__, points=points, draw=line_plot)
