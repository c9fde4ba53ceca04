"""The engine's gradients against those of PyTorch's own ways to parallelise, on the same model; run in ranks.

The model is written in plain modules here, with weights by the engine's global names (from `serial_model.initial`).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from tests.ptdp_core.engine import jobs, serial_model


class Block(nn.Module):
    """A transformer layer; query, key and value are layers of their own, so that they can be split by columns."""

    def __init__(self, h: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(h), nn.LayerNorm(h)
        self.q, self.k, self.v = nn.Linear(h, h), nn.Linear(h, h), nn.Linear(h, h)
        self.projection = nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, h = x.shape
        y = self.attention_norm(x)
        q, k, v = (layer(y).view(b, s, -1, h // self.heads).transpose(1, 2) for layer in (self.q, self.k, self.v))
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(a.transpose(1, 2).reshape(b, s, -1))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class GPT(nn.Module):
    """Layers [first, stop) of the model, with both ends where they belong. The output layer has its own weight."""

    def __init__(self, model: Any, layers: range) -> None:
        super().__init__()
        self.model, self.layers_held = model, layers
        self.is_first, self.is_last = layers.start == 0, layers.stop == model.layers
        if self.is_first:
            self.word = nn.Embedding(model.vocab, model.hidden)
            self.position = nn.Embedding(model.seq, model.hidden)
        self.blocks = nn.ModuleDict({str(i): Block(model.hidden, model.heads) for i in layers})
        if self.is_last:
            self.norm = nn.LayerNorm(model.hidden)
            self.head = nn.Linear(model.hidden, model.vocab, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_first:
            x = self.word(x) + self.position.weight
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x)) if self.is_last else x


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def parts(model: Any, name: str) -> list[tuple[str, Any]]:
    """An oracle's parameter name -> (global name, index into the global tensor)."""
    ends = {"word.weight": "embedding.word.weight", "position.weight": "embedding.position.weight"}
    ends |= {"head.weight": "embedding.word.weight", "norm.weight": "norm.weight", "norm.bias": "norm.bias"}
    if name in ends:
        return [(ends[name], ...)]
    _, layer, module, kind = name.split(".")
    if module in "qkv":
        d = model.hidden // model.heads
        rows = torch.arange(3 * model.hidden).view(model.heads, 3, d)[:, "qkv".index(module)].flatten()
        return [(f"layers.{layer}.attention.qkv.{kind}", rows)]
    owner = {"projection": "attention.", "up": "mlp.", "down": "mlp."}.get(module, "")
    return [(f"layers.{layer}.{owner}{module}.{kind}", ...)]


def oracle(model: Any, layers: range | None = None) -> GPT:
    weights = serial_model.initial(model, jobs.SEED)
    replica = GPT(model, layers or range(model.layers)).double()
    with torch.no_grad():
        for name, parameter in replica.named_parameters():
            ((whole, index),) = parts(model, name)
            parameter.copy_(weights[whole][index])
    return replica


def collect(model: Any, modules: list[nn.Module]) -> dict[str, torch.Tensor]:
    """The oracle's gradients under the engine's names; the two uses of the embedding are summed."""
    out: dict[str, torch.Tensor] = {}
    shapes = {name: w.shape for name, w in serial_model.initial(model, jobs.SEED).items()}
    for module in modules:
        for name, parameter in module.named_parameters():
            name = name.removeprefix("module.")
            gradient = parameter.grad
            gradient = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
            ((whole, index),) = parts(model, name)
            out.setdefault(whole, torch.zeros(shapes[whole], dtype=torch.float64))[index] += gradient
    return out


def errors(trainer: Any, loss: float, theirs: dict[str, torch.Tensor], their_loss: float) -> dict[str, float]:
    worst = {"loss": abs(loss / their_loss - 1), "gradient": 0.0}
    for entry in trainer.buffer.entries:
        whole = theirs[entry.shard.parameter.name]
        part = jobs.local_part(whole, entry).view_as(entry.parameter)
        error = (trainer.buffer.main_grad(entry) - part).abs().max() / whole.abs().max()
        worst["gradient"] = max(worst["gradient"], error.item())
    return worst


def against_ddp(beat: Any, case: dict[str, Any]) -> dict[str, float]:
    trainer, (batch, *_) = jobs.make(case)
    settings = trainer.settings
    loss, _ = trainer.forward_backward(batch)
    ddp = nn.parallel.DistributedDataParallel(oracle(settings.model))
    m, total = settings.parallel.m, torch.zeros((), dtype=torch.float64)
    for j in range(m):
        x, y = batch(j)
        value = token_loss(ddp(x), y) / m
        value.backward()
        total += value.detach()
    dist.all_reduce(total)
    return errors(trainer, loss.item(), collect(settings.model, [ddp]), total.item() / settings.parallel.d)


def against_parallelize_module(beat: Any, case: dict[str, Any]) -> dict[str, float]:
    trainer, (batch, *_) = jobs.make(case)
    settings, data = trainer.settings, jobs.batches(case["B"])[0]
    loss, _ = trainer.forward_backward(batch)
    other = oracle(settings.model)
    mesh = init_device_mesh("cpu", (settings.parallel.t,))
    plan: dict[str, Any] = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    plan |= {name: RowwiseParallel() for name in ("projection", "down")}
    for block in other.blocks.values():
        parallelize_module(block, mesh, plan)
    value = token_loss(other(data[:, :-1]), data[:, 1:])
    value.backward()
    return errors(trainer, loss.item(), collect(settings.model, [other]), value.item())


def against_pipelining(beat: Any, case: dict[str, Any]) -> dict[str, float]:
    trainer, (batch, *_) = jobs.make(case)
    groups, par, model = trainer.groups, trainer.settings.parallel, trainer.settings.model
    data = jobs.batches(par.B)[0]
    loss, _ = trainer.forward_backward(batch)
    per = model.layers // (par.p * par.v)
    mine = [oracle(model, range(s * per, s * per + per)) for s in range(groups.pp.rank, par.p * par.v, par.p)]
    stages = [
        PipelineStage(module, c * par.p + groups.pp.rank, par.p * par.v, torch.device("cpu"))
        for c, module in enumerate(mine)
    ]
    losses: list[torch.Tensor] = []
    if par.v > 1:
        schedule: Any = ScheduleInterleaved1F1B(stages, par.m, loss_fn=token_loss)
    else:
        kind = Schedule1F1B if par.schedule == "1f1b" else ScheduleGPipe
        schedule = kind(stages[0], par.m, loss_fn=token_loss)
    tokens, labels = data[:, :-1].contiguous(), data[:, 1:].contiguous()
    first, last = groups.pp.rank == 0, groups.pp.rank == groups.pp.size - 1
    schedule.step(*([tokens] if first else []), target=labels if last else None, losses=losses)
    results: list[Any] = [None] * par.p
    dist.all_gather_object(results, collect(model, list(mine)))
    theirs: dict[str, torch.Tensor] = {}
    for part in results:
        for name, gradient in part.items():
            theirs[name] = theirs.get(name, 0) + gradient
    total = [torch.stack(losses).mean().item()] if losses else [0.0]
    dist.broadcast_object_list(total, src=par.p - 1)
    return errors(trainer, loss.item(), theirs, total[0])
