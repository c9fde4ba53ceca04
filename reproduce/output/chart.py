"""A chart before it is drawn: its points, as plain values in the units that it shows, and its small print.

The small print says where the numbers come from, and how far they are from the paper's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import OURS
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.judging import accuracy, judgement
from reproduce.experiment.predictions import PREFIX, time_differences
from reproduce.experiment.results import MissingResultError, Results, counted
from reproduce.experiment.sweep import CPU, LAPTOP
from reproduce.output.columns import column, ends
from reproduce.output.tables import clusters_of, origin_of, paper_sources
from results.records import PointResult, Record

OWN_ORIGIN = "own points"  # of the rows of points that no record has
LEAST_SHOWN = 0.0005  # of a difference that is not 0.0%


@dataclass(frozen=True)
class Mark:
    """A point: `at` is its value on the x axis and `x` the place where it is drawn; a number that it lacks is None.

    `paper` is the published value, `predicted` what was predicted before it ran, `result` the name of the result that
    it is from.
    """

    series: str
    x: Any
    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    predicted: float | None = None
    label: str = ""
    status: str = "ok"
    at: Any = None
    result: str = ""


def chart_data(
    artifact: Artifact, records: Mapping[str, Record], own: Mapping[str, Sequence[Mark]] = {}
) -> tuple[Mark, ...]:
    """The points of records, by the results' names, with the main quantity; and points of one's `own`.

    Along categories they stand at 0, 1, ..., in the order in which these come. Raises `MissingResultError` for none.
    """
    assert artifact.x_axis is not None
    of_records = {name: [_mark(artifact, point) for point in record.points] for name, record in records.items()}
    marks = [replace(mark, result=name) for name, of in [*of_records.items(), *own.items()] for mark in of]
    if not marks:
        raise MissingResultError("none of the points that it shows was evaluated")
    places = {value: place for place, value in enumerate(dict.fromkeys(mark.at for mark in marks))}
    category = artifact.x_axis.scale == "category"
    return tuple(replace(mark, x=places[mark.at] if category else float(mark.at)) for mark in marks)


def _mark(artifact: Artifact, point: PointResult) -> Mark:
    """A point of a record, with its numbers in the unit that is shown."""
    assert artifact.x_axis is not None
    name, at = artifact.main.name, point.parameters[artifact.x_axis.parameter]
    values: dict[str, Any] = {"value": point.metrics.get(name), "paper": point.paper.get(name)}
    values["predicted"] = point.metrics.get(PREFIX + name)
    numbers = {which: found.value for which, found in values.items() if found}
    if ours := point.metrics.get(name):
        numbers |= zip(("low", "high"), ends(ours), strict=False)
    shown = {which: number / artifact.main.factor for which, number in numbers.items() if number is not None}
    return Mark(point.series, None, label=point.label, status=point.status, at=at, **shown)


def own_rows(
    artifact: Artifact, records: Mapping[str, Record], own: Mapping[str, Sequence[Mark]]
) -> Iterator[dict[str, Any]]:
    """Points of one's own as rows beside those of `records`, in base units: keys have their name, origins say so."""
    assert artifact.x_axis is not None
    main = artifact.main
    scale = next(iter(records.values())).scale
    for name, points in own.items():
        for number, mark in enumerate(points, 1):
            told = {"artifact": artifact.id, "scale": scale, "key": f"{name}/{number}", "series": mark.series}
            told |= {"label": mark.label, column(artifact.x_axis.parameter): mark.at, "metric": main.name}
            shown = {"value": mark.value, "low": mark.low, "high": mark.high}
            base = {place: None if size is None else size * main.factor for place, size in shown.items()}
            yield told | base | {"unit": main.unit, "origin": OWN_ORIGIN, "status": mark.status}


def in_panels(marks: Iterable[Mark], between: str) -> dict[str, list[Mark]]:
    """The points by what their series' names end with, 'b' of 'a on b' with ' on ' between; the names are 'a' then."""
    panels: dict[str, list[Mark]] = {}
    for mark in marks:
        series, _, panel = mark.series.rpartition(between)
        panels.setdefault(panel, []).append(replace(mark, series=series))
    return panels


def of_series(marks: Iterable[Mark], series: str) -> list[Mark]:
    """The points of a series that have a value, along the x axis."""
    there = (mark for mark in marks if mark.series == series and mark.value is not None)
    return sorted(there, key=lambda mark: mark.x)


def at_each_x(marks: Iterable[Mark]) -> list[Mark]:
    """The first of these points at each place, in their order."""
    first: dict[Any, Mark] = {}
    for mark in marks:
        first.setdefault(mark.x, mark)
    return list(first.values())


def numbers(marks: Iterable[Mark], *names: str) -> list[float]:
    """These numbers of the points, as far as they have them."""
    found = (getattr(mark, name) for mark in marks for name in names)
    return [number for number in found if number is not None]


