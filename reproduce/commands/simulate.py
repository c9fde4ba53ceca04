"""`reproduce simulate`: estimates for training configurations of one's own. Imports no torch."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.records import atomic_write_bytes
from benchmarks.records.documents import print_document
from benchmarks.records.errors import DONE, POINTS_FAILED, NothingSelectedError, UsageError
from ptdp_core.config import ModelConfig, ParallelConfig, field_help
from ptdp_core.simulator import PAPER
from reproduce.analysis.planning.models import main_names
from reproduce.analysis.what_if import evaluate
from reproduce.commands import options
from reproduce.experiment import margins
from reproduce.experiment.parameters import REQUIRED
from reproduce.output.terminal import shown_path
from reproduce.output.theme import FORMATS
from reproduce.running.simulated import open_cluster

WIDTH = 120

MODEL = f"{'model':28} In place of a model's fields, or beneath them, one by name: {', '.join(main_names())}."
SOFTWARE = (
    f"{'software=[...]':28} What the training program does beyond Megatron-LM of 2021: a list of "
    f"{', '.join(vars(PAPER))}; by default what the cluster's file says."
)
HELP = f"""POINTS.json is a list of objects. Keys, with their defaults; {", ".join(REQUIRED)} are required:

{field_help(ModelConfig, ParallelConfig)}
  cluster="selene"             A name or a .toml file.
{fill(SOFTWARE, 110, initial_indent="  ", subsequent_indent=31 * " ")}
  label="point N"              What the point is called in the answer.
{fill(MODEL, 110, initial_indent="  ", subsequent_indent=31 * " ")}

example:
  echo '[{{"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "v": 4, "B": 60}}]' > points.json
  reproduce simulate points.json

Every number is simulated; how sure they are stands below the table (docs/margins.md). status: ok; oom (does not fit:
the numbers are what it would take); invalid (no numbers, the reason says why; the other points still run).

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce simulate`."""
    parser.add_argument("file", metavar="POINTS.json", help="the configurations; - reads standard input")
    options.add_cluster(parser, "for points that name none")
    options.add_json(parser)
    parser.add_argument(
        "--plot",
        type=options.path_of,
        metavar="FILE",
        help="draw throughput and iteration time: a .png, .pdf, .svg or .pgf file",
    )


def run(parsed: Namespace) -> int:
    """Estimate the points in the file ('-' for standard input), print them, return the exit code."""
    if parsed.plot and parsed.plot.suffix[1:] not in FORMATS:
        raise UsageError(f"--plot {parsed.plot}: needs a file .{', .'.join(FORMATS)}; try --plot points.png")
    open_cluster(parsed.cluster)
    entries = read_points(parsed.file)
    points = [evaluate(entry, i + 1, parsed.cluster, parsed.debug) for i, entry in enumerate(entries)]
    if parsed.json:
        print_document("simulate", 1, {"origin": "simulated", "points": points})
    else:
        _print(points)
    if parsed.plot:
        _plot(points, parsed.plot)
        if not parsed.json:
            print(shown_path(parsed.plot))
    return DONE if all(point["status"] in ("ok", "oom") for point in points) else POINTS_FAILED


def _plot(points: Sequence[Mapping[str, Any]], path: Path) -> None:
    from reproduce.output import theme
    from reproduce.output.estimate_figure import draw

    with theme.style():
        data = theme.figure_bytes(draw(points), path.suffix[1:], "reproduce simulate")
    atomic_write_bytes(path, data)


def read_points(file: str) -> list[Any]:
    """The list in a JSON file. Raises `UsageError`, with line and column, if it holds none."""
    name = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
        points = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise UsageError(f"{name}: line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        line, column = _place(data[: error.start].decode("utf-8", "replace"))
        raise UsageError(f"{name}: line {line}, column {column}: not UTF-8 text; needs JSON") from None
    except _RepeatedKeyError as error:
        raise UsageError(f"{name}: key {str(error)!r} stands twice in one object; needs every key once") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, nested too deep
        raise UsageError(f"{name}: line 1, column 1: cannot be read as JSON: {error}") from None
    if not isinstance(points, list):
        line, column = _place(text[: len(text) - len(text.lstrip())])
        kind = {dict: "an object", str: "a text", bool: "a truth value", type(None): "null"}.get(
            type(points), "a number"
        )
        raise UsageError(f"{name}: line {line}, column {column}: found {kind}; needs a list: [{{...}}, ...]")
    if not points:
        raise NothingSelectedError(f"{name} holds no points; needs a list of at least one: [{{...}}]")
    return points


class _RepeatedKeyError(ValueError):
    """A key that stands twice in a JSON object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object with each key once: of two values json itself would drop the first without a word."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _RepeatedKeyError(key)
        values[key] = value
    return values


def _place(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


HEADINGS = (
    "point",
    "status",
    "GPUs",
    "iteration (s)",
    "interval (s)",
    "teraFLOP/s per GPU",
    "sequences/s",
    "bubble (%)",
    "memory (GB)",
    "bubble by cause (%)",
)


def _bubble_parts(point: Mapping[str, Any]) -> list[float]:
    """The parts of `bubble_fraction` by cause, in percent."""
    percent = 100 * point["bubble_fraction"] / (point["phase_times"]["bubble"] or 1)
    return [percent * seconds for seconds in point["bubble_times"].values()]


def _print(points: Sequence[Mapping[str, Any]]) -> None:
    from reproduce.output.tables import NONE, print_table, text_table
    from reproduce.output.terminal import console, wrapped

    def row(point: Mapping[str, Any]) -> tuple[str, ...]:
        if point["iteration_time"] is None:
            return (point["label"], point["status"], *[NONE] * (len(HEADINGS) - 2))
        interval = point["intervals"].get("iteration_time")
        return (
            point["label"],
            point["status"],
            str(point["gpus"]),
            f"{point['iteration_time']:.3f}",
            f"{interval['low']:.3f} - {interval['high']:.3f}" if interval else NONE,
            f"{point['throughput_per_gpu'] / 1e12:.1f}",
            f"{point['sequences_per_s']:.2f}",
            f"{point['bubble_fraction']:.1%}".rstrip("%"),
            f"{point['peak_memory'] / 1e9:.1f}",
            "{:.1f} {:+.1f} {:+.1f}".format(*_bubble_parts(point)),
        )

    out = console(WIDTH)
    clusters = ", ".join(dict.fromkeys(point["cluster"] for point in points if point["cluster"]))
    title = f"simulated on {clusters}" if clusters else "simulated"
    print_table(out, text_table(HEADINGS, [row(point) for point in points]), title)
    wrapped(out, "bubble by cause: fill and drain, stage imbalance, waiting for messages (docs/metrics.md)")
    for cluster in dict.fromkeys(point["cluster"] for point in points if point["cluster"]):
        for line in margins.lines(margins.read(cluster)):
            wrapped(out, f"{cluster}: {line}")
    for point in points:
        if point["reason"]:
            out.print(f"{point['label']}: {point['status']}: {point['reason']}", soft_wrap=True)
