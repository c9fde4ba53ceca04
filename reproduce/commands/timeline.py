"""Timelines of pipeline schedules on the terminal, and `reproduce timeline`, which prints one and writes its files.

ascii_timeline  a timeline in characters, at most 80 columns
run_cli         prints one, and writes figure, trace and table
"""

import json
import os
from argparse import Namespace
from fractions import Fraction
from pathlib import Path

from benchmarks.records.errors import DONE, UsageError
from benchmarks.records.storage import atomic_write_bytes
from ptdp_core.schedules import Schedule, definition
from reproduce.output import figures
from reproduce.output.timelines import PASSES, draw, title
from reproduce.output.traces import Box, Timeline, from_schedule, measure, schedule_of, trace, weights_of

MAX_BOXES = 4000  # in a figure; with more, neither boxes nor rows can be told apart
MAX_PASSES = 500_000  # of a schedule; its trace is 170 MB
COLUMNS = 80
MAX_LINES = 32


def ascii_timeline(timeline: Timeline, columns: int = COLUMNS) -> tuple[list[str], list[str]]:
    """The timeline as lines of at most `columns` characters, one per device, and notes on how to read them.

    A forward pass is `F` and its microbatch, a backward pass `B`, microbatch and dashes, a split one `I` and `W`; small
    letters are passes of later chunks; dots are idle. If only that fits, a pass is its microbatch's last digit, and
    dashes say backward.
    """
    prefix = len(f"Device {timeline.p} ")
    lengths = {kind: shortest for kind in PASSES if (shortest := _shortest(timeline, kind))}
    shortest = min(lengths.values())
    letters, scale = True, (1 + len(str(timeline.m))) / shortest
    if prefix + timeline.end * scale > columns and lengths.get("B", 0) >= 2 * shortest:
        letters, scale = False, 1 / shortest
    lines = []
    for rank, row in enumerate(timeline.rows[:MAX_LINES]):
        line = ""
        for box in row:
            # Rounding down leaves each box the columns that the shortest one has, and none overlap.
            left, right = (min(int(time * scale), columns) for time in (box.start, box.end))
            line = f"{line:.<{left}}{_cells(box, timeline, right - left, letters)}"
        line = f"{f'Device {rank + 1}':<{prefix}}{line:.<{min(int(timeline.end * scale), columns)}}"
        lines.append(line if len(line) <= columns else line[: columns - 1] + ">")
    if not letters:
        notes = ["a number is a microbatch (its last digit), of a backward pass if dashes follow; dots are idle"]
    else:
        small = "; f, b: later chunks" if timeline.v > 1 else ""
        passes = ", ".join(f"{kind}: {PASSES[kind].lower()}" for kind in lengths)
        notes = [f"{passes.replace('pass', 'pass of a microbatch', 1)}{small}; dots are idle"]
    if any(line.endswith(">") for line in lines):
        notes.append(f"cut at {columns} columns; the written files hold all of it")
    if timeline.p > MAX_LINES:
        notes.append(f"the first {MAX_LINES} of {timeline.p} devices")
    return lines, notes


def _shortest(timeline: Timeline, kind: str) -> Fraction:
    """The shortest pass of a kind that takes time at all; 0 if there is none."""
    lengths = (Fraction(box.end - box.start) for row in timeline.rows for box in row if box.kind == kind)
    return min((length for length in lengths if length), default=Fraction(0))


def _cells(box: Box, timeline: Timeline, width: int, letters: bool) -> str:
    assert box.action is not None
    number, filler = str(box.action.microbatch + 1), " " if box.kind == "F" else "-"
    letter = box.kind if timeline.chunk_of(box.action) == 0 else box.kind.lower()
    return f"{letter + number if letters else number[-1]:{filler}<{width}}"[:width]


def run_cli(args: Namespace) -> int:
    """`reproduce timeline`: print a schedule's timeline, and write it as figure, trace and table.

    Reads `schedule`, `p`, `m`, `v`, `t_forward`, `t_backward`, `t_weight`, `results`, `json`. Raises `UsageError` for a
    schedule that does not exist.
    """
    parameters = {
        "schedule": args.schedule, "p": args.p, "m": args.m, "v": args.v,
        "t_f": args.t_forward, "t_b": args.t_backward,
    }  # fmt: skip
    if args.t_weight is not None:
        parameters["t_w"] = args.t_weight
    passes = definition(args.schedule).passes(args.p, args.m, args.v)
    if passes > MAX_PASSES and min(args.p, args.m, args.v) > 0:
        raise UsageError(
            f"m={args.m} with p={args.p}, v={args.v} makes {passes} passes; needs at most {MAX_PASSES}; try a smaller m"
        )
    try:
        (schedule, factor), weights = schedule_of(parameters), weights_of(parameters)
    except ValueError as error:
        raise UsageError(str(error)) from None
    timeline, numbers = from_schedule(schedule, factor, weights=weights), measure(schedule, factor, weights)
    folder = Path(args.results) / "timeline" / f"{schedule.name}-p{schedule.p}-m{schedule.m}-v{schedule.v}"
    if not args.json:
        lines, legend = ascii_timeline(timeline)
        messages, neighbours = numbers["messages"][0], numbers["neighbour_messages"][0]
        print(title(timeline).replace("−", "-"), *lines, *legend, sep="\n")
        print(f"time: {numbers['makespan'][0]:g} t_f ({timeline.origin})")
        print(f"peak stash: {numbers['peak_stash'][0]:g} microbatches on the fullest device")
        print(f"messages: {messages}" + (f", {neighbours} of them between neighbours" * (neighbours < messages)))
    files, notes = timeline_files(schedule, timeline)
    for name, data in files.items():
        atomic_write_bytes(folder / name, data)
    if args.json:
        metrics = {name: {"value": value, "unit": unit, "origin": "derived"} for name, (value, unit) in numbers.items()}
        document = {
            "parameters": parameters, "metrics": metrics, "folder": str(folder), "files": list(files), "notes": notes,
        }  # fmt: skip
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        print(*notes, f"files: {folder}{os.sep}  ({', '.join(files)})", sep="\n")
    return DONE


def timeline_files(schedule: Schedule, timeline: Timeline) -> tuple[dict[str, bytes], list[str]]:
    """Figure (if it can be read), trace and table of a schedule, by name, and notes on what was left out."""
    files = {"trace.json": trace([timeline]), "schedule.csv": schedule.to_csv().encode()}
    if timeline.boxes > MAX_BOXES:
        note = f"no figure: {timeline.boxes} boxes, more than {MAX_BOXES}; open trace.json in https://ui.perfetto.dev"
        return files, [note]
    with figures.style():
        figure = draw([timeline])
        drawn = {
            "figure.pdf": figures.figure_bytes(figure, "pdf", {"CreationDate": None, "Title": title(timeline)}),
            "figure.png": figures.figure_bytes(figure, "png", {"Software": None}),
        }
    return drawn | files, []
