"""`reproduce timeline`: a schedule's timeline on the terminal, and as figure, trace and table."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from ptdp_core.schedules import Schedule, default_schedule, definition, names
from reproduce.commands import options
from reproduce.output import theme
from reproduce.output.ascii import ascii_timeline
from reproduce.output.terminal import files_line
from reproduce.output.timeline import Timeline, from_schedule, measure, schedule_of, weights_of
from reproduce.output.timeline_figure import draw
from reproduce.output.timeline_titles import title
from reproduce.output.traces import trace
from results.records.documents import print_document
from results.records.errors import DONE, UsageError
from results.records.storage import write_files

MAX_BOXES = 4000  # in a figure; with more, neither boxes nor rows can be told apart
MAX_PASSES = 500_000  # of a schedule; its trace is 170 MB


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce timeline`."""
    parser.add_argument("--schedule", choices=names(), default=default_schedule(1))
    parser.add_argument("-p", type=int, default=4, help="pipeline stages (devices; default: 4)")
    parser.add_argument("-m", type=int, default=8, help="microbatches in a batch (default: 8)")
    parser.add_argument("-v", type=int, default=None, help="model chunks per device (default: the fewest that it has)")
    parser.add_argument(
        "--t-forward",
        type=float,
        default=1.0,
        help="time of a device's forward pass for one microbatch, in any unit (default: 1)",
    )
    parser.add_argument("--t-backward", type=float, default=2.0, help="time of its backward pass (default: 2)")
    parser.add_argument("--t-weight", type=float, help="part of it for the weight gradients, if split (default: half)")
    options.add_json(parser)
    options.add_results(parser)


def run(parsed: Namespace) -> int:
    """Print a schedule's timeline, and write it as figure, trace and table.

    Raises `UsageError` for a schedule that does not exist.
    """
    v = definition(parsed.schedule).chunks[0] if parsed.v is None else parsed.v
    parameters = {
        "schedule": parsed.schedule, "p": parsed.p, "m": parsed.m, "v": v,
        "t_f": parsed.t_forward, "t_b": parsed.t_backward,
    }  # fmt: skip
    if parsed.t_weight is not None:
        parameters["t_w"] = parsed.t_weight
    passes = definition(parsed.schedule).passes(parsed.p, parsed.m, v)
    if passes > MAX_PASSES and min(parsed.p, parsed.m, v) > 0:
        raise UsageError(
            f"m={parsed.m} with p={parsed.p}, v={v} makes {passes} passes; needs at most {MAX_PASSES}; try a smaller m"
        )
    try:
        (schedule, factor), weights = schedule_of(parameters), weights_of(parameters)
    except ValueError as error:
        raise UsageError(str(error)) from None
    timeline, numbers = from_schedule(schedule, factor, weights=weights), measure(schedule, factor, weights)
    folder = parsed.results / "timeline" / f"{schedule.name}-p{schedule.p}-m{schedule.m}-v{schedule.v}"
    if not parsed.json:
        messages, neighbours = numbers["messages"][0], numbers["neighbour_messages"][0]
        print_timeline(timeline)
        print(f"time: {numbers['makespan'][0]:g} t_f ({timeline.origin})")
        print(f"peak stash: {numbers['peak_stash'][0]:g} microbatches on the fullest device")
        print(f"messages: {messages}" + (f", {neighbours} of them between neighbours" * (neighbours < messages)))
    files, notes = timeline_files(schedule, timeline)
    paths = write_files(folder, files)
    if parsed.json:
        metrics = {name: {"value": value, "unit": unit, "origin": "derived"} for name, (value, unit) in numbers.items()}
        document = {
            "parameters": parameters, "metrics": metrics, "folder": str(folder), "files": list(files), "notes": notes,
        }  # fmt: skip
        print_document("timeline", 1, document)
    else:
        print(*notes, files_line(paths), sep="\n")
    return DONE


def print_timeline(timeline: Timeline) -> None:
    """The timeline in letters, under its title."""
    lines, legend = ascii_timeline(timeline)
    print(title(timeline).replace("−", "-"), *lines, *legend, sep="\n")


def timeline_files(schedule: Schedule, timeline: Timeline) -> tuple[dict[str, bytes], list[str]]:
    """Figure (if it can be read), trace and table of a schedule, by name, and notes on what was left out."""
    figures, notes = figure_files([timeline], title(timeline), memory=True)
    return figures | {"trace.json": trace([timeline]), "schedule.csv": schedule.to_csv().encode()}, notes


def figure_files(timelines: Sequence[Timeline], name: str, memory: bool = False) -> tuple[dict[str, bytes], list[str]]:
    """The figure of timelines, if it can be read, and a note if it cannot."""
    boxes = sum(timeline.boxes for timeline in timelines)
    if boxes > MAX_BOXES:
        return {}, [f"no figure: {boxes} boxes, more than {MAX_BOXES}; open trace.json in https://ui.perfetto.dev"]
    with theme.style():
        return theme.figure_files(draw(timelines, memory=memory), name), []
