"""`reproduce simulate`: estimates for training configurations of one's own. Imports no torch."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import field_help
from ptdp_core.simulator import PAPER, Cluster, simulate
from ptdp_core.simulator.programs import program_names
from reproduce.annex import part
from reproduce.commands import options
from reproduce.experiment import margins
from reproduce.experiment.metrics import MetricDef, listed
from reproduce.experiment.sweep import KEYS, REQUIRED
from reproduce.output.columns import Column, Table, chosen, key
from reproduce.output.tables import print_table
from reproduce.output.terminal import console, shown_path, wrapped
from reproduce.output.theme import FORMATS
from reproduce.planning.models import main_names, with_model_fields
from reproduce.planning.what_if import configuration, evaluate, unmodelled
from reproduce.running.simulated import open_cluster
from results import opening
from results.records import atomic_write_bytes
from results.records.documents import print_document
from results.records.errors import DONE, POINTS_FAILED, NothingSelectedError, UsageError

if TYPE_CHECKING:
    from reproduce.planning.run_cost import TrainingRun

WIDTH = 120

MODEL = f"In place of a model's fields, or beneath them, one by name: {', '.join(main_names())}."
SOFTWARE = (
    "What the training program does beyond Megatron-LM of 2021: a list of "
    f"{', '.join(vars(PAPER))}; by default what the program does."
)
PROGRAM = (
    f"The training program, by default --program's: {', '.join(program_names())}; of a release as "
    "'megatron-bridge@26.04'."
)
FIELDS = KEYS
HELP = f"""POINTS.json is a list of objects. Keys, with their defaults; {", ".join(REQUIRED)} are required:

{field_help(ModelConfig, ParallelConfig)}
  cluster="selene"  A name or a .toml file.
  program  {PROGRAM}
  software=[...]  {SOFTWARE}
  lengths  Of samples, packed into sequences, B of them in a step: [[512, 1000], ...] or a file.
  label="point N"  What the point is called in the answer.
  B  May be tokens, such as "4M" (4 x 1024 x 1024).
  model  {MODEL}

example:
  reproduce simulate model=llama-3-70b p=4 t=8 B=256 seq=8192 cluster=h100
  echo '[{{"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "v": 4, "B": 60}}]' > points.json
  reproduce simulate points.json

