"""A pipeline schedule as data: the actions of each pipeline rank, in their order (Section 2.2).

A model split into p*v stages runs on p pipeline ranks (`placement.py`). An action is one forward or one backward pass
of one stage for one microbatch. Beyond the paper, a backward pass may be split into two: the gradient of the stage's
input, which the stage before waits for, and the gradients of its weights, which only the optimizer waits for. And a
forward and a backward pass may be fused: they run together, so that one computes while the other communicates. Where
all ranks share the vocabulary, its layers have passes of their own (`vocabulary.py`).
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

from ptdp_core.schedules.placement import StagePlacement

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "F", "B", "I", "W"
KINDS = (FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)  # torch.distributed.pipelining's letters
VOCABULARY_KINDS = EMBED, SCORE, TURN, GATHER = "E", "S", "T", "G"  # see `vocabulary.py`
BOUNDARY_KINDS = (FORWARD, BACKWARD, INPUT_GRADIENT)  # whose inputs and outputs cross boundaries between stages
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)", re.ASCII)
SHOWN = 40  # letters of what is no table, in a message
_FUSED = re.compile(r"\((.*)\)OVERLAP_F_B")


class Action(NamedTuple):
    """One pass of a stage for a microbatch (Section 2.2): forward 'F', backward 'B'; as text, `2F0`.

    A split backward pass is an 'I' (input gradient) and, any time after it, a 'W' (weight gradients). The passes of a
    shared vocabulary are named by their rank's first stage (`VOCABULARY_KINDS`).
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

        It is the F of the stage before, or the B of the stage after; None at the ends of the pipeline, for a W, and for
        a pass of the vocabulary."""
        kind, stage, microbatch = self
        source = stage - 1 if kind == FORWARD else stage + 1
        if kind not in BOUNDARY_KINDS or not 0 <= source < stages:
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


class Vocabulary(NamedTuple):
    """How all pipeline ranks share the vocabulary: a method of `vocabulary.METHODS`, and the stages of the passes.

    `shards[r]` is the stage that names the passes of rank r, its first; `last` is the model's last stage.
    """

    method: str
    shards: tuple[int, ...]
    last: int

    @classmethod
    def of(cls, placement: StagePlacement, method: str) -> "Vocabulary":
        """How the ranks of a placement share the vocabulary by a method."""
        return cls(method, tuple([stages[0] for stages in placement.stages]), placement.p * placement.v - 1)

    def before(self, action: Action) -> tuple[Action, ...]:
        """The passes, named by `Action.output`, whose reduced or broadcast results an action starts from."""
        kind, stage, i = action
        if kind == SCORE:
            return (Action(FORWARD, self.last, i),)
        if kind == GATHER:
            return (Action(BACKWARD, 0, i),)
        if kind == TURN:
            return self.everywhere(SCORE, i)
        if kind == FORWARD and stage == 0:
            return self.everywhere(EMBED, i)
        if kind in (BACKWARD, INPUT_GRADIENT) and stage == self.last:
            return self.everywhere(SCORE if self.method == "vocab-2" else TURN, i)
        return ()

    def everywhere(self, kind: str, microbatch: int) -> tuple[Action, ...]:
        """The passes of a kind on all ranks."""
        return tuple([Action(kind, stage, microbatch) for stage in self.shards])


Pass = tuple[str, int, int]  # kind, stage, microbatch: an `Action`, or a plain tuple, of which a table may have 100,000
# The action of a pass; the class's own constructor costs more than all the rest of a table.
as_action: Any = partial(tuple.__new__, Action)


class Fused(NamedTuple):
    """A forward and a backward pass of another microbatch that a rank runs together; as text, `(3F1;4B0)OVERLAP_F_B`.

    Both start when both have their inputs, and the outputs of both exist when both are done.
    """

    forward: Action
    backward: Action

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


Cell = Action | Fused


def passes_of(cell: Pass | Fused) -> tuple[Action, ...]:
    """The pass of a cell, or both of a fused one."""
    return cell if isinstance(cell, Fused) else (as_action(cell),)


def cells(actions: Sequence[Action], fused: frozenset[Action]) -> Iterable[Cell]:
    """The actions with those in `fused` and the one after each as one cell."""
    return _paired(iter(actions), fused) if fused else actions


def _paired(actions: Iterator[Action], fused: frozenset[Action]) -> Iterator[Cell]:
    for action in actions:
        yield Fused(action, next(actions)) if action in fused else action


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule as data (Section 2.2): the placement of the stages, and each rank's actions in their order.

    `ranks[r]` are the actions of pipeline rank r for m microbatches. `fused` are the forward passes that run together
    with the backward pass after them. `exchanges` says how messages are grouped in a blocking program
    (`lowering.lower`). `vocabulary` is how all ranks share the vocabulary, if they do. The object checks nothing;
    `checks.py` finds out whether the order is complete and can run.
    """

    name: str
    placement: StagePlacement
    m: int
    ranks: tuple[tuple[Action, ...], ...]
    # Not compared, so that a schedule read from a CSV, which has only the order and the placement, equals the original.
    exchanges: str = field(default="derived", compare=False)
    fused: frozenset[Action] = frozenset()
    vocabulary: Vocabulary | None = None

    def __post_init__(self) -> None:
        if len(self.ranks) != len(self.placement.stages):
            raise ValueError(
                f"ranks={len(self.ranks)} action lists for p={self.p}; needs one list per pipeline rank; "
                f"try p={len(self.ranks)}"
            )

    @classmethod
    def of_cells(
        cls,
        name: str,
        placement: StagePlacement,
        m: int,
        rows: Iterable[Iterable[Pass | Fused]],
        exchanges: str = "derived",
    ) -> "Schedule":
        """The schedule whose ranks have these cells, in their order."""
        read = [list(row) for row in rows]
        ranks = tuple(tuple(action for cell in row for action in passes_of(cell)) for row in read)
        fused = frozenset(cell.forward for row in read for cell in row if isinstance(cell, Fused))
        return cls(name, placement, m, ranks, exchanges, fused)

    @cached_property
    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        """What each rank runs, one cell after the other."""
        return tuple(tuple(cells(actions, self.fused)) for actions in self.ranks)

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
        return len(self.placement.ranks)

    def to_csv(self) -> str:
        """The CSV of torch.distributed.pipelining (`format="compute_only"`), with a line for each rank."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.cells)
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str, name: str) -> "Schedule":
        """Read what `to_csv` or torch's `_dump_csv(format="compute_only")` wrote; empty cells are idle slots.

        The lines also give the placement of the stages, and the largest microbatch gives m. Run `check_complete` on a
        table from another program.
        """
        try:
            rows = list(filter(None, csv.reader(io.StringIO(text, newline=""))))
        except csv.Error as error:  # a cell of more than 131,072 letters
            raise ValueError(f"csv={text[:SHOWN]!r} is no table: {error}; needs one line per pipeline rank") from None
        read = [[_cell(cell, rank, i) for i, cell in enumerate(row) if cell.strip()] for rank, row in enumerate(rows)]
        ranks = [[action for cell in row for action in passes_of(cell)] for row in read]
        actions = [action for rank in ranks for action in rank]
        if not actions:
            raise ValueError(f"csv={text[:SHOWN]!r} holds no action; needs one line per pipeline rank; try '0F0,0B0'")
        placement = StagePlacement(tuple(tuple(sorted({action.stage for action in rank})) for rank in ranks))
        return cls.of_cells(name, placement, 1 + max(action.microbatch for action in actions), read)


def _cell(text: str, rank: int, column: int) -> Cell:
    """The cell of this text, a pass or a fused pair of an F and a B."""
    fused = _FUSED.fullmatch(text.strip())
    try:
        if fused is None:
            return Action.parse(text)
        forward, backward = map(Action.parse, fused[1].split(";"))
        if (forward.kind, backward.kind) != (FORWARD, BACKWARD):
            raise ValueError(f"kinds={forward.kind}{backward.kind} of a fused pair; needs an F and a B")
        return Fused(forward, backward)
    except ValueError as error:
        raise ValueError(
            f"cell={text.strip()[:SHOWN]!r} at rank {rank}, column {column} is not a forward or (split) backward pass; "
            'needs compute actions only, such as 2F0; try exporting with format="compute_only"'
        ) from error
