"""When a rank's device does things, in seconds of the machine's monotonic clock."""

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """`mark` is called where something begins or ends, `seconds` when all of it is over."""

    def mark(self) -> Any: ...
    def seconds(self, mark: Any) -> float: ...


class HostClock:
    """For a CPU: what the host has called is done when the call returns."""

    def mark(self) -> float:
        """Now."""
        return time.monotonic()

    def seconds(self, mark: float) -> float:
        """The mark itself."""
        return mark


class EventClock:
    """For a GPU, which runs behind the host: events on its compute stream. Nothing is waited for until `seconds`.

    So a pass begins when its input is there, not when the host has asked for it, and waiting counts as waiting.
    """

    def __init__(self, device: torch.device) -> None:
        torch.cuda.synchronize(device)
        self._origin = self.mark()
        self._start = time.monotonic()

    def mark(self) -> torch.cuda.Event:
        """The moment when the device has done all that was asked of it so far."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, mark: torch.cuda.Event) -> float:
        """Wait for the mark; the time since the clock was made is the device's own."""
        mark.synchronize()
        return self._start + self._origin.elapsed_time(mark) / 1e3


def clock_of(device: torch.device) -> Clock:
    """The clock of a device."""
    return EventClock(device) if device.type == "cuda" else HostClock()
