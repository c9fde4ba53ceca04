"""`reproduce schedule`: the pipeline schedules side by side; one of one's own; a search under a memory limit."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduce.commands import options
from reproduce.output.terminal import console, files_line, wrapped
from results.records.documents import print_document
from results.records.errors import DONE, UsageError, did_you_mean
from results.records.storage import write_files

if TYPE_CHECKING:
    from ptdp_core.schedules import Schedule
    from reproduce.annex.schedules.family import Member
    from reproduce.annex.schedules.gradients import GradientDifference
    from reproduce.output.timeline import Timeline

HELP = """NAME is a schedule that is known, such as 1f1b: it is drawn, and written as figure, trace and table.

FILE is a pipeline schedule of your own: torch.distributed.pipelining's table of computations (.csv); a line
per rank with passes such as 2F0 (stage 2, forward, microbatch 0), backward B, or I and W for its input's and its
weights' gradients (.txt); or a Python module with order(p, m, v) or a Definition called SCHEDULE (.py), which is
executed: name no file of somebody whose programs you would not run.

examples:
  reproduce schedule                               all schedules: bubble, memory, messages
  reproduce schedule interleaved -p 4 -m 8 -v 2    draw it
  reproduce schedule my.csv                        check it, draw it, compare it with all others
  reproduce schedule my.csv --simulate hidden=4096 heads=32 layers=32 t=1
  reproduce schedule my.csv --train                one training step in p processes: are its gradients 1F1B's?
  reproduce schedule --search --memory 0.5 -p 4 -m 8

"""
EXPORTS = ("torch", "perfetto")
MAX_RANKS = 16  # processes that --train starts
MAX_PASSES = 500_000  # of a schedule by name; its trace is 170 MB


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce schedule`."""
    parser.add_argument("file", metavar="NAME|FILE", nargs="?", type=options.path_of, help="a schedule")
    parser.add_argument("-p", type=int, help="pipeline stages (devices), if no table says it (default: 4)")
    parser.add_argument("-m", type=int, help="microbatches in a batch, if no table says it (default: 8)")
    parser.add_argument("-v", type=int, help="model chunks per device of NAME or a Python FILE (default: the fewest)")
    parser.add_argument(
        "--t-forward", default="1", help="time of a device's forward pass for one microbatch, in any unit (default: 1)"
    )
    parser.add_argument("--t-backward", default="2", help="time of its backward pass (default: 2)")
    parser.add_argument("--t-weight", help="part of it for the weight gradients, if split (default: half)")
    parser.add_argument(
        "--simulate", nargs="*", metavar="KEY=VALUE", help="a training iteration of each; keys as of reproduce simulate"
    )
    options.add_cluster(parser)
    parser.add_argument(
        "--train", action="store_true", help="train a step with FILE; compare its gradients with 1F1B's"
    )
    parser.add_argument("--export", choices=EXPORTS, action="append", default=[], help="write FILE for other programs")
    parser.add_argument("--search", action="store_true", help="find a schedule with at most --memory")
    parser.add_argument("--memory", default="1", help="activation memory over 1F1B's, for --search (default: 1)")
    options.add(parser, "json", "results")


