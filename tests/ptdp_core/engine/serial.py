"""Serial training, written apart from the engine in plain torch: what every parallel run has to reproduce.

Weights as a dictionary by global name. Only the rule for initial values (a seed from the parameter's name) and the
seeds of dropout masks are shared conventions.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import torch

from kernels import select

MICRO = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-8}


def drawn(seed: int, name: str, shape: tuple[int, ...], std: float) -> torch.Tensor:
    """A matrix in fp32, of which each block of 16 rows has a seed; of 16 columns in the linears split by rows of A."""
    by_columns = name.endswith(("projection.weight", "down.weight"))
    length, width = reversed(shape) if by_columns else shape
    blocks = []
    for number in range(-(-length // 16)):
        digest = hashlib.sha256(f"{seed}/{name}/{number}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        rows = min(16, length - 16 * number)
        blocks.append(torch.empty(rows, width).normal_(0.0, std, generator=generator))
    whole = torch.cat(blocks)
    return whole.T if by_columns else whole


class Dropout:
    """The engine's masks, drawn serially: for a tensor split over t ranks, the t parts one after the other.

    With `sequence_parallel` the tensors between layers are split, too, along the sequence.
    """

    def __init__(self, p: float, trackers: list[Any], sequence_parallel: bool = False) -> None:
        self.p, self.trackers, self.ops = p, trackers, select("reference")
        self.sequence_parallel = sequence_parallel

    def at(self, step: int, microbatch: int) -> None:
        for tracker in self.trackers:
            tracker.begin(step, microbatch)

    def embedded(self, x_BSH: torch.Tensor, layer: int, site: int) -> torch.Tensor:
        return self._between_layers(x_BSH, layer, site, lambda x: self.ops.dropout(x, self.p, True))

    def added(self, x_BSH: torch.Tensor, layer: int, site: int) -> torch.Tensor:
        def add(x: torch.Tensor) -> torch.Tensor:
            zero = torch.zeros(x.size(-1), dtype=x.dtype)
            return self.ops.bias_dropout_add(x, zero, torch.zeros_like(x), self.p, True)

        return self._between_layers(x_BSH, layer, site, add)

    def _between_layers(self, x_BSH: torch.Tensor, layer: int, site: int, drop: Any) -> torch.Tensor:
        if not self.p:
            return x_BSH
        x_SBH = x_BSH.transpose(0, 1).contiguous()
        if not self.sequence_parallel:
            self.trackers[0].replicated(layer, site)
            return drop(x_SBH).transpose(0, 1)
        parts = []
        for stream, part in zip(self.trackers, x_SBH.chunk(len(self.trackers)), strict=True):
            stream.sharded(layer, site)
            parts.append(drop(part))
        return torch.cat(parts).transpose(0, 1)

    def attention(self, probs_BASS: torch.Tensor, layer: int, site: int) -> torch.Tensor:
        if not self.p:
            return probs_BASS
        parts = []
        for stream, part in zip(self.trackers, probs_BASS.chunk(len(self.trackers), 1), strict=True):
            stream.sharded(layer, site)
            parts.append(self.ops.dropout(part.contiguous(), self.p, True))
        return torch.cat(parts, 1)


def train(
    weights: dict[str, torch.Tensor],
    loss: Callable[..., torch.Tensor],
    data: list[torch.Tensor],
    b: int,
    drop: Dropout,
    rates: list[float],
    decay: float,
    clip: float,
) -> dict[str, Any]:
    """Train on batches `data` [B, s+1]; losses, norms and gradients per step, parameters at the end.

    `loss` is the mean loss of a microbatch with the weights.
    """
    matrices = [p for p in weights.values() if p.dim() > 1]
    vectors = [p for p in weights.values() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, **MICRO)
    out: dict[str, Any] = {"losses": [], "norms": [], "gradients": []}
    for step, batch in enumerate(data):
        adam.zero_grad()
        parts = batch.split(b)
        total = 0.0
        for j, part in enumerate(parts):
            drop.at(step, j)
            value = loss(weights, part[:, :-1], part[:, 1:], drop) / len(parts)
            value.backward()
            total += value.item()
        out["losses"].append(total)
        out["gradients"].append({k: p.grad.clone() for k, p in weights.items()})
        out["norms"].append(torch.nn.utils.clip_grad_norm_(list(weights.values()), clip).item())
        for group in adam.param_groups:
            group["lr"] = rates[step]
        adam.step()
    out["parameters"] = {k: p.detach().clone() for k, p in weights.items()}
    return out
