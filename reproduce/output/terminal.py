"""What goes to a terminal: a console of the right width, wrapped text, paths, percentages."""

import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100


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
