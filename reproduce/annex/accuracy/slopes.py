"""Slopes and intercepts: which part of an iteration's error grows with the batch, and which is there at any batch size.

Where the paper publishes several batch sizes of one configuration, its iteration times lie on a line over the number
of microbatches m: the slope is what a microbatch costs (layers, tensor parallelism, logits), the intercept what an
iteration costs anyway (pipeline fill, gradient all-reduce, optimizer). The line through our times shows which is off.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import linear_regression
from typing import Any

from pandas import DataFrame

from ptdp_core.config import TrainingConfig
from reproduce.annex.accuracy.published_points import FLOPS
from reproduce.experiment import quantities as q
from reproduce.output.columns import Table, keyed

SIZES = ("p", "t", "d", "v", "b")
NOTE = "ms per m: layers, tensor parallelism, logits; rest: pipeline fill, gradient all-reduce, optimizer."
WITHOUT = {"recompute": ("none", ", no recomputation"), "scatter_gather": (False, ", no scatter/gather")}


def seconds(config: TrainingConfig, metric: str, value: float) -> float:
    """The time of an iteration with a throughput, in FLOP/s per GPU or sequences/s."""
    if metric == q.SEQUENCES.name:
        return config.parallel.B / value
    return FLOPS[metric](config.model, config.parallel.B) / (config.parallel.n * value)


def slopes(values: DataFrame) -> list[dict[str, Any]]:
    """The lines of every configuration that an artifact publishes at two or more batch sizes, in its order.

    As plain data: the artifact, the configuration without the batch size, its numbers of microbatches, and the lines
    through our times and through the published ones, in s and s for each microbatch.
    """
    known = values[values.ours.notna() & values.metric.isin([*FLOPS, q.SEQUENCES.name])]
    known = known.assign(
        m=[config.parallel.m for config in known.config],
        but_batch=[tuple((name, x) for name, x in config.to_plain().items() if name != "B") for config in known.config],
    )
    return [
        {
            "artifact": artifact,
            "paper": points.place.iloc[0],
            "configuration": dict(but_batch),
            "microbatches": sorted(set(points.m)),
            "ours": _line(points, points.ours),
            "published": _line(points, points.paper),
        }
        for (artifact, but_batch), points in known.groupby(["artifact", "but_batch"], sort=False)
        if points.m.nunique() > 1
    ]


def _line(points: DataFrame, throughputs: Iterable[float]) -> dict[str, float]:
    """The least-squares line of the iteration times over m."""
    times = map(seconds, points.config, points.metric, throughputs)
    slope, intercept = linear_regression(points.m.tolist(), list(times))
    return {"slope": slope, "intercept": intercept}


def table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """One row per configuration: what a microbatch takes and what an iteration takes besides, ours and the paper's."""
    rows = []
    for each in lines:
        configuration, m, ours, paper = (each[k] for k in ("configuration", "microbatches", "ours", "published"))
        without = [text for name, (value, text) in WITHOUT.items() if configuration[name] == value]
        row = {"of": each["paper"] + "".join(without), "m": f"{m[0]} to {m[-1]}"}
        row |= {size: configuration[size] for size in SIZES}
        row |= {"ms per m": ours["slope"], "paper": paper["slope"], "error": ours["slope"] / paper["slope"] - 1}
        row |= {"rest": ours["intercept"], "paper's": paper["intercept"]}
        rows.append(row | {"differs": ours["intercept"] - paper["intercept"]})
    columns = [
        *keyed("of", *SIZES, "m"),
        *keyed("ms per m", "paper", form=".1f", factor=1e-3),
        *keyed("error", form="+.1%"),
        *keyed("rest", form=".3f", unit="s"),
        *keyed("paper's", form=".3f"),
        *keyed("differs", form="+.3f"),
    ]
    return Table(columns, rows)
