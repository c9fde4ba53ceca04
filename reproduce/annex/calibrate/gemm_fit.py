"""The numbers of the simulator's GEMM model from timings of matrix products.

The model is `KernelModel.gemm` itself: what is minimised is the mean |log(model / measured)|, one number at a time over
a grid, until none gets better. Small machines leave some numbers undetermined: the range of each says which values do
about as well, the others kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log

from ptdp_core.layers.parts import Gemm
from ptdp_core.simulator import Cluster
from ptdp_core.simulator.kernels import KernelModel
from reproduce.annex.calibrate.lines import Fitted

# What each number may be: shares of the peak, FLOP per byte, shares of the memory bandwidth (above 1 out of a CPU's
# caches).
BOUNDS = {
    "gemm_plateau": (0.3, 1.0),
    "gemm_wave_efficiency": (0.3, 1.0),
    "gemm_tile_intensity": (0.1, 100.0),
    "gemm_write_efficiency": (0.02, 20.0),
    "gemm_memory_efficiency": (0.05, 20.0),
}
GRID = 25  # values tried of one number
ZOOMS = 4  # each grid spans a fifth of the one before
SWEEPS = 12
AS_GOOD = 0.01  # a range's ends may be this much worse in the mean |log|
STEP = 1.03  # between values tried for a range


def fit_gemms(timings: Mapping[Gemm, float], cluster: Cluster, out_of_cache: bool = True) -> dict[str, Fitted]:
    """The GEMM numbers that reproduce `timings` (seconds by shape) best; `cluster` has all others.

    Its `kernel_gap` is the gap between the products timed. Only `out_of_cache` may operands come faster than from
    memory.
    """
    bounds = {
        name: (low, min(high, 1.0) if name.endswith("efficiency") and not out_of_cache else high)
        for name, (low, high) in BOUNDS.items()
    }
    values = {name: (low * high) ** 0.5 for name, (low, high) in bounds.items()}
    values |= {"gemm_plateau": 0.9, "gemm_wave_efficiency": 0.9}
    spans = {name: log(high / low) for name, (low, high) in bounds.items()}
    best = gemm_error(timings, cluster, values)
    for _ in range(ZOOMS):
        for _ in range(SWEEPS):
            before = best
            for name in bounds:
                for value in _grid(bounds[name], values[name], spans[name]):
                    error = gemm_error(timings, cluster, values | {name: value})
                    if error < best:
                        values[name], best = value, error
            if best > before - 1e-5:
                break
        spans = {name: span / 5 for name, span in spans.items()}
    return {
        name: Fitted(value, *_range(timings, cluster, values, name, bounds[name], best))
        for name, value in values.items()
    }


def _grid(bounds: tuple[float, float], center: float, span: float) -> Sequence[float]:
    low, high = bounds
    steps = (span * (i / (GRID - 1) - 0.5) * 2 for i in range(GRID))
    return [min(high, max(low, center * exp(step))) for step in steps]


def _range(
    timings: Mapping[Gemm, float],
    cluster: Cluster,
    values: dict[str, float],
    name: str,
    bounds: tuple[float, float],
    best: float,
) -> tuple[float, float]:
    """The lowest and the highest value, in steps from the best one, with which the model does about as well."""

    def walk(step: float, end: float) -> float:
        value = values[name]
        while value != end:
            further = max(end, value * step) if step < 1 else min(end, value * step)
            if gemm_error(timings, cluster, values | {name: further}) > best + AS_GOOD:
                break
            value = further
        return value

    low, high = bounds
    return walk(1 / STEP, low), walk(STEP, high)


def gemm_error(timings: Mapping[Gemm, float], cluster: Cluster, values: Mapping[str, float]) -> float:
    """Mean |log(model / measured)| over the products."""
    model = KernelModel(replace(cluster, **values))  # type: ignore[arg-type]
    return sum(abs(log(model.gemm(*shape) / seconds)) for shape, seconds in timings.items()) / len(timings)