def run(parsed: Namespace) -> int:
    """Compare schedules; read, find, train and export one's own. Raises `UsageError` for a wrong file or option."""
    from ptdp_core.schedules import names, register_table
    from reproduce.annex.schedules.family import absent, family, simulated
    from reproduce.running.simulated import open_cluster

    times = [_positive(parsed, f"t_{name}") for name in ("forward", "backward")]
    times.append(times[1] / 2 if parsed.t_weight is None else _positive(parsed, "t_weight"))
    if times[2] >= times[1]:
        raise UsageError(
            f"--t-weight {parsed.t_weight} with --t-backward {parsed.t_backward}; needs a part of it; "
            "leave it out for half"
        )
    if parsed.file is None and (parsed.train or parsed.export) and not parsed.search:
        raise UsageError("--train and --export need NAME, FILE or --search; try reproduce schedule 1f1b")
    p, m = (_size(parsed, name, usual) for name, usual in (("p", 4), ("m", 8)))
    table, notes = _own_table(parsed, p, m, times)
    p, m = (table.p, table.m) if table else (p, m)
    known = parsed.file is not None and _is_name(parsed.file)
    members = family(p, m, times, [table] if table else [], others=not known)
    notes += [] if known else absent(p, m, times)
    if table and table.name not in names():
        register_table(table)  # the simulator asks for it by its name; the family above has it once
    if parsed.simulate is not None:
        members = simulated(members, p, m, _settings(parsed.simulate), open_cluster(parsed.cluster)[0])
    folder = parsed.results / "schedule" / (f"{table.name}-p{p}-m{m}-v{table.v}" if table else f"all-p{p}-m{m}")
    timeline, numbers, files, left_out = _drawn(table, times, parsed.export) if table else (None, {}, {}, [])
    notes += left_out
    differences = _train(table) if parsed.train and table else []
    if timeline and not parsed.json:
        _print_timeline(timeline, numbers)
    paths = write_files(folder, files)
    if parsed.json:
        document = {
            "parameters": dict(zip(("p", "m", "t_f", "t_b", "t_w"), (p, m, *map(float, times)), strict=True)),
            "schedules": [
                {"schedule": member.name, "title": member.title, "v": member.v}
                | {"metrics": {name: metric.to_json() for name, metric in member.metrics.items()}}
                for member in members
            ],
            "metrics": {
                name: {"value": value, "unit": unit, "origin": "derived"} for name, (value, unit) in numbers.items()
            },
            "gradients": [difference._asdict() for difference in differences],
            "notes": notes,
            "folder": str(folder),
            "files": list(files),
        }
        print_document("schedule", 1, document)
        return DONE
    _print_family(members, p, m, times, parsed.cluster)
    for note in [*notes, *map(_sentence, differences)]:
        wrapped(console(), note)
    if paths:
        print(files_line(paths))
    return DONE


def _positive(parsed: Namespace, name: str) -> Fraction:
    text = getattr(parsed, name)
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value <= 0:
        raise UsageError(f"--{name.replace('_', '-')} {text} is not a positive number; try 1, 0.5 or 2/3")
    return value


def _size(parsed: Namespace, name: str, usual: int) -> int:
    value = getattr(parsed, name)
    if value is not None and value < 1:
        raise UsageError(f"-{name} {value} is not a positive whole number; try -{name} {usual}")
    return value or usual


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--simulate {pair!r} is not KEY=VALUE; try hidden=4096")
        settings[key] = options.plain_value(value)
    return settings


def _own_table(parsed: Namespace, p: int, m: int, times: Sequence[Fraction]) -> "tuple[Schedule | None, list[str]]":
    """The schedule of the file, or the one that is searched for, and sentences about it."""
    from ptdp_core.schedules import build, exists, names, read_schedule

    if parsed.file is not None:
        if _is_name(parsed.file):
            return _known(parsed, str(parsed.file), p, m), []
        try:
            table = read_schedule(parsed.file, {"p": parsed.p, "m": parsed.m, "v": parsed.v})
        except ValueError as error:
            near = "" if os.path.exists(parsed.file) else did_you_mean(str(parsed.file), names())
            raise UsageError(f"{error}{near}") from None
        sizes = (table.name, table.p, table.m, table.v)
        if table.name in names() and not (exists(*sizes) and build(*sizes) == table):  # the two are compared
            table = replace(table, name=f"{table.name} (own)")
        passes = sum(map(len, table.ranks))
        complete = f"{parsed.file}: complete, {passes} passes; runs with blocking and with overlapped exchanges"
        return table, [complete]
    return _search(parsed, p, m, times) if parsed.search else (None, [])


def _is_name(file: Path) -> bool:
    """Whether this is a schedule's name, and no file that happens to be called so."""
    from ptdp_core.schedules import names
    from ptdp_core.schedules.registry import TWO_DIRECTIONS

    return str(file).partition("+")[0].lower() in (*names(), *TWO_DIRECTIONS) and not file.exists()


