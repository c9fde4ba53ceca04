"""Parameters and main gradients in one contiguous buffer each, and the reduction of the gradients.

Main gradients are fp32 (fp64 for fp64 models) and are reduced over the data-parallel ranks.

Experts' gradients are reduced over the ranks that hold the same experts (`Groups.edp`), in buckets of their own. Each
of these ranks has them from the tokens of all its expert group, so that the sum is over all d replicas, as elsewhere.

Parameters are cut into buckets in the order in which backward passes finish their gradients. In a bucket those of a
kind lie side by side (`BufferEntry.kind`), so that the optimizer has few and long pieces to update.
`data_parallel='local'` has one bucket, reduced after the pipeline flush. 'torch' has many, each of which is reduced
while the last backward pass goes on (Section 2.1). Buckets are padded to a multiple of d, so that with a sharded
optimizer each of the d ranks owns 1/d of each bucket.

In a model with several stages the first and the last one have a copy of the tied embedding each, and a gradient each.
The two are summed after the reduction over d: both ranks then compute the same sum of two numbers, so the copies stay
bitwise equal. Before it they would not: the order of summation over d depends on a parameter's place in its bucket,
which differs between the stages. The embedding's bucket is reduced after the flush.
"""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from ptdp_core.engine.groups import Axis, Groups, gather_flat, reduce_scatter_flat
from ptdp_core.engine.parameters import LocalParameter
from ptdp_core.engine.weight_gradients import WeightGradients
from ptdp_core.layout import ShardSpec

MIB = 1 << 20


@dataclass(frozen=True)
class BufferEntry:
    """A parameter and where it lies in the flat buffers."""

    parameter: nn.Parameter
    shard: ShardSpec
    chunk: int
    start: int

    @property
    def stop(self) -> int:
        """One past its last element in the flat buffers."""
        return self.start + self.parameter.numel()

    @property
    def kind(self) -> tuple[bool, bool, bool, bool]:
        """What the optimizer treats alike: weight decay, and which ranks count and hold it; alike on all tensor ranks.

        A tied copy is by itself, so that both copies are updated by the same instructions, bit for bit.
        """
        parameter = self.shard.parameter
        return parameter.stacked, parameter.tied, parameter.is_matrix, parameter.split is None


@dataclass
class Bucket:
    """Elements [start, stop) of the flat buffers, which one collective reduces over `axis`."""

    start: int
    axis: Axis
    stop: int = 0
    entries: list[BufferEntry] = field(default_factory=list)
    tied: bool = False
    missing: int = 0  # number of parameters whose gradient is not complete yet
    work: dist.Work | None = None
    launched: bool = False
    gathering: dist.Work | None = None  # the gather of its updated parameters, until it has been waited for

    def wait_for_parameters(self) -> None:
        """Wait until a gather in the background, if there is one, has brought the updated parameters."""
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering = None


