"""Ctrl-C and SIGTERM end a program once, in order, and never in the middle of making or undoing something.

A program installs this with `run_program`. From then on the first of these signals raises `Interrupted` in the main
thread; later ones do nothing, so that they cannot break what the first one makes the program undo. Where a signal must
not come between making a thing and having it in hand, or into undoing it, it is held:

    with held(), TemporaryDirectory() as folder, allowed():
        ...                             # interrupted here, if at all: the folder is made and removed undisturbed

Python loses an exception that is raised in a destructor or in a callback of C, and some libraries turn it into their
own. Loops that run long therefore call `check`, and who catches other exceptions asks `received`.

Without `run_program`, as in a notebook, nothing here has an effect, and Ctrl-C is Python's own.
"""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

SIGNALS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}  # with Python's own handlers
EXIT_BASE = 128  # a shell's exit code for a program that a signal ended: this plus the signal's number
IMPORTER = "<frozen importlib._bootstrap>"
AGAIN_S = 0.001

_received: int | None = None  # the first signal that came
_raised = False
_held = False


class Interrupted(KeyboardInterrupt):
    """A signal ends the program."""


class _Delivery:
    """A block in which signals are held, or allowed again; the earlier state comes back after it."""

    def __init__(self, hold: bool) -> None:
        self.hold = hold

    def __enter__(self) -> None:
        global _held
        self.before, _held = _held, self.hold
        if not self.hold:  # work begins: also if what a signal raised got lost
            check()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        global _held
        _held = self.before
        if kind is None:
            _raise_first()


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
    """Raise `Interrupted` if a signal came: it was held, or what it raised got lost."""
    global _raised
    if _received is not None:
        _raised = True
        raise Interrupted


def exit_code() -> int:
    """130 after Ctrl-C, 143 after SIGTERM."""
    return EXIT_BASE + (received() or signal.SIGINT)


def run_program(name: str, main: Callable[[], int]) -> NoReturn:
    """End this process with the exit code of `main()`, or as a signal says: with one line on stderr.

    `main` best imports what it needs itself: a signal during that is then handled, too. A signal that this process
    was started to ignore stays ignored. What `main` has finished cannot be interrupted any more.
    """
    for number, default in SIGNALS.items():
        if signal.getsignal(number) == default:
            signal.signal(number, _handle)
    signal.signal(signal.SIGALRM, _handle)
    try:
        code = main()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        code = exit_code()
    sys.exit(code)


def _handle(number: int, frame: FrameType | None) -> None:
    global _received
    if _received is None and number != signal.SIGALRM:
        _received = number
    if frame is not None and frame.f_code.co_filename == IMPORTER:  # in a callback there the exception would be lost
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
    else:
        _raise_first()


def _raise_first() -> None:
    global _raised
    if _received is not None and not _held and not _raised:
        _raised = True
        raise Interrupted
