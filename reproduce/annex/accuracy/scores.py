"""How good predictions are: their relative errors, rank correlation, and naive baselines; and how they are written.

Takes DataFrames with a row per prediction: `label` names it for people, `ours` and `paper` are in the same unit, the
paper's not zero, and `error` is ours relative to the paper's: +0.1 is 10% too high.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import correlation
from typing import Any

from pandas import DataFrame, Series

from reproduce.output.columns import Column, key
from reproduce.output.terminal import percent
from reproduce.running.runner import RECORD
from results.records import Metric, PointResult, Record, fingerprint, write_files, write_record

signed_percent = partial(percent, signed=True)
# The columns of a table with a score, as plain data, in each row; the median error only where there is one.
COLUMNS = {
    "n": Column("n", key("n")),
    "mean": Column("mean", key("mean"), form=percent),
    "median": Column("median", key("median"), form=percent),
    "bias": Column("bias", key("bias"), form=signed_percent),
    "rank": Column("rank", key("rank"), form=".3f"),
    "worst": Column("worst", key("worst"), form=signed_percent),
    "at": Column("at", key("worst_point")),
}


@dataclass(frozen=True)
class Score:
    """Of n predictions: mean absolute error, bias (mean error), the worst error and its point, rank correlation.

    `rank` is Spearman's, None where there is none: fewer than three predictions, or all values of a side equal.
    """

    worst_point: str
    n: int
    mean: float
    bias: float
    worst: float
    rank: float | None

    def shares(self, baselines: Mapping[str, float]) -> dict[str, float | None]:
        """The score and the mean errors of baselines, by the names that records have for them."""
        return {
            "mean_error": self.mean,
            "bias": self.bias,
            "worst_error": self.worst,
            "rank_correlation": self.rank,
            **{f"baseline_{name}": error for name, error in baselines.items()},
        }

    def record_point(self, key: str, label: str, baselines: Mapping[str, float]) -> PointResult:
        """The score and the mean errors of baselines as a point of a record."""
        shares = self.shares(baselines)
        metrics = {name: Metric(value, "1", "derived") for name, value in shares.items() if value is not None}
        metrics["points"] = Metric(self.n, "count", "derived")
        return derived_point(f"score:{key}", "score", label, {"worst_point": self.worst_point}, metrics)


def derived_point(
    key: str, series: str, label: str, parameters: Mapping[str, Any], metrics: Mapping[str, Metric]
) -> PointResult:
    """A point of a record that is no run of its own, but follows from others."""
    digest = fingerprint({"key": key, "parameters": parameters})
    return PointResult(key, series, label, parameters, "ok", None, digest, metrics)


def write_comparison(folder: Path, figures: Mapping[str, bytes], **of_record: Any) -> tuple[Path, ...]:
    """Write the record of a comparison and its figures, the record last. Raises `StorageError`."""
    record = Record(kind="comparison", paper=None, state="complete", **of_record)
    files = write_files(folder, figures)
    write_record(record, folder / RECORD)
    return (folder / RECORD, *files)


def compared(table: DataFrame) -> DataFrame:
    """The table with the column `error`."""
    return table.assign(error=table.ours / table.paper - 1)


def score(table: DataFrame) -> Score:
    """The score of at least one prediction. Raises ValueError for none."""
    if table.empty:
        raise ValueError("rows=0 to score; needs at least one prediction beside a published value")
    worst = table.iloc[table.error.abs().argmax()]
    return Score(
        worst_point=worst.label,
        n=len(table),
        mean=mean_error(table.error),
        bias=mean(table.error),
        worst=float(worst.error),
        rank=spearman(table.ours, table.paper),
    )


def mean(values: Series) -> float:
    """The mean, added up in order. `Series.mean` adds in another one where bottleneck is installed."""
    return sum(values) / len(values)


def mean_error(errors: Series) -> float:
    """Mean absolute error."""
    return mean(errors.abs())


def spearman(xs: Series, ys: Series) -> float | None:
    """Spearman's rank correlation, ties with mean ranks; None for fewer than three pairs or a side without order."""
    if len(xs) < 3 or min(xs.nunique(), ys.nunique()) < 2:
        return None
    return correlation(xs.rank(), ys.rank())


def baselines(table: DataFrame) -> dict[str, float]:
    """The mean absolute errors of the best constant, straight line in `hidden`, and constant over 1 + `bubble`.

    The baselines know the published values: each is fitted to the very points it is scored on, and to the very score,
    the mean absolute error. Such a fit goes exactly through as many points as it has coefficients, so trying all of
    those finds the best one. The constant over 1 + (p-1)/(vm) is the paper's bubble formula (Section 2.2).
    """
    paper, hidden = table.paper.to_numpy(), table.hidden.to_numpy()

    def loss(predictions: Any) -> float:
        return float(sum(abs(predictions / paper - 1)) / len(paper))

    shape = 1 / (1 + table.bubble.to_numpy())
    constant = min(map(loss, paper))
    lines = (
        loss(y + (other_y - y) / (other_x - x) * (hidden - x))
        for (x, y), (other_x, other_y) in combinations(zip(hidden, paper, strict=True), 2)
        if x != other_x
    )
    return {
        "constant": constant,
        "line_in_h": min([constant, *lines]),  # the constant is all there is where every h is the same
        "constant_with_bubble": min(loss(factor * shape) for factor in paper / shape),
    }
