"""One executor for every pipeline schedule (Section 2.2): it walks this rank's instructions of a lowered program.

A forward pass stashes its input (a leaf of the autograd graph) and the graph's output edge; the output tensor itself is
dropped once it is sent. The backward pass starts from that edge with the gradient received from the next stage, or with
the loss's. Nothing else is kept, so memory follows from the schedule's order of passes.

A split backward pass (I and W) needs stages that can defer their weight gradients (`SplitStage`). I is the backward
pass without these gradients, W computes them. A fused F and B take turns: stages hand over where they exchange tokens.

An evaluation runs the forward passes alone, without stashing, over the same communicators.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.profiler import record_function

from ptdp_core.engine.clock import clock_of
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.p2p import P2PCommunicator
from ptdp_core.engine.vocabulary import SharedVocabulary
from ptdp_core.schedules import Action, Compute, Exchange, Fused, Message, Program, Schedule, TimelineEvent, lower
from ptdp_core.schedules.actions import VOCABULARY_KINDS
from ptdp_core.schedules.program import message_into, message_out_of
from ptdp_core.turns import Turns

Stage = Callable[..., torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]


@runtime_checkable
class SplitStage(Protocol):
    """A stage whose backward passes can be split: for each microbatch first an I, and any time later a W."""

    def defer_weight_gradients(self, microbatch: int) -> AbstractContextManager[None]:
        """A backward pass run inside (I) leaves out the weight gradients, and keeps the tensors that they need."""

    def add_weight_gradients(self, microbatch: int) -> None:
        """Compute the weight gradients that were left out, and add them to the weights' gradients (W)."""


@dataclass
class BatchResult:
    """The results of one batch on this rank.

    `losses` are the mean losses by microbatch, on the rank of the last stage only. `timeline` is in seconds of the
    machine's monotonic clock, and empty unless it was recorded. `peak_stash` is the largest number of
    microbatches that were stashed at once, summed over chunks; those between I and W count, too.
    """

    losses: dict[int, torch.Tensor] = field(default_factory=dict)
    timeline: list[TimelineEvent[float]] = field(default_factory=list)
    peak_stash: int = 0


