"""Progress on stderr: a bar where it is a terminal, plain lines where it is not; with the time left where that is long.

Points that run in real time come with the seconds they are expected to take. From those and from what the finished ones
took follows the time left; points taken from an earlier run, which take none, do not disturb it.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from reproduce.output.terminal import moving_console
from results.visible import visible

LONG_S = 10.0  # of a run, from which on the time left is worth saying


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
