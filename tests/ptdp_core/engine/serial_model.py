"""The serial model, like `serial` written apart from the engine in plain torch.

Batch-first layout, an explicit mask and softmax. Queries, keys, values, gate and up are taken out of the fused matrices
one by one; heads come first; rotary positions are products of complex numbers.
"""

import math
from typing import Any

import torch
from torch.nn import functional

from tests.ptdp_core.blocks import LATER
from tests.ptdp_core.engine import serial, serial_experts

Weights = dict[str, torch.Tensor]
# The fields of a Llama, and further ones that are trained: each is tried alone, in a model that is otherwise a GPT, and
# the further ones in a Llama (`test_parity`), where their bytes are counted, too (`test_kept_bytes`): with each stand
# those of a token that the engine's reference operators keep more in bf16, such as silu(gate), which is computed apart.
LLAMA: dict[str, Any] = {"kv_heads": 4, "ffn_hidden": 24, **LATER}
FURTHER: dict[str, tuple[Any, int]] = {"rope_theta": (100.0, 0)}


def initial(model: Any, seed: int) -> Weights:
    """Every parameter of the model, drawn in fp32, as fp64."""
    own: Weights = {}
    h, std, out = model.hidden, 0.02, 0.02 / math.sqrt(2 * model.layers)
    size = model.head_dim or h // model.heads
    kv, queries = (model.kv_heads or model.heads) * size, model.heads * size
    width = model.ffn_hidden or 4 * h
    up = 2 * width if model.activation == "swiglu" else width
    matrices = {"embedding.word.weight": ((model.vocab, h), std)}
    if model.positions == "learned":
        matrices["embedding.position.weight"] = ((model.seq, h), std)
    if not model.tied_embeddings:
        matrices["output.weight"] = ((model.vocab, h), std)
    norms, biases = ["norm"], {}
    for i in range(model.layers):
        norms += [f"layers.{i}.attention_norm", f"layers.{i}.mlp_norm"]
        if model.qk_norm:
            norms += [f"layers.{i}.attention.{name}_norm" for name in ("query", "key")]
        linears = [("attention.qkv", queries + 2 * kv, h, std), ("attention.projection", h, queries, out)]
        if model.experts and i >= model.dense_layers:
            own |= serial_experts.initial(model, f"layers.{i}.mlp", seed, std, out)
        else:
            linears += [("mlp.up", up, h, std), ("mlp.down", h, width, out)]
        for name, rows, columns, spread in linears:
            matrices[f"layers.{i}.{name}.weight"] = ((rows, columns), spread)
            biases[f"layers.{i}.{name}.bias"] = rows if model.bias else 0
    weights = {name: serial.drawn(seed, name, shape, spread) for name, (shape, spread) in matrices.items()}
    weights |= own | {name: torch.zeros(size) for name, size in biases.items() if size}
    sizes = {name: size if ".attention." in name else h for name in norms}
    weights |= {f"{name}.weight": torch.ones(width) for name, width in sizes.items()}
    if model.norm == "layernorm":
        weights |= {f"{name}.bias": torch.zeros(width) for name, width in sizes.items()}
    return {name: value.double().requires_grad_() for name, value in weights.items()}


def loss(
    model: Any, w: Weights, tokens_BS: torch.Tensor, labels_BS: torch.Tensor, drop: Any, capacity_factor: float = 0.0
) -> torch.Tensor:
    """Mean loss of one microbatch; experts with a capacity take the first tokens."""
    s = tokens_BS.size(1)
    x = w["embedding.word.weight"][tokens_BS]
    if model.positions == "learned":
        x = x + w["embedding.position.weight"][:s]
    x = drop.embedded(x, -1, 0)
    balances = [torch.zeros((), dtype=x.dtype)]
    for i in range(model.layers):
        name = f"layers.{i}"
        context = attention(model, w, f"{name}.attention", norm(model, w, f"{name}.attention_norm", x), drop, i)
        x = x + drop.added(linear(w, f"{name}.attention.projection", context), i, 1)
        normed = norm(model, w, f"{name}.mlp_norm", x)
        if f"{name}.mlp.router.weight" in w:
            y, balance = serial_experts.mixture(model, w, f"{name}.mlp", normed, activated, capacity_factor)
            balances.append(balance)
        else:
            y = linear(w, f"{name}.mlp.down", activated(model, linear(w, f"{name}.mlp.up", normed)))
        x = x + drop.added(y, i, 2)
    table = w["embedding.word.weight" if model.tied_embeddings else "output.weight"]
    logits = norm(model, w, "norm", x) @ table.T
    balance = model.auxiliary_loss * sum(balances)
    # The load-balancing loss counts in the gradients only.
    return functional.cross_entropy(logits.flatten(0, 1), labels_BS.reshape(-1)) + balance - balance.detach()


def linear(w: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def norm(model: Any, w: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    if model.norm == "layernorm":
        return functional.layer_norm(x, w[f"{name}.weight"].shape, w[f"{name}.weight"], w[f"{name}.bias"])
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"]


def activated(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.activation == "gelu":
        return functional.gelu(x, approximate="tanh")
    gate, up = x[..., 0::2], x[..., 1::2]
    return gate * torch.sigmoid(gate) * up


def attention(model: Any, w: Weights, name: str, x: torch.Tensor, drop: Any, layer: int) -> torch.Tensor:
    b, s, h = x.shape
    d, groups = model.head_dim or h // model.heads, model.kv_heads or model.heads
    fused = linear(w, f"{name}.qkv", x).view(b, s, groups, -1, d).permute(0, 2, 3, 1, 4)  # group, then head, first
    q, k, v = fused[:, :, :-2].reshape(b, model.heads, s, d), fused[:, :, -2], fused[:, :, -1]
    if model.qk_norm:
        q, k = norm(model, w, f"{name}.query_norm", q), norm(model, w, f"{name}.key_norm", k)
    if model.positions == "rotary":
        q, k = turned(model, q), turned(model, k)
    group_of_head = torch.arange(model.heads) // (model.heads // groups)
    k, v = k[:, group_of_head], v[:, group_of_head]
    causal = torch.ones(s, s, dtype=torch.bool).tril()
    scores = (q @ k.transpose(-1, -2) / math.sqrt(d)).masked_fill(~causal, -torch.inf)
    probs = drop.attention(scores.softmax(-1), layer, 0)
    return (probs @ v).transpose(1, 2).reshape(b, s, model.heads * d)


def turned(model: Any, x_BASD: torch.Tensor) -> torch.Tensor:
    """Elements i and i + d/2 as one complex number, times e^(i position theta^(-2i/d)); the angles in fp32."""
    s, d = x_BASD.shape[-2:]
    speeds = 1.0 / model.rope_theta ** (torch.arange(0, d, 2).float() / d)
    angles = torch.outer(torch.arange(s).float(), speeds)
    turn = torch.complex(angles.cos().double(), angles.sin().double())
    product = torch.complex(x_BASD[..., : d // 2], x_BASD[..., d // 2 :]) * turn
    return torch.cat((product.real, product.imag), -1)
