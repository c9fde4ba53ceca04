"""A lowered program: the computations of each rank and the messages between them, in order (Sections 2.2 and 4.1)."""

from dataclasses import dataclass
from typing import NamedTuple

from ptdp_core.schedules.actions import BOUNDARY_KINDS, Action, Cell, Schedule, passes_of
from ptdp_core.schedules.placement import StagePlacement

MODES = ("blocking", "overlapped")


class Message(NamedTuple):
    """A boundary tensor, named by the pass that made it (kind, stage, microbatch), and its two ranks.

    `kind` is 'F' for an activation and 'B' for a gradient, which a split backward pass makes in its I.
    """

    kind: str
    stage: int
    microbatch: int
    source: int
    destination: int

    @property
    def made_by(self) -> Action:
        """The pass whose output this is (`Action.output`)."""
        return Action(self.kind, self.stage, self.microbatch)

    def __str__(self) -> str:
        return f"{self.made_by} (rank {self.source} to {self.destination})"


class Compute(NamedTuple):
    """Run one forward or backward pass, or one half of a split one; or the two of a fused pair together."""

    cell: Cell

    @property
    def actions(self) -> tuple[Action, ...]:
        """The passes, of which there is one unless they are fused."""
        return passes_of(self.cell)

    def __str__(self) -> str:
        return f"compute {self.cell}"


class Exchange(NamedTuple):
    """Post these messages as one group. In a blocking program, also wait until all of them are done."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]

    def __str__(self) -> str:
        parts = (("send", self.sends), ("receive", self.receives))
        return ", ".join(f"{verb} {message}" for verb, messages in parts for message in messages)


Instruction = Compute | Exchange


@dataclass(frozen=True)
class Program:
    """A lowered schedule: `ranks[r]` holds the instructions of pipeline rank r in their order."""

    mode: str
    schedule: Schedule
    ranks: tuple[tuple[Instruction, ...], ...]


def channels(program: Program) -> list[tuple[int, int]]:
    """The ordered pairs of ranks between which messages go, pair by pair, those whose lower rank is even first.

    In a chain of ranks these pairs have no rank in common, nor have the others.
    """
    pairs = {
        (message.source, message.destination)
        for instructions in program.ranks
        for exchange in instructions
        if isinstance(exchange, Exchange)
        for message in exchange.sends
    }
    return sorted(pairs, key=lambda pair: (min(pair) % 2, min(pair), max(pair), pair))


def message_into(action: Action, placement: StagePlacement) -> Message | None:
    """The message an action waits for; None at the ends of the pipeline, from the same rank, and for other passes."""
    kind, stage, microbatch = action.output
    producer = stage - 1 if kind == "F" else stage + 1
    ranks = placement.ranks
    if kind not in BOUNDARY_KINDS or not 0 <= producer < len(ranks) or ranks[producer] == ranks[stage]:
        return None
    return Message(kind, producer, microbatch, ranks[producer], ranks[stage])


def message_out_of(action: Action, placement: StagePlacement) -> Message | None:
    """The message an action produces; None at the ends of the pipeline, to the same rank, and for other passes."""
    kind, stage, microbatch = action.output
    consumer = stage + 1 if kind == "F" else stage - 1
    ranks = placement.ranks
    if kind not in BOUNDARY_KINDS or not 0 <= consumer < len(ranks) or ranks[consumer] == ranks[stage]:
        return None
    return Message(kind, stage, microbatch, ranks[stage], ranks[consumer])
