"""Does what can be done side by side in forked processes, as many as there are cores.

    with held(), SideBySide(work) as processes, allowed():
        for result in processes.results(count, said):      # work(0, say), work(1, say), ... in this order
            ...

A process says what it is doing by `say(text)`, for which `said(text)` is called here. What it raises is raised here.
The processes end with this one, even if that is killed: they wait for work on pipes, whose ends are here.
"""

import os
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from ptdp_core.interrupts import allowed, settle
from results.records.errors import UnavailableError

Say = Callable[[str], None]
MOST = 8  # processes: each loads what it needs, about 150 MB where that is matplotlib
GRACE_S = 10.0  # in which a process that is told to end may save what it has


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SideBySide:
    """Processes that do `work(index, say)`; what that returns and raises has to be what can be pickled.

    They are forks, which have all that this process has: it must not have threads yet, such as those of a progress bar.
    """

    def __init__(self, work: Callable[[int, Say], Any], processes: int) -> None:
        self._work, self._processes = work, min(processes, MOST)
        self._members: dict[Connection, Any] = {}  # the processes, by the pipe to each

    def __enter__(self) -> "SideBySide":
        context = get_context("fork")
        for _ in range(self._processes):
            ours, theirs = context.Pipe()
            inherited = [ours, *self._members]
            process = context.Process(target=_serve, args=(theirs, inherited, self._work))
            process.start()
            theirs.close()
            self._members[ours] = process
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, process in self._members.items():
            pipe.close()
            process.terminate()  # what is at work saves what it has
        for process in self._members.values():
            process.join(GRACE_S)
            process.kill()
            process.join()

    def results(self, count: int, said: Say) -> Iterator[Any]:
        """What `work` returns for 0 to count - 1, in this order. Raises what it raises, and `UnavailableError`."""
        waiting = iter(range(count))
        done: dict[int, Any] = {}
        for pipe in self._members:
            _give(pipe, waiting)
        for index in range(count):
            while index not in done:
                ready = wait(list(self._members))
                for pipe in (pipe for pipe in self._members if pipe in ready):
                    kind, *message = self._received(pipe)
                    if kind == "said":
                        said(*message)
                    elif kind == "raised":
                        raise message[0]
                    else:
                        done[message[0]] = message[1]
                        _give(pipe, waiting)
            yield done.pop(index)

    def _received(self, pipe: Connection) -> Any:
        """The next message of a process."""
        try:
            return pipe.recv()
        except EOFError:
            process = self._members[pipe]
            process.join()
            raise UnavailableError(
                f"a process of this run ended by itself (exit code {process.exitcode}); needs memory for all of them; "
                "try the artifacts one by one"
            ) from None


def _give(pipe: Connection, waiting: Iterator[int]) -> None:
    """Send a process its next work, if there is some."""
    if (index := next(waiting, None)) is not None:
        pipe.send(index)


def _serve(pipe: Connection, inherited: list[Connection], work: Callable[[int, Say], Any]) -> None:
    """Do what comes through the pipe until its end; the whole of a process."""
    for other in inherited:  # or this process would keep the others alive
        other.close()
    try:
        with allowed():  # this process began where signals are held
            while True:
                index = pipe.recv()
                pipe.send(("done", index, work(index, lambda text: pipe.send(("said", text)))))
    except (EOFError, BrokenPipeError):  # nobody wants more
        pass
    except KeyboardInterrupt:
        settle()
    except BaseException as error:
        pipe.send(("raised", error))
