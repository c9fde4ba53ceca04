"""A pipeline schedule as data: the actions of each pipeline rank, in their order (Section 2.2).

A model split into p*v stages runs on p pipeline ranks (`placement.py`). An action is one forward or one backward pass
of one stage for one microbatch. Beyond the paper, a backward pass may be split into two: the gradient of the stage's
input, which the stage before waits for, and the gradients of its weights, which only the optimizer waits for.
"""

import csv
import io
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ptdp_core.schedules.placement import StagePlacement

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "F", "B", "I", "W"
KINDS = (FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)  # torch.distributed.pipelining's letters
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)", re.ASCII)
SHOWN = 40  # letters of what is no table, in a message
_OVERLAPPED = re.compile(r"\((.+)\)OVERLAP_F_B")


class Action(NamedTuple):
    """One pass of a stage for a microbatch (Section 2.2): forward 'F', backward 'B'; as text, `2F0`.

    A split backward pass is an 'I' (input gradient) and, any time after it, a 'W' (weight gradients).
    """

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @property
    def output(self) -> "Action":
        """The name of this pass's output, which is that of the pass that makes it in a schedule without split passes.

        An I has the output of a B: the gradient of the stage's input."""
        return Action(BACKWARD, self.stage, self.microbatch) if self.kind == INPUT_GRADIENT else self

    def input(self, stages: int) -> "Action | None":
        """The name (see `output`) of the output that this pass starts from, in a pipeline of so many stages.

        It is the F of the stage before, or the B of the stage after; None at the ends of the pipeline, and for a W."""
        kind, stage, microbatch = self
        source = stage - 1 if kind == FORWARD else stage + 1
        if kind == WEIGHT_GRADIENT or not 0 <= source < stages:
            return None
        return Action(FORWARD if kind == FORWARD else BACKWARD, source, microbatch)

    @classmethod
    def parse(cls, text: str) -> "Action":
        """Read `2F0` (stage 2, forward, microbatch 0), the text form of `torch.distributed.pipelining`."""
        match = _ACTION.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"action={text[:SHOWN]!r} is not a compute action; needs <stage><F, B, I or W><microbatch>; try '2F0'"
            )
        return cls(match[2], int(match[1]), int(match[3]))


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule as data (Section 2.2): the placement of the stages, and each rank's actions in their order.

    `ranks[r]` are the actions of pipeline rank r for m microbatches. `exchanges` says how messages are grouped in a
    blocking program (`lowering.lower`). The object checks nothing; `checks.py` finds out whether the order is complete
    and can run.
    """

    name: str
    placement: StagePlacement
    m: int
    ranks: tuple[tuple[Action, ...], ...]
    # Not compared, so that a schedule read from a CSV, which has only the order and the placement, equals the original.
    exchanges: str = field(default="derived", compare=False)

    def __post_init__(self) -> None:
        if len(self.ranks) != self.p:
            raise ValueError(
                f"ranks={len(self.ranks)} action lists for p={self.p}; needs one list per pipeline rank; "
                f"try p={len(self.ranks)}"
            )

    @property
    def p(self) -> int:
        """Pipeline ranks."""
        return self.placement.p

    @property
    def v(self) -> int:
        """Model chunks of a rank."""
        return self.placement.v

    @cached_property
    def is_split(self) -> bool:
        """Whether it splits backward passes into I and W."""
        return any(action.kind == WEIGHT_GRADIENT for actions in self.ranks for action in actions)

    @property
    def stages(self) -> int:
        """Model stages in all: p*v."""
        return self.p * self.v

    def to_csv(self) -> str:
        """The CSV of torch.distributed.pipelining (`format="compute_only"`), with a line for each rank."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.ranks)
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str, name: str) -> "Schedule":
        """Read what `to_csv` or torch's `_dump_csv(format="compute_only")` wrote; empty cells are idle slots.
        An F and a B that torch overlaps are read as one after the other.

        The lines also give the placement of the stages, and the largest microbatch gives m. Run `check_complete` on a
        table from another program.
        """
        try:
            rows = list(filter(None, csv.reader(io.StringIO(text, newline=""))))
        except csv.Error as error:  # a cell of more than 131,072 letters
            raise ValueError(f"csv={text[:SHOWN]!r} is no table: {error}; needs one line per pipeline rank") from None
        ranks = tuple(
            tuple(action for column, cell in enumerate(row) for action in _cell(cell, rank, column))
            for rank, row in enumerate(rows)
        )
        actions = [action for rank in ranks for action in rank]
        if not actions:
            raise ValueError(f"csv={text[:SHOWN]!r} holds no action; needs one line per pipeline rank; try '0F0,0B0'")
        placement = StagePlacement(tuple(tuple(sorted({action.stage for action in rank})) for rank in ranks))
        return cls(name, placement, 1 + max(action.microbatch for action in actions), ranks)


def _cell(cell: str, rank: int, column: int) -> list[Action]:
    """The passes of a cell: none if idle; two if torch overlaps an F and a B, written '(3F1;4B0)OVERLAP_F_B'."""
    overlapped = _OVERLAPPED.fullmatch(cell.strip())
    try:
        return [Action.parse(text) for text in (overlapped[1].split(";") if overlapped else [cell]) if text.strip()]
    except ValueError as error:
        raise ValueError(
            f"cell={cell.strip()[:SHOWN]!r} at rank {rank}, column {column} is not a forward or (split) backward pass; "
            'needs compute actions only, such as 2F0; try exporting with format="compute_only"'
        ) from error
