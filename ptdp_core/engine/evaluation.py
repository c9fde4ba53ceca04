"""The loss of a batch without training: only a schedule's forward passes run, without stashing and dropout."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from ptdp_core.engine.p2p import P2PCommunicator
from ptdp_core.engine.pipeline import Batch
from ptdp_core.engine.vocabulary import SharedVocabulary
from ptdp_core.schedules import Action, Compute, Message, Program, Schedule, lower, message_into, message_out_of


def forward_schedule(schedule: Schedule) -> Schedule:
    """The forward passes of a schedule, in their order, and nothing else.

    Where all ranks share the vocabulary, those of its passes that the loss needs."""
    ranks = tuple(tuple(action for action in actions if action.kind in "EFS") for actions in schedule.ranks)
    return replace(schedule, ranks=ranks, fused=frozenset())


class Evaluator:
    """Runs the forward passes of a program on this pipeline rank, over the same communicators as training.

    `stages` are the rank's model chunks, `rank` is its pipeline rank, and `vocabulary` its part of a shared one.
    """

    def __init__(
        self,
        program: Program,
        stages: Sequence[nn.Module],
        p2p: P2PCommunicator,
        rank: int,
        vocabulary: SharedVocabulary | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.schedule, self.stages, self.p2p = program.schedule, stages, p2p
        self.instructions = lower(forward_schedule(program.schedule), program.mode).ranks[rank]
        self.blocking = program.mode == "blocking"

    @torch.no_grad()
    def run(self, batch: Callable[[int], Batch]) -> list[torch.Tensor]:
        """The mean loss of each microbatch (scalars) on the rank of the last stage; an empty list on other ranks."""
        placement, last = self.schedule.placement, self.schedule.stages - 1
        outgoing: dict[Message, torch.Tensor] = {}
        kept: dict[Action, torch.Tensor] = {}  # outputs that the next stage uses on this rank
        losses = []
        vocabulary = self.vocabulary
        if vocabulary is not None:
            vocabulary.begin(0.0, trains=False)
        for stage in self.stages:
            stage.eval()
        for instruction in self.instructions:
            if not isinstance(instruction, Compute):
                self.p2p.post(instruction, outgoing, self.blocking)
                continue
            action = instruction.cell
            assert isinstance(action, Action)
            if action.kind != "F":
                assert vocabulary is not None
                vocabulary.run(action, batch)
                continue
            message, source = message_into(action, placement), action.input(self.schedule.stages)
            x = self.p2p.take(message) if message else None if source is None else kept.pop(source)
            if vocabulary is not None and action.stage == 0:
                x = vocabulary.embedded(action.microbatch)
            feed = batch(action.microbatch) if vocabulary is None and action.stage in (0, last) else ()
            y = self.stages[placement.chunk_of(action.stage)](x, *feed)
            sent = message_out_of(action, placement)
            if action.stage == last and vocabulary is not None:
                vocabulary.start_output(action.microbatch, y)
            elif action.stage == last:
                losses.append(y)
            elif sent is not None:
                outgoing[sent] = y
            else:
                kept[action] = y
        self.p2p.flush()
        if vocabulary is not None:
            vocabulary.flush()
            losses = [vocabulary.losses[i] for i in sorted(vocabulary.losses)]
        for stage in self.stages:
            stage.train()
        return losses
