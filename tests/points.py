"""Results of points, made by hand."""

from collections.abc import Mapping

from results.records import Metric, PaperValue, PointResult


def made(
    key: str = "k",
    metrics: Mapping[str, Metric] | None = None,
    status: str = "ok",
    *,
    series: str = "",
    label: str | None = None,
    reason: str = "why",
    paper: Mapping[str, PaperValue] | None = None,
    **parameters: bool | float | str | None,
) -> PointResult:
    """The result of a point with these parameters, whose label is its key unless it has another."""
    why = None if status == "ok" else reason
    return PointResult(
        key,
        series,
        key if label is None else label,
        parameters,
        status,
        why,
        "0" * 64,
        metrics or {},
        paper=paper or {},
    )
