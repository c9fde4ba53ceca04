"""Figure 7: the share of a layer's activations that is left by each technique."""

from ptdp_core.simulator.memory import layer_bytes
from reproduce.annex.papers.korthikanti import figure_1
from reproduce.annex.papers.korthikanti import table_selective_recompute as runs
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.sweep import Point, Sweep
from results.records import Metric


def derive(point: Point) -> dict[str, Metric]:
    """What a layer keeps, over what it keeps with nothing recomputed and no sequence parallelism."""
    kept = layer_bytes(runs.config(point.parameters["model"], point.parameters["technique"])).kept
    whole = layer_bytes(runs.config(point.parameters["model"], runs.NOTHING)).kept
    return {runs.SHARE: Metric(kept / whole, "1", "derived")}


ARTIFACT = Artifact(
    id="korthikanti/figure_7",
    label="Figure 7",
    section="6.1",
    title="Activation memory by technique, over that with nothing recomputed",
    description="Bytes that a layer keeps of a microbatch, by the simulator's counts, over those of the baseline.",
    quantities=(Quantity(runs.SHARE, "share of the baseline's activations", "1", "%", 0.01, 2),),
    sweeps={"paper": Sweep(lambda: figure_1.points("figure_7", ("sequence", runs.SELECTIVE, runs.BOTH, runs.FULL)))},
    columns={"model": "model", "technique": "technique"},
    tolerance=0.05,
    derive=derive,
    notes=("The published values are a third party's transcription of the plot.",),
)
