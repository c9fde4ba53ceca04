"""What Python does while something runs, by the function of the project: its calls and the lines that it executes.

Only the standard library is imported, so that a process can run this file before it imports the project.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any

Lines = dict[str, Counter[int]]  # how often each line is executed, by function


def name(frame: FrameType) -> str:
    """The name of a frame's function, such as 'optimizer.Optimizer.step'."""
    return name_of(frame.f_code, str(frame.f_globals.get("__name__", "")))


@cache
def name_of(code: CodeType, module: str) -> str:
    """The name of a function of a module, without that of a comprehension, which not every Python has."""
    parts = (part for part in code.co_qualname.split(".") if not part.startswith("<"))
    return ".".join([module.rsplit(".", 1)[-1], *parts])


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that it was called from, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


@contextmanager
def calling(heard: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Call `heard` at every call and return of this thread, as `sys.setprofile` does."""
    sys.setprofile(heard)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextmanager
def executing(places: tuple[str, ...]) -> Iterator[Lines]:
    """Count the lines of functions whose files begin with one of `places`; a comprehension's are its function's."""
    lines: Lines = defaultdict(Counter)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(places):
            return None
        of_function = lines[name(frame)]

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                of_function[frame.f_lineno] += 1
            return count

        return count

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)
