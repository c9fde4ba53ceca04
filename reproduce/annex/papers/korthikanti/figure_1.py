"""Figure 1: memory of a GPU for parameters and optimizer, and for activations, with nothing recomputed and with both.

As the paper counts: the layers' activations alone, without the allocator's losses, and the layers' parameters alone,
with gradients in fp32, 18 bytes each.
"""

from fractions import Fraction

from ptdp_core.schedules import definition
from ptdp_core.simulator import Software
from ptdp_core.simulator.memory import layer_bytes, state_bytes
from reproduce.annex.papers.korthikanti import table_selective_recompute as runs
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told

ACTIVATIONS, STATES = "activation_memory", "state_memory"


def points(source: str, techniques: tuple[str, ...]) -> tuple[Point, ...]:
    """The four models with these techniques, with what `source` prints of each."""
    return tuple(
        Point(
            f"{model}_{name}",
            runs.TECHNIQUES[name][0],
            model,
            {"model": model, "technique": name},
            runs.printed(model, name, (f"korthikanti/{source}",)),
        )
        for name in techniques
        for model in runs.ITERATIONS
    )


def activation_bytes(model: str, technique: str) -> Fraction:
    """Bytes of activations on the fullest rank: what a layer keeps, by layers, by chunks that are held at once."""
    config = runs.config(model, technique)
    parallel = config.parallel
    stash = definition(parallel.schedule).stash
    held = 1 if parallel.p == 1 else stash(parallel.p, parallel.m, parallel.v)[0] if stash else parallel.m
    return Fraction(layer_bytes(config).kept * config.model.layers * held, parallel.p * parallel.v)


def layer_state_bytes(model: str) -> float:
    """Bytes of the layers' weights, gradients and optimizer states on one GPU, 12h^2 + 13h parameters a layer."""
    config = runs.config(model, runs.NOTHING)
    sizes, parallel = config.model, config.parallel
    parameters = sizes.layers * (12 * sizes.hidden**2 + 13 * sizes.hidden)
    return parameters * sum(state_bytes(2, Software(fp32_gradients=True))) / (parallel.p * parallel.t)


def derive(point: Point) -> dict[str, float]:
    """Memory of parameters with optimizer, and of activations."""
    model, technique = point.parameters["model"], point.parameters["technique"]
    return {
        ACTIVATIONS: float(activation_bytes(model, technique)),
        STATES: layer_state_bytes(model),
    }


ARTIFACT = told(__name__, points=lambda: points("figure_1", (runs.NOTHING, runs.BOTH)), derive=derive)
