"""Figure 7: the share of a layer's activations that is left by each technique."""

from ptdp_core.simulator.memory import layer_bytes
from reproduce.annex.papers.korthikanti import figure_1
from reproduce.annex.papers.korthikanti import table_selective_recompute as runs
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told


def derive(point: Point) -> dict[str, float]:
    """What a layer keeps, over what it keeps with nothing recomputed and no sequence parallelism."""
    kept = layer_bytes(runs.config(point.parameters["model"], point.parameters["technique"])).kept
    whole = layer_bytes(runs.config(point.parameters["model"], runs.NOTHING)).kept
    return {runs.SHARE: kept / whole}


ARTIFACT = told(
    __name__,
    points=lambda: figure_1.points("figure_7", ("sequence", runs.SELECTIVE, runs.BOTH, runs.FULL)),
    derive=derive,
)
