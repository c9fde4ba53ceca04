"""The outcome of a training run, as rank 0 reports it to its launcher."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Trained:
    """The outcome of a run: the loss of each of its steps, the steps done in all, and the last checkpoint, if any."""

    losses: list[float]
    step: int
    saved: str
    terminated: bool  # by SIGTERM, before its last step
