"""Steps that several processes, the ranks, make together. The process that has them is the one that is timed."""

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any


def together(ranks: int, make: Callable[[int, str], Callable[[], object]]) -> Callable[[], None]:
    """Fork the ranks, and return a step that each of them makes once and that ends with the slowest.

    `make(rank, store)` makes a rank's step in its own process; `store` is the path of a file where they may find each
    other. The ranks are daemons: they end with this process.
    """
    context = multiprocessing.get_context("fork")  # safe: no thread runs yet
    pipes: list[Any] = []
    store = f"{tempfile.mkdtemp()}/store"
    for rank in range(ranks):
        ours, theirs = context.Pipe()
        context.Process(target=_serve, args=(make, rank, store, theirs), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    return lambda: step_of(pipes)


def step_of(pipes: Sequence[Any]) -> None:
    """Let all ranks make a step. Raises `RuntimeError` with what the first rank that fails says, while others wait."""
    for pipe in pipes:
        with suppress(OSError):  # the rank has ended; what it said is still in the pipe
            pipe.send("go")
    working = list(pipes)
    while working:
        ready: list[Any] = wait(working)
        for pipe in ready:
            working.remove(pipe)
            try:
                error = pipe.recv()
            except (EOFError, OSError):
                error = "it ended without a word"
            if error:
                raise RuntimeError(f"rank {pipes.index(pipe)}: {error}")


def _serve(make: Callable[[int, str], Callable[[], object]], rank: int, store: str, pipe: Any) -> None:
    """Make a step for each word that comes, and answer with None, or with the error that ends this rank."""
    try:
        step = make(rank, store)
        while True:
            pipe.recv()
            step()
            pipe.send(None)
    except Exception as error:
        pipe.send("".join(traceback.format_exception_only(error)).strip())
