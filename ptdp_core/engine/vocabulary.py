"""A vocabulary that all pipeline ranks share: each has 1/p of the embedding and of the output layer.

It runs the passes E, S, T and G of `schedules/vocabulary.py`. Between them are five collectives over the pipeline's
ranks, each started where its data is there and waited for where it is used. All ranks start those of one kind in the
order of microbatches, and each kind has a process group of its own, so that none waits for another.

With e = exp(logits - their maximum on the rank) and c = exp(the rank's maximum - the largest) / (sum of all ranks' sums
of e, corrected likewise), the softmax is c e. Of the input's gradient (c e - one-hot) W, vocab-1 multiplies the product
once c is known, vocab-2 corrects e W afterwards: c is a number for each token.

Shapes: N tokens of a microbatch, S*B; H hidden, V/p this rank's words.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn import functional

from ptdp_core.engine.groups import Groups, gather_flat, pipeline_group
from ptdp_core.engine.model import STD, Build
from ptdp_core.engine.weight_gradients import DeferredWgrad
from ptdp_core.layout import OUTPUT, WORD_EMBEDDING, vocabulary_tables
from ptdp_core.schedules import Action, Schedule

Batch = tuple[torch.Tensor, torch.Tensor]
COLLECTIVES = ("embedding", "output", "scores", "output_gradient", "embedding_gradient")


class Scores(NamedTuple):
    """What S leaves for T: e [N, V/p], the input x [N, H], and, for each label, its place here and whether it is."""

    exponentials: torch.Tensor
    x: torch.Tensor
    places: torch.Tensor
    here: torch.Tensor


class Pending(NamedTuple):
    """A tensor that a collective reads or writes, and what to wait for before its use."""

    tensor: torch.Tensor
    work: Any

    def wait(self) -> torch.Tensor:
        """The tensor, once the collective is over."""
        self.work.wait()
        return self.tensor


@dataclass
class Statistics:
    """Of every rank and token: largest logit, sum of e, and the label's logit, on the way to all ranks, [p, 3, N]."""

    gathered: torch.Tensor
    work: dist.Work

    def corrections(self, rank: int) -> torch.Tensor:
        """c of a rank, [N]."""
        peaks, log_total = self._logarithms()
        return (peaks[rank] - log_total).exp()

    def losses(self) -> torch.Tensor:
        """The loss of each token, [N]."""
        return self._logarithms()[1] - self.gathered[:, 2].sum(0)

    def _logarithms(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The ranks' largest logits [p, N], and the logarithm of the sum of all exponentials [N]."""
        self.work.wait()
        peaks, totals = self.gathered[:, 0], self.gathered[:, 1]
        return peaks, (peaks + totals.log()).logsumexp(0)


@dataclass
class SharedVocabulary:
    """This rank's part of the vocabulary, and its passes. All pipeline ranks construct it together."""

    build: Build
    groups: Groups
    schedule: Schedule
    chunk: int  # the number of the rank's model chunk that the tables are
    losses: dict[int, torch.Tensor] = field(default_factory=dict)  # mean losses by microbatch, on the last stage's rank
    _arriving: dict[tuple[str, int], Pending] = field(default_factory=dict)
    _sending: list[Pending] = field(default_factory=list)  # borrowed by collectives until these are over
    _scores: dict[int, Scores] = field(default_factory=dict)
    _statistics: dict[int, Statistics] = field(default_factory=dict)
    _corrected: dict[int, Future[Pending]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.schedule.vocabulary is not None
        model, make, placement = self.build.model, self.build.make, self.schedule.placement
        self.method, self.rank = self.schedule.vocabulary.method, self.groups.pp.rank
        self.first, self.last = placement.first, placement.last
        make.begin_chunk(self.chunk, vocabulary_tables(model, self.groups.pp.size))
        self.word = make(WORD_EMBEDDING, std=STD)
        self.output = self.word if model.tied_embeddings else make(OUTPUT, std=STD)
        self.start = self.rank * self.word.size(0)
        self.process_groups = {name: pipeline_group(self.groups, f"vocabulary_{name}") for name in COLLECTIVES}
        self._after_scores = ThreadPoolExecutor(1)  # corrects and sums what S of vocab-2 made, one after the other
        self.trains = True
        self._shape: tuple[int, ...] = ()
        self._scale = 1.0

    def begin(self, scale: float, trains: bool = True) -> None:
        """Begin a batch, of whose microbatches' mean losses the gradient is multiplied by `scale`."""
        self._scale, self.trains = scale, trains
        self.losses.clear()

    def connect(self) -> None:
        """Create the communicators, before any step (`P2PCommunicator.connect`)."""
        for group in self.process_groups.values():
            dist.all_reduce(torch.zeros(1, device=self.groups.device), group=group)

    @torch.no_grad()
    def run(self, action: Action, batch: Callable[[int], Batch]) -> None:
        """Run one of the passes E, S, T and G. `batch(i)` gives tokens and labels [B, S] of microbatch i."""
        kind, _, i = action
        if kind == "T":
            self._turn(i)
            return
        tokens, labels = batch(i)
        self._shape = (tokens.size(1), tokens.size(0), self.build.model.hidden)
        passes = {"E": self._embed, "S": self._score, "G": self._add_gradient}
        passes[kind](i, (labels if kind == "S" else tokens).T)

    # What the first and the last stage exchange with all ranks.

    def embedded(self, i: int) -> torch.Tensor:
        """The sum of all ranks' parts of the embedded tokens, [S, B, H], on the first stage's rank."""
        return self._arriving.pop(("embedding", i)).wait()

    def start_output(self, i: int, x: torch.Tensor) -> None:
        """Send the last stage's output to all ranks, from its rank."""
        self._start("output", i, x.contiguous())

    def output_gradient(self, i: int) -> torch.Tensor:
        """The gradient of the last stage's output, the sum of what all ranks have made, [S, B, H], on its rank."""
        name = "output_gradient"
        pending = self._corrected.pop(i).result() if self.method == "vocab-2" else self._arriving.pop((name, i))
        return pending.wait().view(self._shape)

    def start_embedding_gradient(self, i: int, gradient: torch.Tensor) -> None:
        """Send the gradient of the first stage's input to all ranks, from its rank."""
        self._start("embedding_gradient", i, gradient.contiguous())

    def flush(self) -> None:
        """Wait for what is still on its way at the end of a batch."""
        for future in self._corrected.values():
            future.result().wait()
        self._corrected.clear()
        for i in list(self._statistics):
            self._note_loss(i)
        for pending in self._sending:
            pending.wait()
        self._sending.clear()
        assert not self._arriving
        assert not self._scores

    def _note_loss(self, i: int) -> Statistics:
        """Note the mean loss of a microbatch on the last stage's rank; return its statistics, which end here."""
        statistics = self._statistics.pop(i)
        statistics.work.wait()
        if self.rank == self.last:
            self.losses[i] = statistics.losses().mean()
        return statistics

    # The passes.

    def _embed(self, i: int, tokens_SB: torch.Tensor) -> None:
        places, here = self._places(tokens_SB)
        x_SBH = functional.embedding(places, self.word).masked_fill_(~here.unsqueeze(-1), 0.0)
        self._reduce("embedding", i, x_SBH, self.first)

    def _add_gradient(self, i: int, tokens_SB: torch.Tensor) -> None:
        gradient = self._received("embedding_gradient", i, self.first)
        places, here = self._places(tokens_SB)
        with torch.enable_grad():
            x_SBH = functional.embedding(places, self.word)
        torch.autograd.backward(x_SBH, gradient.masked_fill(~here.unsqueeze(-1), 0.0))

    def _score(self, i: int, labels_SB: torch.Tensor) -> None:
        x = self._received("output", i, self.last).view(-1, self.build.model.hidden)
        logits = functional.linear(x, self.output)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        wide[:, max(0, self.build.model.vocab - self.start) :] = -torch.inf  # padded logits get no probability
        places, here = self._places(labels_SB.reshape(-1))
        # A rank of padding alone has a largest logit of -inf, which nothing may be subtracted from.
        peak = wide.amax(-1).clamp_min_(torch.finfo(wide.dtype).min)
        label = wide.gather(-1, places.unsqueeze(-1)).squeeze(-1).masked_fill_(~here, 0.0)
        wide.sub_(peak.unsqueeze(-1)).exp_()
        own = torch.stack((peak, wide.sum(-1), label))
        self._statistics[i] = statistics = self._gathered(own)
        if not self.trains:
            return
        self._scores[i] = Scores(wide, x, places, here)
        if self.method == "vocab-2":
            product, scale = wide.to(x.dtype) @ self.output, self._scale / x.size(0)
            correcting = self._after_scores.submit(self.correct, product, self._scores[i], statistics, scale)
            if self.rank != self.last:  # which waits for none of them
                self._corrected = {k: f for k, f in self._corrected.items() if not _is_over(f)}
            self._corrected[i] = correcting

    @torch.no_grad()
    def correct(self, product: torch.Tensor, scores: Scores, statistics: Statistics, scale: float) -> Pending:
        """Turn e W into this rank's part of the input's gradient, and start to sum it."""
        product *= statistics.corrections(self.rank).unsqueeze(-1).to(product.dtype)
        product -= functional.embedding(scores.places, self.output).masked_fill_(~scores.here.unsqueeze(-1), 0.0)
        return self._reduced("output_gradient", product.mul_(scale), self.last)

    def _turn(self, i: int) -> None:
        gradient, x, places, here = self._scores.pop(i)
        gradient = gradient * self._note_loss(i).corrections(self.rank).unsqueeze(-1)
        minus_label = here.to(gradient.dtype).neg_().unsqueeze(-1)
        logits_gradient = gradient.scatter_add_(-1, places.unsqueeze(-1), minus_label).mul_(self._scale / x.size(0))
        logits_gradient = logits_gradient.to(x.dtype)
        if self.method != "vocab-2":
            pending = self._reduce("output_gradient", i, logits_gradient @ self.output, self.last)
            if self.method == "interlaced":
                pending.wait()
        self.build.make.weight_gradients.add([DeferredWgrad(self.output, logits_gradient, x)])

    def _places(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of words in this rank's part of a table, 0 for those of other ranks, and which are here."""
        local = words - self.start
        here = (local >= 0) & (local < self.word.size(0))
        return local.masked_fill(~here, 0), here

    # The collectives.

    def _gathered(self, own: torch.Tensor) -> Statistics:
        gathered = own.new_empty(self.groups.pp.size, *own.shape)
        work = gather_flat(gathered.view(-1), own.view(-1), group=self.process_groups["scores"], async_op=True)
        return Statistics(gathered, work)

    def _reduce(self, name: str, i: int, x: torch.Tensor, rank: int) -> Pending:
        """Start to sum x over the pipeline's ranks, on one of them."""
        pending = self._reduced(name, x, rank)
        if self.rank == rank:
            self._arriving[name, i] = pending
        else:
            self._send(pending)
        return pending

    def _reduced(self, name: str, x: torch.Tensor, rank: int) -> Pending:
        return Pending(x, dist.reduce(x, group_dst=rank, group=self.process_groups[name], async_op=True))

    def _broadcast(self, name: str, x: torch.Tensor, rank: int) -> Pending:
        """Start to send x from one of the pipeline's ranks to all, or to receive it there."""
        return Pending(x, dist.broadcast(x, group_src=rank, group=self.process_groups[name], async_op=True))

    def _send(self, pending: Pending) -> None:
        """Keep a tensor until its collective is over, and those before that are not over yet."""
        self._sending = [*(each for each in self._sending if not each.work.is_completed()), pending]

    def _start(self, name: str, i: int, x: torch.Tensor) -> None:
        """Start to send x from this rank to all, which its own next pass reads, too."""
        pending = self._broadcast(name, x, self.rank)
        self._arriving[name, i] = pending
        self._send(pending)

    def _received(self, name: str, i: int, source: int) -> torch.Tensor:
        """What a rank sends to all, [S, B, H]."""
        if self.rank == source:
            return self._arriving.pop((name, i)).tensor
        make = self.build.make
        return self._broadcast(name, torch.empty(self._shape, dtype=make.dtype, device=make.device), source).wait()


def _is_over(future: Future[Pending]) -> bool:
    """Whether a correction, and the sum of what it made, are over."""
    return future.done() and future.result().work.is_completed()
