"""What goes to a terminal: a console of the right width, wrapped text, paths, percentages, and progress.

Progress goes to stderr: a bar where it is a terminal, plain lines where it is not. Points that run in real time come
with the seconds they are expected to take. From those and from what the finished ones took follows the time left, told
where it is long; points taken from an earlier run, which take none, do not disturb it.
"""

import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
LONG_S = 10.0  # of a run, from which on the time left is worth saying


def percent(value: float, signed: bool = False) -> str:
    """'1.2%', with a sign if `signed`."""
    text = f"{value:+.1%}" if signed else f"{value:.1%}"
    return text if len(text) < 8 else f"{value:+.0e}"


def wrapped(out: "Console", line: str, indent: str = "", style: str = "") -> None:
    """Print a line for people, wrapped to the page, all of it after `indent`."""
    width = min(WIDTH, out.width)
    text = textwrap.fill(line, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
    out.print(text, style=style)


def console(width: int = WIDTH) -> "Console":
    """The terminal, or a page of `width` columns where there is none. It prints text as it is, without markup."""
    from rich.console import Console
    from rich.segment import Segment

    class Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich's own ends the program with exit code 1
            raise BrokenPipeError

        def render(self, *what: Any, **how: Any) -> Iterator[Segment]:
            for text, style, control in super().render(*what, **how):
                yield Segment(text if control else visible(text), style, control)

    return Terminal(width=None if sys.stdout.isatty() else width, markup=False, emoji=False, highlight=False)


def moving_console() -> "Console":
    """The terminal of stderr for what moves, such as a bar: its control characters are not spelled out."""
    from rich.console import Console

    return Console(file=getattr(sys.stderr, "rich_proxied_file", sys.stderr))


def shown_path(path: Path) -> str:
    """`path` relative to the current folder if it lies below it, else as it is."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def files_line(files: Sequence[Path]) -> str:
    """Where the files of a folder were written: 'files: results/runs/plan/1t-n3072/  (record.json, table.md)'."""
    return f"files: {shown_path(files[0].parent)}{os.sep}  ({', '.join(path.name for path in files)})"


class TimeLeft:
    """The time left of points with `expected` seconds each, and `later` seconds of what comes after them."""

    def __init__(self, expected: Sequence[float], later: float = 0.0) -> None:
        self.waiting, self.later = list(expected), later
        self.is_long = sum(expected) + later >= LONG_S
        self.spent = self.planned = 0.0
        self.last = time.monotonic()

    def done(self) -> None:
        """The next point is finished."""
        now = time.monotonic()
        took, expected = now - self.last, self.waiting.pop(0) if self.waiting else 0.0
        self.last = now
        if took > expected / 10:  # or it was there already
            self.spent, self.planned = self.spent + took, self.planned + expected

    def seconds(self) -> float:
        """What is left: of the points, and with what comes after them."""
        pace = self.spent / self.planned if self.planned else 1.0
        return sum(self.waiting) * pace + self.later

    def __str__(self) -> str:
        """', about 40 s left (all: 3 min)'; nothing where the run is not long."""
        if not self.is_long:
            return ""
        here = self.seconds() - self.later
        every = f" (all: {spoken(here + self.later)})" if self.later else ""
        return f", about {spoken(here)} left{every}" if here else every


def spoken(seconds: float) -> str:
    """'40 s', '3 min': a time as it is told."""
    return f"{max(round(seconds), 1)} s" if seconds < 100 else f"{round(seconds / 60)} min"


@contextmanager
def progress(
    name: str, total: int, expected: Sequence[float] = (), later: float = 0.0, quiet: bool = False
) -> Iterator[Callable[[str], None]]:
    """Show the progress of `total` points; the caller calls what it is given with each label done.

    `expected` are the seconds that each point takes, `later` those of what else will run, if they are known. Nothing is
    shown where `quiet`. Without a terminal there is a line for all points, or where it takes long one for each.
    """
    left = TimeLeft(expected, later)
    if quiet:
        yield lambda label: None
    elif sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        at = TextColumn("{task.fields[at]}")
        columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), at)
        with Progress(*columns, console=moving_console(), transient=True) as bar:
            task = bar.add_task(name, total=total, at=str(left))

            def show(label: str) -> None:
                left.done()
                bar.update(task, advance=1, at=visible(f"{label}{left}"))

            yield show
    else:
        print(f"{name}: {total} points{left}", file=sys.stderr, flush=True)

        def say(label: str) -> None:
            left.done()
            if left.is_long:
                done = total - len(left.waiting)
                print(f"{name}: {done} of {total} done ({label}){left}", file=sys.stderr, flush=True)

        yield say
