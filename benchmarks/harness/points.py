"""Makes the points of a record from samples: metrics with their samples, or the reason why a point has none."""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Generic, TypeVar

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.timing import Samples
from results.records import Metric, PointResult, fingerprint
from results.records.errors import UnavailableError
from results.records.provenance import scrub

Parameter = int | float | str | bool | None
T = TypeVar("T")


def seconds(samples: Samples) -> Metric:
    """The median time as a metric in seconds, with all samples."""
    return Metric(samples.median, "s", "measured", samples.seconds)


def rate(amount: float, samples: Samples, unit: str) -> Metric:
    """`amount` over the median time as a metric, with the rate of every sample; `unit` is a rate, such as B/s."""
    return Metric(amount / samples.median, unit, "measured", tuple(amount / time for time in samples.seconds))


def paired(ours: Samples, theirs: Samples) -> Metric:
    """The median of their time over ours, sample by sample of steps that took turns."""
    ratios = tuple(b / a for a, b in zip(ours.seconds, theirs.seconds, strict=True))
    return Metric(median(ratios), "1", "measured", ratios)


def timed(samples: Callable[[], Samples], **amounts: tuple[float, str]) -> Callable[[], dict[str, Metric]]:
    """What measures the time, and amounts over it, each with the unit of its rate: bandwidth=(bytes, "B/s")."""

    def metrics() -> dict[str, Metric]:
        taken = samples()
        return {"time": seconds(taken)} | {name: rate(amount, taken, unit) for name, (amount, unit) in amounts.items()}

    return metrics


def size_text(size: int) -> str:
    """A number of bytes as a label: 4096 is '4 KiB'."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


class Once(Generic[T]):
    """Runs a measurement that several points share, at its first call, and returns its result at every call.

    If the measurement fails, every call raises its exception.
    """

    def __init__(self, measure: Callable[[], T]) -> None:
        self._measure = measure
        self._results: list[T] = []
        self._error: Exception | None = None

    def __call__(self) -> T:
        if self._error is not None:
            raise self._error
        if not self._results:
            try:
                self._results.append(self._measure())
            except Exception as error:
                self._error = error
                raise
        return self._results[0]

    def at(self, *keys: Any) -> Callable[[], Any]:
        """What returns the part of the result under the first key, of that the part under the next one, and so on."""

        def part() -> Any:
            found: Any = self()
            for key in keys:
                found = found[key]
            return found

        return part


def attempted(
    setup: Setup,
    series: str,
    label: str,
    parameters: Mapping[str, Parameter],
    measure: Callable[[], Mapping[str, Metric]],
) -> PointResult:
    """The point with the metrics of `measure()`; if that fails, a point that says why (skipped, oom or failed)."""
    from torch import OutOfMemoryError

    key = f"{series}/{label}"
    metrics: Mapping[str, Metric] = {}
    status, reason = "ok", None
    try:
        metrics = measure()
    except UnavailableError as error:
        status, reason = "skipped", str(error)
    except (OutOfMemoryError, MemoryError):
        status, reason = "oom", "the device has too little memory for this size"
    except (RuntimeError, ValueError) as error:  # a RankError is a RuntimeError
        status, reason = "failed", scrub(next(filter(None, str(error).splitlines()), type(error).__name__))
    parameters = {"device": setup.device, **parameters}
    return PointResult(key, series, label, parameters, status, reason, fingerprint(parameters), metrics)
