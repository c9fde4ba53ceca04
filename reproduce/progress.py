"""Progress on stderr: a bar where it is a terminal, one plain line per artifact where it is not."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show the progress of `total` points; the caller calls what it is given with each label done."""
    if not sys.stderr.isatty():
        print(f"{name}: {total} points", file=sys.stderr, flush=True)
        yield lambda label: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(name),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[at]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total, at="")
        yield lambda label: bar.update(task, advance=1, at=label)