class Executor:
    """Runs a lowered program on this pipeline rank.

    `stages[c](x, tokens, labels)` is chunk c. The first stage gets None for x; only the first and the last stage get
    tokens and labels; the last stage returns the loss. `before(action)` is called before every pass, to set random
    streams and gradient buckets. `record` keeps a timeline; stages hand over by `turns`. With a shared `vocabulary` the
    first stage gets x from there, and the last one returns its output. The constructor creates the program's
    communicators, so all pipeline ranks call it. Raises `ValueError` for a schedule with split passes if a
    stage is not a `SplitStage`.
    """

    def __init__(
        self,
        program: Program,
        stages: Sequence[Stage],
        p2p: P2PCommunicator,
        groups: Groups,
        before: Callable[[Action], None] = lambda action: None,
        record: bool = False,
        turns: Turns | None = None,
        vocabulary: SharedVocabulary | None = None,
    ) -> None:
        self.turns, self.vocabulary = turns or Turns(), vocabulary
        self.program, self.schedule = program, program.schedule
        self.placement = program.schedule.placement
        self.instructions = program.ranks[groups.pp.rank]
        self.trains = True
        self.stages, self.p2p, self.groups = stages, p2p, groups
        self.before, self.record = before, record
        self.blocking = program.mode == "blocking"
        if self.schedule.is_split and not all(isinstance(stage, SplitStage) for stage in stages):
            raise ValueError(
                f"schedule={self.schedule.name!r} splits backward passes; needs stages that can defer their weight "
                "gradients (SplitStage); try schedule='1f1b'"
            )
        self._deferred: set[tuple[int, int]] = set()  # (stage, microbatch) whose I has run, and whose W has not
        self._stash: dict[tuple[int, int], tuple[torch.Tensor | None, GradientEdge]] = {}
        self._outgoing: dict[Message, torch.Tensor] = {}
        self._kept: dict[Action, torch.Tensor] = {}  # outputs that the next stage uses on this rank, by `Action.output`
        p2p.connect(program)
        if vocabulary is not None:
            vocabulary.connect()

    def run(self, batch: Callable[[int], Batch], loss_scale: float = 1.0) -> BatchResult:
        """Run one batch of m microbatches, and flush. `batch(j)` returns tokens and labels [B, S] of microbatch j.

        The gradients of `loss_scale` times the mean loss of the m microbatches are added to the parameters' gradients.
        """
        run, clock = BatchResult(), clock_of(self.groups.device) if self.record and self.trains else None
        scale = loss_scale / self.schedule.m  # the one place that divides by m
        if self.vocabulary is not None:
            self.vocabulary.begin(scale, self.trains)
        has_loss = self.vocabulary is None and self.placement.last == self.groups.pp.rank
        first = self._first_gradient(scale) if has_loss and self.trains else None
        instructions = self.instructions if self.trains else self._forward_instructions
        marks: list[tuple[Any, Any]] = []  # the clock's marks at the beginning and the end of every instruction
        for instruction in instructions:
            if isinstance(instruction, Exchange):
                begin = clock.mark() if clock else None
                self.p2p.post(instruction, self._outgoing, self.blocking)
            elif isinstance(action := instruction.cell, Fused):
                x, grad = map(self._input, action)
                begin = clock.mark() if clock else None
                run.peak_stash = max(run.peak_stash, len(self._stash) + 1 + len(self._deferred))
                self.before(action.backward)
                # B begins: its first exchange comes before there is anything to compute.
                with self.turns.beside(partial(self._backward, action.backward, first if grad is None else grad)):
                    self.before(action.forward)
                    self._forward(action.forward, x, batch, run)
            else:
                self.before(action)
                x = self._input(action)
                begin = clock.mark() if clock else None
                with _range(action):
                    if action.kind in VOCABULARY_KINDS:
                        assert self.vocabulary is not None
                        self.vocabulary.run(action, batch)
                    elif action.kind == "F":
                        self._forward(action, x, batch, run)
                    elif action.kind == "W":
                        self._weight_gradients(action)
                    else:
                        self._backward(action, first if x is None else x)
            if clock:
                marks.append((begin, clock.mark()))
        self.p2p.flush()
        if self.vocabulary is not None:
            self.vocabulary.flush()
            run.losses |= self.vocabulary.losses
        assert not self._stash
        assert not self._deferred
        assert not self._outgoing
        assert not self._kept
        if clock:
            for instruction, (begin, end) in zip(instructions, marks, strict=True):
                run.timeline += _events(instruction, clock.seconds(begin), clock.seconds(end))
        return run

    def microbatch(self, feed: Batch, loss_scale: float) -> torch.Tensor:
        """Run F and B of one microbatch on a rank that has the whole model; return the mean loss, as `run` does."""
        (stage,) = self.stages
        loss = stage(None, *feed)
        # An edge: from a tensor PyTorch hides the backward pass from modes that count its functions.
        torch.autograd.backward(get_gradient_edge(loss), self._first_gradient(loss_scale / self.schedule.m))
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, batch: Callable[[int], Batch]) -> list[torch.Tensor]:
        """The mean loss of each microbatch (scalars), without dropout, on the rank of the last stage; else no losses.

        The stages are modules.
        """
        modules = [stage for stage in self.stages if isinstance(stage, nn.Module)]
        self.trains = False
        try:
            for module in modules:
                module.eval()
            return list(self.run(batch).losses.values())
        finally:
            for module in modules:
                module.train()
            self.trains = True

    @cached_property
    def _forward_instructions(self) -> Sequence[Compute | Exchange]:
        """This rank's part of the schedule's forward passes alone."""
        return lower(forward_schedule(self.schedule), self.program.mode).ranks[self.groups.pp.rank]

    def _input(self, action: Action) -> torch.Tensor | None:
        """The activation or gradient from which a pass starts.

        It is None for every W, and unless the vocabulary is shared for a forward pass of the first stage and a backward
        pass of the last.
        """
        message = message_into(action, self.placement)
        if message is not None:
            return self.p2p.take(message)
        source = action.input(self.schedule.stages)
        if source is not None:
            return self._kept.pop(source)
        if self.vocabulary is not None and action.kind == "F":
            return self.vocabulary.embedded(action.microbatch)
        if self.vocabulary is not None and action.kind in ("B", "I"):
            return self.vocabulary.output_gradient(action.microbatch)
        return None

    def _forward(self, action: Action, x: torch.Tensor | None, batch: Callable[[int], Batch], run: BatchResult) -> None:
        """Run F: stash what its backward pass needs, if there is one, and send the output, or keep the loss."""
        stage, last = action.stage, action.stage == self.schedule.stages - 1
        if x is not None and self.trains:
            x.requires_grad_()  # the backward pass sends the gradient of this leaf to the stage before
        feed = batch(action.microbatch) if self.vocabulary is None and (stage == 0 or last) else ()
        y = self.stages[self.placement.chunk_of(stage)](x, *feed)
        if self.trains:
            self._stash[stage, action.microbatch] = (x, get_gradient_edge(y))
            run.peak_stash = max(run.peak_stash, len(self._stash) + len(self._deferred))
            y = y.detach()
        if not last:
            self._send(action, y)
        elif self.vocabulary is None:
            run.losses[action.microbatch] = y
        else:
            self.vocabulary.start_output(action.microbatch, y)

    def _backward(self, action: Action, grad: torch.Tensor | None) -> None:
        """Run B or I from the gradient of the output or of the loss, and send the input's gradient."""
        x, output_edge = self._stash.pop((action.stage, action.microbatch))
        with self._split(action) if action.kind == "I" else nullcontext():
            torch.autograd.backward(output_edge, grad)
        if x is not None:
            assert x.grad is not None
            if self.vocabulary is not None and action.stage == 0:
                self.vocabulary.start_embedding_gradient(action.microbatch, x.grad)
            else:
                self._send(action, x.grad)

    def _first_gradient(self, scale: float) -> torch.Tensor:
        """The gradient of the loss, a scalar in at least fp32."""
        wide = torch.promote_types(self.p2p.dtype, torch.float32)
        return torch.full((), scale, dtype=wide, device=self.groups.device)

    def _split(self, action: Action) -> AbstractContextManager[None]:
        """Let the backward pass run inside be an I, and note that its W is to come."""
        self._deferred.add((action.stage, action.microbatch))
        return self._split_stage(action).defer_weight_gradients(action.microbatch)

    def _weight_gradients(self, action: Action) -> None:
        """Run W: compute the weight gradients that the microbatch's I left out."""
        self._deferred.remove((action.stage, action.microbatch))
        self._split_stage(action).add_weight_gradients(action.microbatch)

    def _split_stage(self, action: Action) -> SplitStage:
        stage = self.stages[self.placement.chunk_of(action.stage)]
        assert isinstance(stage, SplitStage)
        return stage

    def _send(self, action: Action, tensor: torch.Tensor) -> None:
        """Keep a pass's output for the exchange that sends it, or for the next stage if that is on this rank."""
        message = message_out_of(action, self.placement)
        if message is not None:
            self._outgoing[message] = tensor
        else:
            self._kept[action.output] = tensor


