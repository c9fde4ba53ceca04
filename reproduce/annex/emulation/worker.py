"""The program of one rank: it measures its links, then runs iterations of the real engine on its virtual accelerator.

All ranks share `folder`; see `RendezvousCommunicator`.
"""

import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from ptdp_core.engine.groups import Groups
from ptdp_core.engine.param_and_grad_buffer import ParamAndGradBuffer
from ptdp_core.engine.pipeline import BatchResult, Executor, last_backward
from ptdp_core.schedules import Action, TimelineEvent, build, lower
from ptdp_core.turns import Turns
from reproduce.annex.emulation.calibration import Stopwatch, measure_links
from reproduce.annex.emulation.plan import ELEMENT_BYTES, EmulationPlan
from reproduce.annex.emulation.rank_report import Iteration, RankReport
from reproduce.annex.emulation.virtual import (
    ChunkTimes,
    Pace,
    RendezvousCommunicator,
    VirtualChunk,
    sleep_until,
    virtual_parameters,
)


def run(beat: Callable[[], None], plan: EmulationPlan, folder: str) -> RankReport:
    """Run this rank and return its report."""
    groups = Groups.create(plan.config.parallel)
    measured = measure_links(plan, groups, Path(folder))
    beat()
    rank = VirtualRank(plan, groups, Path(folder))
    reports = []
    for _ in range(plan.warmup + plan.iterations):
        reports.append(rank.iterate())
        beat()
    return RankReport(measured, tuple(reports[plan.warmup :]), rank.sent_bytes(len(reports)))


class VirtualRank:
    """The engine on one rank, with virtual chunks."""

    def __init__(self, plan: EmulationPlan, groups: Groups, folder: Path) -> None:
        self.plan, self.groups, parallel = plan, groups, plan.config.parallel
        self.mine, self.watch = plan.ranks[groups.pp.rank], Stopwatch()
        self._calibrated = groups.ep.calls["all_to_all"]  # before the first iteration
        program = lower(build(parallel.schedule, parallel.p, parallel.m, parallel.v), "blocking")
        parameters = virtual_parameters(self.mine.pieces, self.mine.tied)
        self.overlap = parallel.data_parallel == "torch"
        self.placement = program.schedule.placement
        self.buffer = ParamAndGradBuffer(
            parameters,
            groups,
            overlap=self.overlap,
            sharded=False,
            bucket_bytes=ELEMENT_BYTES,
            tied_ranks=plan.config.tied_ranks,
        )
        self.pace, self.turns = Pace(), Turns()
        self.chunks = [
            self._chunk(chunk, [local.tensor for local in parameters if local.chunk == chunk])
            for chunk in range(parallel.v)
        ]
        self.p2p = RendezvousCommunicator(groups, plan.boundary.message_shape, torch.float32, folder)
        self.program, self.last = program, last_backward(program, groups.pp.rank)
        self.executor = Executor(program, self.chunks, self.p2p, groups, self._before, True, self.turns)

    def _chunk(self, chunk: int, parameters: list[torch.nn.Parameter]) -> VirtualChunk:
        plan, groups = self.plan, self.groups
        index = self.placement.stages[groups.pp.rank][chunk]
        stage, pieces = plan.stages[index], self.mine.pieces[chunk]
        times = ChunkTimes(
            stage.forward,
            stage.backward,
            stage.weight_gradient,
            plan.gather,
            stage.reduced_forward,
            stage.reduced_backward,
            plan.exchange,
            frozenset(number for number, piece in enumerate(pieces) if piece.exchanged),
        )
        return VirtualChunk(
            times,
            parameters[: len(pieces)],
            plan.boundary,
            groups.tp,
            groups.ep,
            self.pace,
            self.turns,
            received=self.placement.received[index],
            sent=self.placement.sent[index],
            is_last=index == len(plan.stages) - 1,
        )

    def _before(self, action: Action) -> None:
        self.pace.begin(action)
        chunk = self.placement.chunk_of(action.stage)
        if self.overlap and action in self.last:
            self.chunks[chunk].last = True
            self.buffer.expect_last(chunk)

    def iterate(self) -> Iteration:
        """Run one iteration, from a start that all ranks agree on."""
        self.buffer.zero()
        self.pace.gathered.clear()
        for chunk in self.chunks:
            chunk.last = False
        batch = (torch.zeros(1), torch.zeros(1))
        start = self.watch.agree()
        run = self.executor.run(lambda microbatch: batch)
        reduction = self._reduce()
        return self._finish(start, run, reduction)

    def _reduce(self) -> TimelineEvent[float]:
        """Reduce gradients over data-parallel ranks and those of the tied embedding, as the engine does."""
        start = time.monotonic()
        if self.mine.reduce is not None and max(self.groups.dp.size, self.groups.edp.size) > 1:
            # Inside a node the reduction runs over loopback, and takes NVLink's time from the last rank's arrival on.
            together = latest(self.groups.edp, latest(self.groups.dp, start))
            self.buffer.finish()
            sleep_until(together + self.mine.reduce + self.mine.copies)
        else:
            self.buffer.finish()
            time.sleep(self.mine.copies)
        return TimelineEvent("data_parallel", None, start, time.monotonic())

    def _finish(self, start: float, run: BatchResult, reduction: TimelineEvent[float]) -> Iteration:
        """Run the optimizer step, which begins when all ranks of a replica have the gradient norm; then the host."""
        step = latest(self.groups.tp, latest(self.groups.pp, reduction.end))
        sleep_until(step + self.mine.optimizer)
        stepped = max(time.monotonic(), step + self.mine.optimizer)
        sleep_until(stepped + self.plan.host)
        end = time.monotonic()
        return Iteration(
            timeline=tuple(since(start, event) for event in run.timeline),
            gathered=dict(self.pace.gathered),
            reduction=since(start, reduction),
            optimizer=TimelineEvent("optimizer", None, step - start, stepped - start),
            end=end - start,
            peak_stash=run.peak_stash,
        )

    def sent_bytes(self, iterations: int) -> dict[str, float]:
        """The bytes that this rank sent per iteration, by use: as counted, or sizes times counted calls."""
        t, ep = self.groups.tp.size, self.groups.ep
        sent = {
            "pipeline": self.p2p.statistics.bytes / iterations,
            "data": sum(
                (bucket.stop - bucket.start) * ELEMENT_BYTES * 2 * (bucket.axis.size - 1) / bucket.axis.size
                for bucket in self.buffer.buckets
            ),
            "embedding": self.mine.tied * ELEMENT_BYTES if self.placement.first != self.placement.last else 0,
        }
        if self.plan.tensor_spans_nodes:
            reduced = sum(
                self.plan.config.parallel.m * (chunk.times.reduced_forward + chunk.times.reduced_backward)
                for chunk in self.chunks
            )
            sent["tensor"] = reduced * ELEMENT_BYTES * 2 * (t - 1) / t
        if self.plan.experts_span_nodes:
            calls = (ep.calls["all_to_all"] - self._calibrated) / iterations
            sent["experts"] = calls * self.plan.exchange.elements * ELEMENT_BYTES * (ep.size - 1) / ep.size
        return sent


def since(start: float, event: TimelineEvent[float]) -> TimelineEvent[float]:
    """The event in seconds since `start`."""
    return event._replace(start=event.start - start, end=event.end - start)


def latest(axis, moment: float) -> float:  # type: ignore[no-untyped-def]
    """The latest of the ranks' moments along an axis."""
    last = torch.tensor([moment], dtype=torch.float64)
    return float(axis.all_reduce(last, op=dist.ReduceOp.MAX).item())
