"""How far the ranges of a cluster's own numbers move what no run was published of: bubbles, phases, communication.

A cluster file says of every number how low and how high it may plausibly be. Each is moved to both ends, all else as in
the file; the moves of a point's metric, as logarithms, add up in quadrature over the numbers. A factor is what 90% of
the points stay within; of ratios, the moves of two points are subtracted before they are added up.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp, log

from pandas import DataFrame, Series, concat

from ptdp_core.simulator import Cluster, ClusterParameter
from reproduce.annex.accuracy.sensitivity import evaluation
from reproduce.experiment.quantities import RANGED, names_of
from reproduce.running.simulated import Simulated
from results.records import PointResult

ABOUT = "Factors of what nothing is published of, from the ranges of the cluster's own numbers: accuracy/ranges.py"
COVERAGE = 0.9
LEAST = 0.005  # of an iteration: what takes less time is not looked at


def factors(
    points: DataFrame,
    evaluators: Mapping[str, Simulated],
    cluster: Cluster,
    parameters: Mapping[str, ClusterParameter],
    on_move: Callable[[str], None] = lambda name: None,
) -> dict[str, dict[str, float]]:
    """For each metric of `made_of.RANGED` the factor of a value, and that of a ratio of two, with how many made it.

    ZeRO-3's points are left out: its time of communication has a margin of its own.
    """
    usual = points[points.config.map(lambda config: config.parallel.data_parallel != "zero3")]
    moved = _moves(usual, evaluators, cluster, parameters, on_move)
    known = {}
    for metric, rows in moved.groupby("metric"):
        table = rows.pivot_table(index=["artifact", "series", "label"], columns=["number", "end"], values="move")
        values, ratios = _together(table), _together(_differences(table))
        known[str(metric)] = {
            "value": _factor(values),
            "ratio": _factor(ratios if len(ratios) else values),
            "n": len(values),
            "n_ratio": len(ratios),
        }
    return known


def _moves(
    points: DataFrame,
    evaluators: Mapping[str, Simulated],
    cluster: Cluster,
    parameters: Mapping[str, ClusterParameter],
    on_move: Callable[[str], None],
) -> DataFrame:
    """A row for each point, metric, number and end of its range: the logarithm of moved over unmoved."""
    names = sorted(names_of(*RANGED))
    shipped = list(map(evaluation(evaluators, cluster), points.itertuples()))
    rows = []
    for number, parameter in parameters.items():
        for end, value in (("low", parameter.low), ("high", parameter.high)):
            if value == parameter.value:
                continue
            evaluate = evaluation(evaluators, replace(cluster, **{number: value}))  # type: ignore[arg-type]
            for row, before in zip(points.itertuples(), shipped, strict=True):
                after = evaluate(row)
                for name in names:
                    if move := _move(before, after, name):
                        place = {"artifact": row.artifact, "series": row.point.series, "label": row.point.label}
                        rows.append(place | {"metric": name, "number": number, "end": end, "move": move})
        on_move(number)
    return DataFrame(rows)


def _move(before: PointResult, after: PointResult, name: str) -> float | None:
    """The logarithm of a metric after over before; None where it is missing, or too small to speak of."""
    values = [point.metrics[name].value if name in point.metrics else None for point in (before, after)]
    if before.status != "ok" or after.status != "ok" or not all(value and value > 0 for value in values):
        return None
    whole = {"s": before.metrics["iteration_time"].value, "1": 1.0}.get(before.metrics[name].unit, 0.0)
    if values[0] < LEAST * whole:  # type: ignore[operator]
        return None
    return log(values[1] / values[0])  # type: ignore[operator]


def _together(moves: DataFrame) -> Series:
    """In quadrature over the numbers, the larger of each one's two ends."""
    return (moves.abs().T.groupby(level="number").max() ** 2).sum() ** 0.5


def _differences(moves: DataFrame) -> DataFrame:
    """Moves of one point less those of another: neighbours in a series, or two series at one x."""
    filled = moves.fillna(0.0)
    along = filled.groupby(level=["artifact", "series"]).diff().dropna()
    across = filled.groupby(level=["artifact", "label"]).diff().dropna()
    return concat([along, across])


def _factor(widths: Series) -> float:
    return exp(float(widths.quantile(COVERAGE, interpolation="higher")))