Every number is simulated; how sure they are stands below the table (docs/margins.md). status: ok; oom (does not fit:
the numbers are what it would take); invalid (no numbers, the reason says why; the other points still run).

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce simulate`."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="POINTS.json | key=value",
        help="the configurations, - reads standard input; or the keys of one",
    )
    options.add_cluster(parser, "for points that name none")
    options.add(parser, "program", "columns")
    options.add_run(parser)
    parser.add_argument(
        "--lengths",
        type=options.path_of,
        metavar="FILE",
        help="lengths of samples, one a line, or each with how many have it: packed into sequences of seq tokens",
    )
    parser.add_argument(
        "--checkpoint-rate",
        type=options.above_zero,
        metavar="GB/S",
        help="what all GPUs together write to storage: checkpoints' sizes by format, seconds, and host memory",
    )
    options.add(parser, "json")
    parser.add_argument(
        "--plot",
        type=options.path_to_write,
        metavar="FILE",
        help="draw throughput and iteration time, or with --sensitivity the gains: a .png, .pdf, .svg or .pgf file",
    )


def run(parsed: Namespace) -> int:
    """Estimate the points in the file ('-' for standard input), print them, return the exit code."""
    if parsed.plot and parsed.plot.suffix[1:] not in FORMATS:
        raise UsageError(f"--plot {parsed.plot}: needs a file .{', .'.join(FORMATS)}; try --plot points.png")
    columns = chosen(table_columns(), parsed.columns)
    run = options.run_of(parsed)
    open_cluster(parsed.cluster, parsed.trainer)
    entries = _entries(parsed.words)
    if parsed.lengths is not None:
        entries = [{"lengths": str(parsed.lengths), **entry} if isinstance(entry, dict) else entry for entry in entries]
    rate = None if parsed.checkpoint_rate is None else parsed.checkpoint_rate * 1e9
    asked: dict[str, Any] = {"run": run, "sensitivity": parsed.sensitivity, "checkpoint_rate": rate}
    points = [
        evaluate(entry, i + 1, parsed.cluster, parsed.debug, parsed.trainer, **asked) for i, entry in enumerate(entries)
    ]
    if parsed.json:
        print_document("simulate", 1, {"origin": "simulated", "points": points})
    else:
        _print(points, entries, columns, run, parsed.trainer)
        if rate is not None:
            from reproduce.planning import checkpoints

            for point in points:
                for line in checkpoints.lines(point["checkpoint"], rate) if "checkpoint" in point else ():
                    wrapped(console(WIDTH), f"{point['label']}: {line}")
    if parsed.plot:
        _plot(points, parsed.plot, parsed.sensitivity)
        if not parsed.json:
            print(shown_path(parsed.plot))
    return DONE if all(point["status"] in ("ok", "oom") for point in points) else POINTS_FAILED


def _plot(points: Sequence[Mapping[str, Any]], path: Path, sensitivity: bool) -> None:
    from reproduce.output import theme

    drawn = part("plot", "estimate_figure")
    with theme.style():
        figure = drawn.draw_elasticities(points) if sensitivity else drawn.draw(points)
        data = theme.figure_bytes(figure, path.suffix[1:], "reproduce simulate")
    atomic_write_bytes(path, data)


def _entries(words: Sequence[str]) -> list[Any]:
    """The points in a file, or the one whose keys are written out as words: 'model=llama-3-70b', 't=8'."""
    if "=" not in words[0] or Path(words[0]).exists():
        if len(words) > 1:
            raise UsageError(
                f"{words[1]!r} after {words[0]!r}; needs one file, or key=value for every key of one point"
            )
        return read_points(words[0])
    return [options.key_values(words, "t=8 (reproduce simulate --help has all)")]


def read_points(file: str) -> list[Any]:
    """The list in a JSON file, or in a word that is the list. Raises `UsageError`, with line and column, for none."""
    written = file.lstrip()[:1] in ("[", "{")
    name = {"-": "standard input"}.get(file, "the list given" if written else file)
    try:
        data = file.encode() if written else sys.stdin.buffer.read() if file == "-" else opening.read_bytes(file)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}; needs a JSON file, a list in quotes, or -") from None

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """A JSON object with each key once: of two values json itself would drop the first without a word."""
        if len(values := dict(pairs)) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise UsageError(f"{name}: key {repeated!r} stands twice in one object; needs every key once")
        return values

    def wrong(before: str, what: str) -> UsageError:
        """An error at the place after the text `before`."""
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return UsageError(f"{name}: line {line}, column {column}: {what}")

    try:
        text = data.decode("utf-8-sig")
        points = json.loads(text, object_pairs_hook=as_object)
    except json.JSONDecodeError as error:
        raise wrong(error.doc[: error.pos], f"not valid JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise wrong(data[: error.start].decode("utf-8", "replace"), "not UTF-8 text; needs JSON") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, nested too deep
        raise wrong("", f"cannot be read as JSON: {error}") from None
    if not isinstance(points, list):
        kinds = {dict: "an object", str: "a text", bool: "a truth value", type(None): "null"}
        what = f"found {kinds.get(type(points), 'a number')}; needs a list: [{{...}}, ...]"
        raise wrong(text[: len(text) - len(text.lstrip())], what)
    if not points:
        raise NothingSelectedError(f"{name} holds no points; needs a list of at least one: [{{...}}]")
    return points


def read_point(words: Sequence[str], cluster: str, program: str | None = None) -> tuple[TrainingConfig, Cluster]:
    """The one configuration of a JSON file or of words, and its cluster with its program, or else those of these names.

    What of its model is not modelled is said on stderr. Raises `UsageError` also for what that cluster cannot run.
    """
    points, file = _entries(words), words[0] if len(words) == 1 else "the words given"
    if len(points) > 1:
        raise UsageError(f"{file} holds {len(points)} points; needs the one that was run")
    try:
        if left_out := unmodelled(points[0]):
            print(f"reproduce: {file}: not modelled: {left_out}", file=sys.stderr)
        found = configuration(points[0], cluster, program)
        simulate(*found)
        return found
    except ConfigurationError as error:
        raise UsageError(f"{file}: {error}") from None


def _interval(point: Mapping[str, Any]) -> str | None:
    interval = (point["intervals"] or {}).get("iteration_time")
    return f"{interval['low']:.3f} - {interval['high']:.3f}" if interval else None


def _idle_parts(point: Mapping[str, Any]) -> str | None:
    """The parts of `idle_fraction` by cause, in percent."""
    if point["idle_fraction"] is None:
        return None
    shares = (100 * seconds / point["iteration_time"] for seconds in point["bubble_times"].values())
    return "{:z.1f} {:+z.1f} {:+z.1f}".format(*shares)


FIRST = ("iteration_time", "peak_memory", "model_flops_utilization", "tokens_per_s_per_gpu")
IDLE_PARTS = Column("idle by cause", _idle_parts, "%")


def table_columns() -> list[Column]:
    """The columns of the table: what is listed of every configuration, first what a narrow terminal should have."""
    # One's own configurations may be small: a digit more of the time.
    otherwise = {
        "iteration_time": Column("iteration", key("iteration_time"), "s", ".3f"),
        "peak_memory": Column("memory", key("peak_memory"), "GB", ".1f", 1e9),
    }
    of_metric = {metric.name: otherwise.get(metric.name) or _column(metric) for metric in listed()}
    time, *first = (of_metric.pop(name) for name in FIRST)
    further = [*first, *of_metric.values()]
    label, status, gpus = Column("point", key("label")), Column("status", key("status")), Column("GPUs", key("gpus"))
    return [label, status, gpus, time, Column("interval", _interval, "s"), *further, IDLE_PARTS]


def _column(metric: MetricDef) -> Column:
    shown = "" if metric.short else metric.shown
    return Column(metric.short or metric.label, key(metric.name), shown, metric.form, metric.factor)


def _print(
    points: Sequence[Mapping[str, Any]],
    entries: Sequence[Any],
    columns: Sequence[Column],
    run: "TrainingRun | None",
    program: str | None,
) -> None:
    out = console(WIDTH)
    clusters = ", ".join(dict.fromkeys(point["cluster"] for point in points if point["cluster"]))
    title = f"simulated on {clusters}" if clusters else "simulated"
    simulated = any(point["status"] != "invalid" for point in points)  # else the reasons are the answer
    shown = print_table(out, Table(columns, points), title) if simulated else 0
    if IDLE_PARTS in columns[:shown]:
        wrapped(out, "idle by cause: fill and drain, stage imbalance, waiting for messages (docs/metrics.md)")
    for cluster in dict.fromkeys(point["cluster"] for point in points if point["cluster"]):
        here = (entry for point, entry in zip(points, entries, strict=True) if point["cluster"] == cluster)
        kinds = [bool(with_model_fields(entry).get("experts")) for entry in here]
        line = margins.program_line(cluster, program, kinds) or margins.brief(margins.read(cluster))
        wrapped(out, f"{cluster}: {line}")
    for point in points:
        if point["reason"]:
            out.print(f"{point['label']}: {point['status']}: {point['reason']}", soft_wrap=True)
    answered = [point for point in points if "run" in point]
    if run is not None and answered:
        from reproduce.planning import run_cost

        print_table(
            out, run_cost.table([(point["label"], point, point["run"]) for point in answered]), "The whole run, derived"
        )
        for point in answered:
            for line in run_cost.lines(point["run"], run):
                wrapped(out, f"{point['label']}: {line}")
    for point in points:
        if "elasticities" in point:
            from reproduce.planning import elasticities

            print_table(out, elasticities.table(point["elasticities"]), f"{point['label']}: what limits it, simulated")
