"""Every published value that the simulator can be held against, one row each, and what we have for it.

The main quantity of each artifact that can be simulated, at the paper's scale. A configuration that the paper plots
twice, in two figures, has one value twice: only the first is counted.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pandas import DataFrame, Series

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import bubble_fraction, flops_per_iteration, model_flops_per_iteration
from reproduce.annex.accuracy.scores import compared
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.sweep import Point
from results.records import PointResult

# The FLOPs of an iteration that a throughput counts: with the recomputed forward pass (eq. 3), or without.
FLOPS = {"throughput_per_gpu": flops_per_iteration, "model_throughput_per_gpu": model_flops_per_iteration}


def published_points(artifacts: Iterable[Artifact]) -> DataFrame:
    """The published values of the artifacts' main quantities, in their order; none of what cannot be simulated.

    artifact, place            the artifact's id, and its place in the paper: "Figure 12"
    key, name, label           the point's key, and what people call it, without the place and with it
    point, config              the point itself and its training configuration
    quantity, metric           the artifact's main quantity, and the name of its metric
    published, paper           the published value: all that is known of it, and the number, in the metric's unit
    throughput                 whether it is FLOP/s per GPU, which the baselines can be fitted to
    hidden, bubble             what the baselines know of the configuration: h, and (p-1)/(vm)
    identity                   equal for two rows that ask the same of the simulator: metric and all parameters
    counted                    whether it is the first row with its identity
    """
    table = DataFrame(
        _row(artifact, point)
        for artifact in artifacts
        if "simulated" in artifact.fidelities
        for point in artifact.points(artifact.scales[0])
        if artifact.main.name in point.paper
    )
    return table.assign(counted=~table.identity.duplicated())


def _row(artifact: Artifact, point: Point) -> dict[str, Any]:
    metric, config = artifact.main.name, TrainingConfig.from_plain(point.parameters)
    parallel = config.parallel
    return {
        "artifact": artifact.id,
        "place": artifact.label,
        "key": point.key,
        "name": (name := f"{point.series}, {point.label}".strip(", ")),
        "label": f"{artifact.label}: {name}",
        "point": point,
        "config": config,
        "quantity": artifact.main,
        "metric": metric,
        "published": point.paper[metric],
        "paper": float(point.paper[metric].value),
        "throughput": metric in FLOPS,
        "hidden": config.model.hidden,
        "bubble": bubble_fraction(parallel.p, parallel.m, parallel.v),
        # With the defaults: a parameter that says what holds anyway does not make a point another.
        "identity": (metric, *sorted({**point.parameters, **config.to_plain()}.items())),
    }


def beside(table: DataFrame, results: Sequence[PointResult]) -> DataFrame:
    """The rows with their `result`, our value in it (`ours`) and its `error`; both missing without a result.

    `reference` marks what a series is normalised by: 1 on both sides, which shows nothing and is not compared.
    """
    metrics = [result.metrics.get(name) for result, name in zip(results, table.metric, strict=True)]
    values = [
        metric.value if metric is not None and result.status == "ok" else None
        for result, metric in zip(results, metrics, strict=True)
    ]
    ours = Series(values, index=table.index, dtype=float)
    ratio = table.quantity.map(lambda quantity: quantity.unit == "1").astype(bool)
    reference = ratio & (ours == 1) & (table.paper == 1)
    ours = ours.mask(reference | (table.paper == 0))
    return compared(table.assign(result=results, reference=reference, ours=ours))


def disagreements(table: DataFrame) -> list[str]:
    """Where the paper gives two values for one configuration, as lines for people."""
    first = {row.identity: row for row in table[table.counted].itertuples()}
    return [
        f"the paper has two values for one configuration: {earlier.quantity.show(earlier.paper)} in "
        f"{earlier.artifact} ({earlier.name}) and {later.quantity.show(later.paper)} {later.quantity.shown} in "
        f"{later.artifact}; the first is scored"
        for later in table.itertuples()
        if (earlier := first[later.identity]).paper != later.paper
    ]


def plain(table: DataFrame) -> DataFrame:
    """The table, or column, with Python's numbers, and None where there is none: what JSON can hold."""
    return table.astype(object).where(table.notna(), None)
