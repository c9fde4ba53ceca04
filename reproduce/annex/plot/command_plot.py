"""`reproduce plot NAME ...`: draws the figures of artifacts and of benchmarks again, from their records alone."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness.benchmark_list import BENCHMARKS, record_path
from reproduce.annex import part
from reproduce.annex.plot import own_points
from reproduce.commands.options import add, path_of
from reproduce.experiment import catalog
from reproduce.output import figures, theme
from reproduce.output.terminal import shown_path
from reproduce.running.runner import RECORD, record_paths
from results.records import Record, errors, read_record, write_files
from results.records.documents import print_document
from results.records.errors import NothingSelectedError, UsageError, did_you_mean

HELP = """\
NAME is an artifact (reproduce list) or a benchmark (reproduce bench list); without one, everything that has a
record. Nothing runs: the figure next to each record is drawn again from what the record says.

--for icml writes figure_icml.*, in the widths, letters and sizes that its papers have, without the small print: it goes
to figure_icml.txt, for the caption, and the numbers that are drawn to figure_icml.csv. --for paper does so in the usual
size. --with draws the record of one line chart together with those of other results folders (or of single records,
named by their folder or file) into overlay.*: one's own cluster against Selene, before against after, measured against
simulated. --points does the same with points of one's own, in the units of the axes: a CSV file with the columns
series, x, value and, if there are, low and high; x and value may be named as the figure's table names them. A series of
the figure's name has its colour. A PDF and an SVG hold their numbers as CSV, and each file says what it shows.

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce plot`."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="artifacts and benchmarks (default: all with a record)"
    )
    parser.add_argument(
        "--with", dest="others", type=_paths, metavar="RESULTS[,RESULTS]", help="draw these results of NAME, too"
    )
    parser.add_argument(
        "--points", type=path_of, metavar="FILE.csv", help="draw these points, too: series, x, value[, low, high]"
    )
    parser.add_argument("--label", metavar="TEXT", help="what the legend calls --points (default: the file's name)")
    parser.add_argument(
        "--for", dest="style", choices=theme.STYLES, default=theme.STYLES[0],
        help="what is published: with widths and letters of the venue, and caption and numbers in files beside it",
    )  # fmt: skip
    parser.add_argument(
        "--format", dest="formats", type=_formats, metavar="FORMAT[,FORMAT]", default=theme.USUAL.formats,
        help=f"of {', '.join(theme.FORMATS)} (default: {','.join(theme.USUAL.formats)})",
    )  # fmt: skip
    parser.add_argument(
        "--width", type=_width, metavar="column|page|INCHES",
        help=f"column: {theme.COLUMN} in, page: {theme.PAGE} in (default: the venue's, or what it was made for)",
    )  # fmt: skip
    parser.add_argument("--font", choices=tuple(theme.FONTS), help="(default: serif for a venue, else sans)")
    add(parser, "json", "results")


def _formats(text: str) -> tuple[str, ...]:
    formats = tuple(dict.fromkeys(text.split(",")))
    if unknown := [name for name in formats if name not in theme.FORMATS]:
        raise ArgumentTypeError(f"unknown format {unknown[0]!r}; needs some of {', '.join(theme.FORMATS)}")
    return formats


def _width(text: str) -> float:
    try:
        return theme.width_of(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _paths(text: str) -> tuple[Path, ...]:
    if not all(text.split(",")):
        raise ArgumentTypeError(f"an empty name in {text!r}; needs folders, separated by commas")
    return tuple(map(path_of, text.split(",")))


def run(parsed: Namespace) -> int:
    """Draw the figures of the names given, or of all there is; returns the exit code."""
    names, results, program = catalog.named(parsed.names), parsed.results, parsed.program
    known = (*catalog.ids(), *BENCHMARKS)
    for name in names:
        if name not in known:
            raise UsageError(f"unknown artifact or benchmark {name!r}{did_you_mean(name, known)}")
    for place in parsed.others or ():
        if not place.exists():
            raise UsageError(f"--with {place} does not exist; needs a results folder, or a record; try another path")
    records = {name: _records(results, name) for name in dict.fromkeys(names or known)}
    for name in names:
        if not records[name]:
            how = f"reproduce bench run {name}" if name in BENCHMARKS else f"{program} {name}"
            raise NothingSelectedError(f"{name} has no record in {shown_path(results)}; try {how}")
    look = theme.look_of(parsed.style, parsed.font, parsed.width, parsed.formats)
    ending = f"_{parsed.style}" if look.captioned else ""
    if parsed.label and not parsed.points:
        raise UsageError("--label without --points; needs points to name; try --points mine.csv")
    if parsed.others or parsed.points:
        places = [parsed.results, *(parsed.others or ())]
        drawn = _overlay(names, records, places, parsed.points, look, f"overlay{ending}", parsed.label)
    else:
        paths = [(name, path) for name, paths in records.items() for path in paths]
        drawn = [file for name, path in paths for file in _draw(name, path, look, f"figure{ending}")]
    if not drawn:
        raise NothingSelectedError(f"nothing to draw in {shown_path(results)}; try {program} fig_interleaved")
    if parsed.json:
        print_document("plot", 1, {"files": [str(path) for path in drawn]})
    else:
        print(*map(shown_path, drawn), sep="\n")
    return errors.DONE


def _records(results: Path, name: str) -> list[Path]:
    if name in BENCHMARKS:
        return [path] if (path := record_path(results, name)).exists() else []
    return record_paths(results, catalog.load(name))


def _draw(name: str, path: Path, look: theme.FigureLook, stem: str) -> list[Path]:
    record = read_record(path)
    if name in BENCHMARKS:
        return write_files(path.parent, part("bench", "benchmark_figures").render(record, look, stem))
    return write_files(path.parent, figures.render(catalog.load(name).at(record.scale), record, look, stem))


def _overlay(
    names: Sequence[str],
    chosen: Mapping[str, list[Path]],
    places: Sequence[Path],
    points: Path | None,
    look: theme.FigureLook,
    stem: str,
    label: str | None = None,
) -> list[Path]:
    """Draw one artifact's first record together with the one of each other place that is most like it, and `points`."""
    option = "--with" if places[1:] else "--points"
    if len(names) != 1:
        raise UsageError(f"{option} draws one figure; needs one NAME; try reproduce plot fig_interleaved {option}")
    (name,) = names
    artifact = None if name in BENCHMARKS else catalog.load(name)
    if artifact is None or artifact.draw is not figures.line_plot:
        raise UsageError(f"{name} is no line chart; {option} needs one; try fig_interleaved")
    first = chosen[name][0]
    paths = [first, *(_like(first, name, place) for place in places[1:])]
    records = [read_record(path) for path in paths]
    for path, record in zip(paths, records, strict=True):
        if record.id != name:
            raise UsageError(f"{path} holds the record of {record.id}; needs one of {name}")
    texts, shown = _names(records, places), artifact.at(records[0].scale)
    own = {label or points.stem: own_points.read_points(points, shown, records[0])} if points else {}
    try:
        files = figures.render_overlay(shown, dict(zip(texts, records, strict=True)), own, look, stem)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return write_files(first.parent, files)


def _like(first: Path, name: str, place: Path) -> Path:
    """The record at a place: itself, in its folder, or in a results folder the one of the first's fidelity, if any."""
    if place.is_file():
        return place
    if (place / RECORD).is_file():
        return place / RECORD
    paths = _records(place, name)
    if not paths:
        raise NothingSelectedError(f"{name} has no record in {place}; needs a results folder, or a record's own folder")
    return next((path for path in paths if path.parent.name == first.parent.name), paths[0])


def _names(records: Sequence[Record], places: Sequence[Path]) -> list[str]:
    """What the legend calls the results: the first of fidelity, cluster and place in which all of them differ."""
    clusters = [record.provenance.cluster for record in records]
    candidates = (
        [record.fidelity for record in records],
        [cluster.name if cluster else "" for cluster in clusters],
        [place.absolute().name for place in places],
    )
    different = [texts for texts in candidates if len(set(texts)) == len(texts) and all(texts)]
    return different[0] if different else [f"{number}: {place}" for number, place in enumerate(places, 1)]