def _known(parsed: Namespace, name: str, p: int, m: int) -> "Schedule":
    """The schedule of that name. Raises `UsageError` for one that does not exist, or is too large to draw."""
    from ptdp_core.schedules import build, definition, names

    try:
        defined = definition(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    v = defined.chunks[0] if parsed.v is None else parsed.v
    if parsed.t_weight is not None and not defined.splits:
        splitting = next(name for name in names() if definition(name).splits)
        raise UsageError(f"--t-weight {parsed.t_weight} with {name}, which splits no backward pass; try {splitting}")
    if (passes := defined.passes(p, m, v)) > MAX_PASSES:
        raise UsageError(f"m={m} with p={p}, v={v} makes {passes} passes; needs at most {MAX_PASSES}; try a smaller m")
    try:
        return build(name, p, m, v)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _search(parsed: Namespace, p: int, m: int, times: Sequence[Fraction]) -> "tuple[Schedule, list[str]]":
    from reproduce.annex.schedules import search

    memory = _positive(parsed, "memory")
    table = search.greedy(p, m, memory, times)
    bound, how = search.lower_bound(p, m, times), "no schedule on up to two chunks per device can be faster"
    notes = [f"found by trying: {table.name}, {float(search.makespan(table, times)):g} t_f"]
    took = search.makespan(table, times)
    notes.append(f"bound: {float(bound):g} t_f ({how}); what was found takes {float(took / bound - 1):.1%} more")
    return replace(table, name=f"searched-{table.name}"), notes


def _drawn(
    table: "Schedule", times: Sequence[Fraction], exports: Sequence[str]
) -> "tuple[Timeline, Mapping[str, tuple[float, str]], dict[str, bytes], list[str]]":
    """The schedule's timeline, what it costs, its files that are asked for, and notes on what was left out."""
    from reproduce.output.timeline import MAX_FACTOR, from_schedule, measure
    from reproduce.output.timeline_files import timeline_files

    factor, weights = times[1] / times[0], times[2] / times[0]
    if not 1 / MAX_FACTOR <= factor <= MAX_FACTOR:
        ratio = f"a ratio between 1/{MAX_FACTOR} and {MAX_FACTOR}"
        raise UsageError(f"--t-backward {float(factor):g} times --t-forward; needs {ratio}; try 2")
    if table.vocabulary and "torch" in exports:
        raise UsageError(
            f"--export torch with {table.name}, of whose passes torch has no E, S, T and G; needs a schedule without; "
            "try --export perfetto"
        )
    timeline = from_schedule(table, factor, weights=weights)
    files, notes = timeline_files(table, timeline)
    wanted = {"torch": "schedule.csv", "perfetto": "trace.json"}
    left_out = {file for export, file in wanted.items() if exports and export not in exports}
    kept = {name: data for name, data in files.items() if name not in left_out}
    return timeline, measure(table, factor, weights), kept, notes


def _print_timeline(timeline: "Timeline", numbers: Mapping[str, tuple[float, str]]) -> None:
    """The timeline in letters, under its title, and what the schedule costs."""
    from reproduce.annex.schedules.ascii import ascii_timeline
    from reproduce.output.timeline_titles import title

    lines, legend = ascii_timeline(timeline)
    print(title(timeline).replace("−", "-"), *lines, *legend, sep="\n")
    messages, neighbours = numbers["messages"][0], numbers["neighbour_messages"][0]
    print(f"time: {numbers['makespan'][0]:g} t_f ({timeline.origin})")
    print(f"peak stash: {numbers['peak_stash'][0]:g} microbatches on the fullest device")
    print(
        f"messages: {messages}" + (f", {neighbours} of them between neighbours" * (neighbours < messages)), end="\n\n"
    )


def _train(table: "Schedule") -> "list[GradientDifference]":
    from reproduce.annex.schedules.gradients import compare_gradients

    if table.p > MAX_RANKS:
        raise UsageError(
            f"--train with p={table.p} starts as many processes; needs at most {MAX_RANKS}; try a smaller p"
        )
    return compare_gradients([table])


def _sentence(difference: "GradientDifference") -> str:
    equal = f"{difference.equal} of {difference.parameters} parameters' gradients equal 1F1B's to the bit"
    far = (
        f"; largest relative difference {difference.largest:.1e}, of {difference.parameter}"
        if difference.largest
        else ""
    )
    return f"trained a step, {difference.exchange} exchanges: {equal}{far}"


def _print_family(members: "Sequence[Member]", p: int, m: int, times: Sequence[Fraction], cluster: str) -> None:
    from reproduce.annex.schedules.family import table
    from reproduce.output.tables import print_table
    from reproduce.output.terminal import console

    simulated = any("iteration_time" in member.metrics for member in members)
    t_f, t_b, t_w = (f"{float(time):g}" for time in times)
    print(f"p={p}, m={m}; t_f={t_f}, t_b={t_b}, of it t_w={t_w} [derived: executed tables]", end="")
    print(f"; iterations [simulated on {cluster}]" if simulated else "")
    print_table(console(120), table(members))
