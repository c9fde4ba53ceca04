"""Microbatches as CUDA graphs: the host launches one graph in place of some thousand kernels.

Where shapes repeat and nothing waits for the host, the forward and the backward pass of a microbatch are recorded once,
and replayed for every later one. The batch's first microbatch has a graph of its own, since its products write over the
main gradients to which those of the others add. What is recorded are kernels with their addresses: the activations of a
microbatch keep their memory from then on, and the graphs are recorded anew when the loss scale changes.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from ptdp_core.engine.groups import Groups
from ptdp_core.engine.pipeline import Batch, BatchResult, Executor


class GraphedExecutor:
    """Runs a batch as `Executor` does, on one rank of a model that is not divided.

    The first batch is run by the executor, so that every kernel is compiled and every library has its memory.
    """

    def __init__(self, executor: Executor, groups: Groups) -> None:
        self.executor, self.m = executor, executor.schedule.m
        self.stream = torch.cuda.Stream(groups.device)  # a recording needs one of its own, and autograd one for all
        self._graphs: dict[bool, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}  # with its loss; of the first or not
        self._feed: Batch | None = None  # tokens and labels that the graphs read
        self._scale = 0.0
        self._is_warm = False

    def run(self, batch: Callable[[int], Batch], loss_scale: float = 1.0) -> BatchResult:
        """Run one batch of m microbatches; see `Executor.run`. No timeline is recorded."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            run = self._replayed(batch, loss_scale) if self._is_warm else self.executor.run(batch, loss_scale)
        torch.cuda.current_stream().wait_stream(self.stream)
        self._is_warm = True
        return run

    def _replayed(self, batch: Callable[[int], Batch], loss_scale: float) -> BatchResult:
        if loss_scale != self._scale:
            self._graphs.clear()
            self._scale = loss_scale
        run = BatchResult(peak_stash=1)
        for j in range(self.m):
            feed = batch(j)
            if self._feed is None:
                self._feed = torch.empty_like(feed[0]), torch.empty_like(feed[1])
            for static, given in zip(self._feed, feed, strict=True):
                static.copy_(given)
            if (is_first := j == 0) not in self._graphs:
                self._graphs[is_first] = self._recorded(self._feed)
            graph, loss = self._graphs[is_first]
            graph.replay()
            run.losses[j] = loss.clone()
        return run

    def _recorded(self, feed: Batch) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        """A graph of both passes of a microbatch, and where it leaves the loss; nothing of it has run yet."""
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self._graphs.values()))[0].pool() if self._graphs else None  # the two never run at once
        context: AbstractContextManager[None] = torch.cuda.graph(graph, pool=pool, stream=self.stream)
        with context:
            loss = self.executor.microbatch(feed, self._scale)
        return graph, loss
