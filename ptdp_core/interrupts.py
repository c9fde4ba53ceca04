"""Ctrl-C, SIGTERM and SIGHUP end a program in order, and never in the middle of making or undoing something.

A program installs this with `run_program`. From then on these signals raise `Interrupted` in the main thread. While
the program acts on that, in an `except` or a `finally` or on leaving a `with`, nothing is raised, so that a second
signal cannot break what the first one makes the program undo. Where a signal must not come between making a thing and
having it in hand, or into undoing it, it is held:

    with held(), TemporaryDirectory() as folder, allowed():
        ...                             # interrupted here, if at all: the folder is made and removed undisturbed

An exception can get lost: torch's C++ clears it while it imports NumPy, Python drops it in a destructor, and some
libraries turn it into their own. It is therefore raised again every half second, unless the program acts on it. Who
catches other exceptions asks `received` or calls `check`; who goes on after an interrupt calls `settle`.

Without `run_program`, as in a notebook, nothing here has an effect, and Ctrl-C is Python's own.
"""

import errno
import gc
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

SIGNALS = {  # with Python's own handlers
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # the terminal is gone
}
EXIT_BASE = 128  # a shell's exit code for a program that a signal ended: this plus the signal's number
IMPORTER = "<frozen importlib"  # the beginning of the names of its files
AGAIN_S = 0.5

_received: int | None = None  # the first signal that came
_held = False
_settled = False


class Interrupted(KeyboardInterrupt):
    """A signal ends the program."""


class _Delivery:
    """A block in which signals are held, or allowed again; the earlier state comes back after it."""

    def __init__(self, hold: bool) -> None:
        self.hold = hold

    def __enter__(self) -> None:
        global _held
        self.before, _held = _held, self.hold
        check()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        global _held
        _held = self.before
        if kind is None:
            check()


def held() -> _Delivery:
    """A block that signals do not interrupt; one that came meanwhile is raised after it."""
    return _Delivery(hold=True)


def allowed() -> _Delivery:
    """Inside `held`, a block that signals interrupt."""
    return _Delivery(hold=False)


def received() -> signal.Signals | None:
    """The signal that ends this program; None as long as it may go on."""
    return None if _received is None else signal.Signals(_received)


def check() -> None:
    """Raise `Interrupted` if a signal came, unless it is held or settled, or the program is acting on it."""
    if _received is not None and not (_held or _settled or _acting()):
        raise Interrupted


def settle() -> int:
    """Raise nothing any more, as the program ends by itself; returns its exit code.

    That is 130, 143 after SIGTERM, or 129 after SIGHUP.
    """
    global _settled
    _settled = True
    for number in (*SIGNALS, signal.SIGALRM):
        if signal.getsignal(number) == _handle:
            signal.signal(number, signal.SIG_IGN)
    return EXIT_BASE + (received() or signal.SIGINT)


def leave_lost_terminal() -> None:
    """Let what this process writes go nowhere where it would go to a terminal that is gone, which fails."""
    for descriptor in (1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


def run_program(name: str, main: Callable[[], int]) -> NoReturn:
    """End this process with the exit code of `main()`, or as a signal says: with one line on stderr.

    `main` best imports what it needs itself: a signal during that is then handled, too. A signal that this process
    was started to ignore stays ignored. What `main` has finished cannot be interrupted any more.
    """
    try:
        signal.signal(signal.SIGALRM, _handle)
        for number, default in SIGNALS.items():
            if signal.getsignal(number) == default:
                signal.signal(number, _handle)
        code = main()
        settle()
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        code = settle()
    # Python need not look through what is left: with torch loaded that takes most of a second. But what is then not
    # freed, of Triton's, its bindings report at the very end, as 25 lines of leaks.
    if "triton" not in sys.modules:
        gc.freeze()
    sys.exit(code)


def _handle(number: int, frame: FrameType | None) -> None:
    global _received
    if _received is None and number != signal.SIGALRM:
        _received = number
    if number == signal.SIGHUP:
        leave_lost_terminal()
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
    stack = list(_stack(frame))
    importing = [frame.f_code.co_filename.startswith(IMPORTER) for frame in stack]
    if any(importing):
        # Not here, which may be in C++ that aborts the process if it gets an exception (so in torch's), or in a
        # callback of the importer, which would lose it with a message: in the module, at its next line.
        stack[importing.index(False)].f_trace = _trace
        sys.settrace(lambda *_: None)  # nothing is traced without a function for all frames
    else:
        check()


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and those that it was called from, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _trace(frame: FrameType, *_: object) -> None:
    frame.f_trace = None
    sys.settrace(None)
    check()


def _acting() -> bool:
    """Whether this is called while an `Interrupted`, or an exception raised while that was handled, is handled."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None
