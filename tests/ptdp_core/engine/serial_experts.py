"""A mixture of experts written apart from the engine: every expert computes every token, and masks choose."""

import math
from collections.abc import Callable
from typing import Any

import torch

from tests.ptdp_core.engine import serial

Weights = dict[str, torch.Tensor]


def initial(model: Any, name: str, seed: int, std: float, out: float) -> Weights:
    """The weights of router, experts and shared expert in fp32; each expert's matrix is drawn by its own name."""
    h, gated = model.hidden, 2 if model.activation == "swiglu" else 1
    width, shared = model.expert_ffn_hidden or model.ffn_hidden or 4 * h, model.shared_expert_ffn_hidden
    weights = {f"{name}.router.weight": serial.drawn(seed, f"{name}.router.weight", (model.experts, h), std)}
    for part, shape, spread in (("up", (gated * width, h), std), ("down", (h, width), out)):
        weights[f"{name}.experts.{part}.weight"] = torch.stack(
            [serial.drawn(seed, f"{name}.experts.{i}.{part}.weight", shape, spread) for i in range(model.experts)]
        )
    if shared:
        for part, shape, spread in (("up", (gated * shared, h), std), ("down", (h, shared), out)):
            full = f"{name}.shared.{part}.weight"
            weights[full] = serial.drawn(seed, full, shape, spread)
    return weights


def mixture(
    model: Any,
    w: Weights,
    name: str,
    x_BSH: torch.Tensor,
    activated: Callable[[Any, torch.Tensor], torch.Tensor],
    capacity_factor: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The layer's output, and its load-balancing loss; tokens come first by position, then by sequence."""
    b, s, h = x_BSH.shape
    x, e, k = x_BSH.transpose(0, 1).reshape(s * b, h), model.experts, model.experts_per_token
    logits = x @ w[f"{name}.router.weight"].T
    scores = torch.sigmoid(logits) if model.router == "sigmoid" else logits.softmax(-1)
    chosen = torch.zeros_like(scores)
    for token, row in enumerate(scores.tolist()):
        for expert in sorted(range(e), key=lambda i: -row[i])[:k]:
            chosen[token, expert] = 1.0
    weights = scores * chosen
    if model.router == "softmax_after":
        weights = (logits.masked_fill(chosen == 0, -torch.inf)).softmax(-1)
    elif model.router == "sigmoid":
        weights = weights / weights.sum(-1, keepdim=True)
        scores = scores / scores.sum(-1, keepdim=True)
    balance = e * (chosen.sum(0) / (s * b) * scores.sum(0) / (s * b)).sum()
    if capacity_factor:
        weights = weights * (chosen.cumsum(0) <= math.ceil(capacity_factor * s * b * k / e))
    up, down = w[f"{name}.experts.up.weight"], w[f"{name}.experts.down.weight"]
    y = sum(weights[:, i : i + 1] * (activated(model, x @ up[i].T) @ down[i].T) for i in range(e))
    if f"{name}.shared.up.weight" in w:
        y = y + activated(model, x @ w[f"{name}.shared.up.weight"].T) @ w[f"{name}.shared.down.weight"].T
    return y.reshape(s, b, h).transpose(0, 1), balance
