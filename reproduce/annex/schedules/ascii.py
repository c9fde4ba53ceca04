"""Timelines of pipeline schedules in characters, for a terminal of 80 columns."""

from fractions import Fraction
from itertools import groupby

from ptdp_core.schedules import TimelineEvent
from reproduce.output.colours import VOCABULARY_PASSES as VOCABULARY
from reproduce.output.timeline import Time, Timeline
from reproduce.output.timeline_colours import PASSES

COLUMNS = 80
MAX_LINES = 32


def ascii_timeline(timeline: Timeline, columns: int = COLUMNS) -> tuple[list[str], list[str]]:
    """The timeline as lines of at most `columns` characters, one per device, and notes on how to read them.

    A forward pass is `F` and its microbatch, a backward pass `B`, microbatch and dashes, a split one `I` and `W`; small
    letters are passes of later chunks; `&` is between two that run together; dots are idle. If only that fits, a pass
    is its microbatch's last digit, and dashes say backward.
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
        for times, together in groupby(row, key=lambda box: (box.start, box.end)):
            # Rounding down leaves each box the columns that the shortest one has, and none overlap.
            left, right = (min(int(time * scale), columns) for time in times)
            *first, last = together
            texts = [f"{_cells(box, timeline, 0, letters)}&" for box in first]
            texts.append(_cells(last, timeline, right - left - sum(map(len, texts)), letters))
            line = f"{line:.<{left}}{''.join(texts)[: right - left]}"
        line = f"{f'Device {rank + 1}':<{prefix}}{line:.<{min(int(timeline.end * scale), columns)}}"
        lines.append(line if len(line) <= columns else line[: columns - 1] + ">")
    if not letters:
        notes = ["a number is a microbatch (its last digit), of a backward pass if dashes follow; dots are idle"]
        if any(kind in VOCABULARY for kind in lengths):
            notes.append(", ".join(f"{kind}: {PASSES[kind].lower()}" for kind in lengths if kind in VOCABULARY))
    else:
        small = "; f, b: later chunks" if timeline.v > 1 else ""
        passes = ", ".join(f"{kind}: {PASSES[kind].lower()}" for kind in lengths)
        notes = [f"{passes.replace('pass', 'pass of a microbatch', 1)}{small}; dots are idle"]
    if timeline.fused:
        notes.append("&: a forward pass and the backward pass behind it run together")
    if any(line.endswith(">") for line in lines):
        notes.append(f"cut at {columns} columns; the written files hold all of it")
    if timeline.p > MAX_LINES:
        notes.append(f"the first {MAX_LINES} of {timeline.p} devices")
    return lines, notes


def _shortest(timeline: Timeline, kind: str) -> Fraction:
    """The shortest pass of a kind that takes time at all; 0 if there is none."""
    lengths = (Fraction(box.end - box.start) for row in timeline.rows for box in row if box.kind == kind)
    return min((length for length in lengths if length), default=Fraction(0))


def _cells(box: TimelineEvent[Time], timeline: Timeline, width: int, letters: bool) -> str:
    assert box.action is not None
    number, filler = str(box.action.microbatch + 1), " " if box.kind in ("F", *VOCABULARY) else "-"
    letter = box.kind if timeline.chunk_of(box.action) == 0 else box.kind.lower()
    short = box.kind if box.kind in VOCABULARY else number[-1]
    return f"{letter + number if letters else short:{filler}<{width}}"