def forward_schedule(schedule: Schedule) -> Schedule:
    """The forward passes of a schedule, in their order, and nothing else.

    Where all ranks share the vocabulary, those of its passes that the loss needs.
    """
    ranks = tuple(tuple(action for action in actions if action.kind in "EFS") for actions in schedule.ranks)
    return replace(schedule, ranks=ranks, fused=frozenset())


def _range(action: Action) -> AbstractContextManager[object]:
    """A pass's range in a trace of torch.profiler, with torch.distributed.pipelining's name; without one nothing."""
    return record_function(f"PP:{action}") if torch.autograd._profiler_enabled() else nullcontext()


def _events(instruction: Compute | Exchange, start: float, end: float) -> list[TimelineEvent[float]]:
    """The timeline's events of an instruction, from `start` to `end` in seconds: two of a fused pair."""
    if isinstance(instruction, Compute):
        return [TimelineEvent(action.kind, action, start, end) for action in instruction.actions]
    return [TimelineEvent("exchange", None, start, end, instruction)]


def last_backward(program: Program, rank: int) -> set[Action]:
    """The last B or W of each chunk of a rank; when it has run, the chunk's gradients are complete."""
    last: dict[int, Action] = {}
    for action in program.schedule.ranks[rank]:
        if action.kind in "BW":
            last[action.stage] = action
    return set(last.values())
