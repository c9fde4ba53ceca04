"""What goes to a terminal: a console of the right width, paths, percentages."""

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from reproduce.output.tables import NONE

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100


def percent(value: float | None, signed: bool = False) -> str:
    """'1.2%', with a sign if `signed`; '-' for None."""
    if value is None:
        return NONE
    text = f"{value:+.1%}" if signed else f"{value:.1%}"
    return text if len(text) < 8 else f"{value:+.0e}"


def wrapped(out: "Console", line: str) -> None:
    """Print a line for people, wrapped to the page."""
    from rich.text import Text

    out.print(Text(textwrap.fill(line, min(WIDTH, out.width), break_long_words=False)))


def console(width: int = WIDTH) -> "Console":
    """The terminal, or a page of `width` columns where there is none."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich's own ends the program with exit code 1
            raise BrokenPipeError

    return Terminal() if sys.stdout.isatty() else Terminal(width=width)


def shown_path(path: Path) -> str:
    """`path` relative to the current folder if it lies below it, else as it is."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