class ParamAndGradBuffer:
    """The flat parameter and gradient buffers of a rank, and the reduction of the latter.

    `param_data` holds the parameters in the model's precision, and every `entry.parameter` is a view of it; `grad_data`
    their main gradients, of which `main_grad(entry)` is a view. With `sharded` only this rank's part of each bucket
    (`owned`) is reduced, and `gather_parameters` shares updated parameters. `tied_ranks` are those of the tied
    embedding (`TrainingConfig.tied_ranks`). With `sequence_parallel` the gradients of parameters that every tensor rank
    holds whole come from its part of the sequence only, and are summed over the tensor-parallel group.
    """

    def __init__(
        self,
        parameters: Sequence[LocalParameter],
        groups: Groups,
        *,
        overlap: bool,
        sharded: bool,
        bucket_bytes: int = 25 * MIB,
        tied_ranks: tuple[int, int] | None = None,
        sequence_parallel: bool = False,
    ) -> None:
        self.groups, self.overlap, self.sharded, self.tied_ranks = groups, overlap, sharded, tied_ranks
        self.dtype = torch.promote_types(parameters[0].tensor.dtype, torch.float32)
        limit = max(1, bucket_bytes // self.dtype.itemsize) if overlap else None
        self.buckets = self._lay_out(parameters, limit)
        self.overlap = overlap and len(self.buckets) > 1  # a single one is complete when the backward pass is over
        self.entries = [entry for bucket in self.buckets for entry in bucket.entries]
        self.has_experts = any(entry.shard.parameter.stacked for entry in self.entries)
        self._make_buffers(parameters[0].tensor)
        self._partial = [
            self.main_grad(entry)
            for entry in self.entries
            if entry.shard.parameter.split is None and (sequence_parallel or entry.shard.parameter.partial)
        ]
        self.gather_in_background = False
        self._weight_gradients: WeightGradients | None = None
        self._zeroed = [self.grad_data]
        self._last: set[int] = set()
        self._places: dict[int, tuple[BufferEntry, Bucket]] = {  # by a parameter's id
            id(entry.parameter): (entry, bucket) for bucket in self.buckets for entry in bucket.entries
        }
        self._main_grads = {id(entry.parameter): self.main_grad(entry) for entry in self.entries}
        # Autograd holds hooks where no garbage collector looks: one that owned the buffer would keep both for ever.
        accumulated = partial(ParamAndGradBuffer._accumulated, weakref.proxy(self))
        # Else autograd adds to main gradients by itself.
        needed = self.overlap or parameters[0].tensor.dtype != self.dtype
        self._hooks = {
            id(entry.parameter): entry.parameter.register_post_accumulate_grad_hook(accumulated)
            for entry in (self.entries if needed else ())
        }

    def _lay_out(self, parameters: Sequence[LocalParameter], limit: int | None) -> list[Bucket]:
        """Place the parameters into buckets, in the reverse order of their creation.

        A bucket is closed when it has `limit` elements, if that is given. The tied embedding has a bucket to itself if
        buckets overlap, or if the optimizer is sharded: each rank then owns the same part of both copies. Experts come
        after all others, since they may have an axis of their own.
        """
        separates_tied = self.overlap or self.sharded
        tied = {i for i, local in enumerate(parameters) if self._is_tied(local.shard)}
        order = [i for i in reversed(range(len(parameters))) if i not in tied]
        order = sorted(order, key=lambda i: parameters[i].shard.parameter.stacked) + sorted(tied)
        buckets = [Bucket(0, self._axis(parameters[order[0]].shard))]
        for i in order:
            tensor, shard, chunk = parameters[i]
            bucket, axis = buckets[-1], self._axis(shard)
            full = limit is not None and bucket.entries and bucket.stop - bucket.start >= limit
            new_chunk = self.overlap and bucket.entries and bucket.entries[-1].chunk != chunk
            if full or new_chunk or (separates_tied and i in tied and bucket.entries) or axis is not bucket.axis:
                self._close(bucket)
                buckets.append(bucket := Bucket(bucket.stop, axis, bucket.stop))
            bucket.entries.append(BufferEntry(tensor, shard, chunk, bucket.stop))
            bucket.tied |= i in tied
            bucket.stop += tensor.numel()
        self._close(buckets[-1])
        return buckets

    def _axis(self, shard: ShardSpec) -> Axis:
        """The axis of the ranks that hold the same part of a parameter."""
        return self.groups.edp if shard.parameter.stacked else self.groups.dp

    def _close(self, bucket: Bucket) -> None:
        """Put a bucket's entries in order, and end it at the next multiple of its axis's size."""
        entries, start = sorted(bucket.entries, key=lambda entry: entry.kind), bucket.start
        for i, entry in enumerate(entries):
            entries[i] = replace(entry, start=start)
            start = entries[i].stop
        bucket.entries, bucket.stop = entries, -(-start // bucket.axis.size) * bucket.axis.size

    def _is_tied(self, shard: ShardSpec) -> bool:
        return self.tied_ranks is not None and shard.parameter.tied

    def _make_buffers(self, like: nn.Parameter) -> None:
        """Allocate both buffers, and make every parameter a view of its place in `param_data`."""
        size = self.buckets[-1].stop
        self.param_data = torch.zeros(size, dtype=like.dtype, device=like.device)
        self.grad_data = torch.zeros(size, dtype=self.dtype, device=like.device)
        for entry in self.entries:
            view = self.param_data[entry.start : entry.stop].view(entry.parameter.shape)
            view.copy_(entry.parameter.data)
            entry.parameter.data = view
            if entry.parameter.dtype == self.dtype:  # backward passes add to the main gradient directly
                entry.parameter.grad = self.main_grad(entry)

    def main_grad(self, entry: BufferEntry) -> torch.Tensor:
        """The main gradient of a parameter, a view of `grad_data` in the parameter's shape."""
        return self.grad_data[entry.start : entry.stop].view(entry.parameter.shape)

    def zero(self) -> None:
        """Start a batch: set the gradients to zero, and mark all buckets as not reduced.

        Those that GEMMs add to are left as they are, since the batch's first GEMM writes over them.
        """
        torch._foreach_zero_(self._zeroed)
        if self._weight_gradients is not None:
            self._weight_gradients.begin()
        self._last.clear()
        for bucket in self.buckets:
            bucket.missing, bucket.work, bucket.launched = len(bucket.entries), None, False

    def expect_last(self, chunk: int) -> None:
        """Announce that a chunk's next backward pass is its last, during which full buckets may be reduced."""
        self._last.add(chunk)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """Autograd's hook: a backward pass has added a parameter's gradient to `parameter.grad`."""
        if parameter.grad is None:  # the weight gradient is deferred to a later W
            return
        if parameter.dtype != self.dtype:
            self._main_grads[id(parameter)].add_(parameter.grad)
            parameter.grad = None
        if self.overlap:
            self.added(parameter)

    def added(self, parameter: torch.Tensor) -> None:
        """Note that a backward pass has added to a main gradient: a bucket is reduced when its last one is complete."""
        entry, bucket = self._places[id(parameter)]
        if self.overlap and entry.chunk in self._last:
            bucket.missing -= 1
            if bucket.missing == 0 and not bucket.tied:
                self._launch(bucket)

    def accumulate_in_gemms(self, weight_gradients: WeightGradients, least: int = 0) -> None:
        """Let GEMMs add to the main gradients of matrices of at least `least` elements; autograd adds those of others.

        Where buckets are reduced during the backward pass, the word embedding is left out: embedding and logits both
        add to its gradient, and only autograd knows when both have.
        """
        weights = [w for w in weight_gradients.linear_weights if w.dim() > 2 or w.numel() >= least]
        for weight in weights:  # autograd gets no gradient of them, and would call a hook all the same
            if self.overlap:
                weight.grad = None
            if id(weight) in self._hooks:
                self._hooks.pop(id(weight)).remove()
        others = () if self.overlap else (entry.parameter for entry in self.entries if entry.parameter.numel() >= least)
        parameters = dict.fromkeys((*weights, *others))
        main_grads = {parameter: self.main_grad(self._places[id(parameter)][0]) for parameter in parameters}
        weight_gradients.accumulate_into(main_grads, self.added if self.overlap else None, weights)
        self._weight_gradients = weight_gradients
        self._zeroed = list(self._outside(set(weights)))

    def _outside(self, weights: set[torch.Tensor]) -> Iterator[torch.Tensor]:
        """The parts of the gradients' buffer that lie between those of these weights."""
        start = 0
        for entry in self.entries:
            if entry.parameter in weights:
                if entry.start > start:
                    yield self.grad_data[start : entry.start]
                start = entry.stop
        if start < self.grad_data.numel():
            yield self.grad_data[start:]

    def _launch(self, bucket: Bucket) -> None:
        """Start to reduce a bucket's gradients over the data-parallel ranks; `finish` waits for it."""
        bucket.launched = True
        axis, whole = bucket.axis, self.grad_data[bucket.start : bucket.stop]
        if axis.size == 1:
            return
        if self.sharded:
            axis.calls["reduce_scatter"] += 1
            shard = self.grad_data[slice(*self.owned(bucket))]
            bucket.work = reduce_scatter_flat(shard, whole, group=axis.group, async_op=True)
        else:
            axis.calls["all_reduce"] += 1
            bucket.work = dist.all_reduce(whole, group=axis.group, async_op=True)

    def owned(self, bucket: Bucket) -> tuple[int, int]:
        """The elements [start, stop) of a bucket that this rank reduces and updates: all, or its share if sharded."""
        return self.share(bucket) if self.sharded else (bucket.start, bucket.stop)

    def share(self, bucket: Bucket) -> tuple[int, int]:
        """The elements [start, stop) of a bucket that are this replica's equal part of it."""
        size = (bucket.stop - bucket.start) // bucket.axis.size
        start = bucket.start + bucket.axis.rank * size
        return start, start + size

    def finish(self) -> None:
        """Complete the reduction after the pipeline flush.

        Reduces the remaining buckets, sums what the tensor ranks have from their parts of the sequence, takes the mean
        over d, and sums the two gradients of the tied embedding.
        """
        for bucket in self.buckets:
            if not bucket.launched:
                self._launch(bucket)
        for bucket in self.buckets:
            if bucket.work is not None:
                bucket.work.wait()
        self._sum_over_sequence()
        if self.groups.dp.size > 1:  # the one place that divides by d
            self.grad_data.div_(self.groups.dp.size)
        for bucket in self.buckets if self.tied_ranks is not None else ():
            for entry in bucket.entries:
                if self._is_tied(entry.shard):
                    first, end = self.owned(bucket)
                    self._sum_over_stages(self.grad_data[max(first, entry.start) : min(end, entry.stop)])

    def _sum_over_sequence(self) -> None:
        """With sequence parallelism, sum the gradients of replicated parameters in one all-reduce over tp."""
        if not self._partial or self.groups.tp.size == 1:
            return
        flat = self.groups.tp.all_reduce(torch.cat([gradient.reshape(-1) for gradient in self._partial]))
        sums = flat.split([gradient.numel() for gradient in self._partial])
        torch._foreach_copy_(
            self._partial, [total.view_as(part) for total, part in zip(sums, self._partial, strict=True)]
        )

    def _sum_over_stages(self, gradient: torch.Tensor) -> None:
        """Sum a part of the tied embedding's gradient over the first and the last stage, if their ranks differ."""
        if self.tied_ranks is None or self.tied_ranks[0] == self.tied_ranks[1] or not gradient.numel():
            return
        pp = self.groups.pp
        peer = sum(self.tied_ranks) - pp.rank
        peer_gradient = torch.empty_like(gradient)
        pp.calls["tied"] += 1
        pair = [  # receive first: gloo asks the peer for its message, and should not ask behind ours
            dist.P2POp(dist.irecv, peer_gradient, group=pp.group, group_peer=peer),
            dist.P2POp(dist.isend, gradient, group=pp.group, group_peer=peer),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        gradient.add_(peer_gradient)

    def gather_parameters(self) -> None:
        """If the optimizer is sharded, gather the parameters that the other data-parallel ranks updated.

        The buckets go in the order in which a forward pass uses them.
        """
        if not self.sharded:
            return
        for bucket in reversed(self.buckets):
            if bucket.axis.size == 1:
                continue
            bucket.axis.calls["all_gather"] += 1
            whole, shard = self.param_data[bucket.start : bucket.stop], self.param_data[slice(*self.owned(bucket))]
            # A copy is sent, as the shard is a part of `whole`, which the gather writes.
            bucket.gathering = gather_flat(
                whole, shard.clone(), group=bucket.axis.group, async_op=self.gather_in_background
            )

    def gather_behind(self, modules: Iterable[nn.Module]) -> None:
        """Gather in the background from now on; each of these modules waits for its own parameters before it runs."""
        self.gather_in_background = True
        for module in modules:
            buckets = {
                id(bucket): bucket for _, bucket in (self._places[id(p)] for p in module.parameters(recurse=False))
            }
            for bucket in buckets.values():
                module.register_forward_pre_hook(lambda *_, bucket=bucket: bucket.wait_for_parameters())