def origin_lines(artifact: Artifact, record: Record) -> list[str]:
    """What the foot of a figure says: origin of our numbers and the paper's, how far apart they are."""
    times = time_differences(record.points) if FIDELITIES[record.fidelity].timed else None
    parts = (_source(record), "short bars: simulated" if times else "", _paper_note(artifact, [record]))
    lines = ["; ".join(filter(None, parts))]
    if times:
        lines.append(
            f"iteration time: mean error {times.mean:.1%} on {counted(times.count)} (worst {times.worst:+.1%})"
        )
    lines += filter(None, [_apart(artifact, record)])
    lines += _on_shared_cores(artifact, record)
    if record.state != "complete":
        lines.append("PARTIAL: the run was interrupted")
    return lines


def _apart(artifact: Artifact, record: Record) -> str:
    """How far a record is from what is published of it; '' if nothing is."""
    difference = accuracy(artifact, record.points)
    if not difference:
        return ""
    count = "1 published point" if difference.count == 1 else f"{difference.count} published points"
    if difference.equal == difference.count:
        return f"all {difference.count} points equal the paper's, as rounded"
    if difference.worst < LEAST_SHOWN:
        return f"at most {difference.worst:.2%} off on {count}"
    return f"mean error {difference.mean:.1%} on {count} (worst {difference.worst_signed:+.1%})"


def overlay_lines(artifact: Artifact, records: Mapping[str, Record], own: Sequence[str] = ()) -> list[str]:
    """Likewise of several results in one figure, by name, and of points of the reader's `own`."""
    texts = {name: _source(record) for name, record in records.items()}
    lines = [text if text.startswith(name) else f"{name}: {text}" for name, text in texts.items()]
    lines += [f"{name}: the reader's own points" for name in own]
    return [*lines, *filter(None, [_paper_note(artifact, records.values())])]


def overlay_caption(artifact: Artifact, records: Mapping[str, Record], own: Iterable[str] = ()) -> str:
    """Likewise as sentences to print below the figure, with how far each result is from the paper's."""
    said = []
    for name, record in records.items():
        how, _, source = _source(record, "the ").partition(": ")
        come = f"{how} values come" if name == how else f"values of {name} are {how} and come"
        text = f"The {come} from {source}" if source else f"The values of {name} were {how}"
        said.append(": ".join(filter(None, [text, _apart(artifact, record)])))
    said += [f"Markers with black edges show {name}" for name in own]
    sources = paper_sources(artifact.main.name, [point for record in records.values() for point in record.points])
    said += [f"Hollow markers are the paper's values, read from its {sources}"] if sources else []
    return ". ".join(said)


def interval_label(artifact: Artifact, records: Iterable[Record]) -> str:
    """What the legend calls the intervals of the main quantity, such as '90% interval'; '' if there are none."""
    metrics = (point.metrics.get(artifact.main.name) for record in records for point in record.points)
    coverages = sorted({metric.interval.coverage for metric in metrics if metric and metric.interval})
    if not coverages:
        return ""
    least, most = (f"{coverage:.0%}" for coverage in (coverages[0], coverages[-1]))
    return f"{most if least == most else f'{least} to {most}'} interval"


def cluster_title(name: str) -> str:
    """A cluster's name as people write it: 'gb200' is GB200, 'a100-80' A100-80, 'selene' Selene."""
    machine, dash, rest = name.partition("-")
    upper = any(letter.isdigit() for letter in machine)
    return f"{machine.upper() if upper else machine.capitalize()}{dash}{rest}"


def _source(record: Record, article: str = "") -> str:
    """Where the numbers of a record come from, with an article before its clusters' model."""
    clusters = [cluster_title(name) for name in clusters_of(record)]
    model = f"{article}{' and '.join(clusters)} model{'s' * (len(clusters) > 1)}" if clusters else ""
    if record.fidelity == "measured":
        return f"measured: ptdp's engine on {devices(record)}; bars: 80% of the samples"
    if record.fidelity == "emulated":
        return f"emulated: ptdp's engine in real time{model and f', {model}'}"
    if origin_of(record) == "measured":
        return "measured elsewhere"
    return f"{record.fidelity}: ptdp{model and f' on {model}'}"


def _paper_note(artifact: Artifact, records: Iterable[Record]) -> str:
    """How the paper's values were read, if there are any."""
    sources = paper_sources(artifact.main.name, [point for record in records for point in record.points])
    return f"paper's values: {sources}" if sources else ""


def devices(record: Record) -> str:
    """What a measured record was measured on, in a few words."""
    host = record.provenance.host
    if record.scale == CPU:
        return f"{host.logical_cores} cores of a CPU"
    used = 1 if record.scale == "gpu" else host.gpu_count
    return f"{used} x {host.gpus[0]}" if host.gpus else "GPUs"


def _on_shared_cores(artifact: Artifact, record: Record) -> list[str]:
    """That a run on shared CPU cores tests no claim, and which claims about a direction come out reversed there."""
    if record.scale != CPU:
        return []
    results, reversed_here = Results.of_record(record), []
    for claim in artifact.claims:
        if LAPTOP in claim.scales and judgement(claim, results).verdict == "contradicted":
            reversed_here.append(claim.id.replace("_", " "))
    whose = "the" if artifact.place == OURS else "the paper's"
    no_test = f"the ranks share these cores: no test of {whose} claims for GPUs"
    return [f"{no_test},", f"of which come out reversed: {', '.join(reversed_here)}"] if reversed_here else [no_test]
