"""What `train_step` compares the engine with: a GPT of plain modules, whole or in stages, and its training step."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from ptdp_core.config import ModelConfig
from ptdp_core.engine.model import Chunk
from ptdp_core.engine.pipeline import Batch

STD = 0.02


class PeerBlock(nn.Module):
    """A plain transformer layer; with `fused` one QKV layer, else three (what `parallelize_module` can split)."""

    def __init__(self, h: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.head, self.fused = h // heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        if fused:
            self.qkv = nn.Linear(h, 3 * h)
        else:
            self.q, self.k, self.v = nn.Linear(h, h), nn.Linear(h, h), nn.Linear(h, h)
        self.projection, self.up, self.down = nn.Linear(h, h), nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer's output [B, S, H] from x [B, S, H]."""
        b, s, _ = x.shape
        y = self.norm1(x)
        parts = self.qkv(y).chunk(3, -1) if self.fused else (self.q(y), self.k(y), self.v(y))
        q, k, v = (part.view(b, s, -1, self.head).transpose(1, 2) for part in parts)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(a.transpose(1, 2).reshape(b, s, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    """A GPT written the usual way, as nanoGPT's, with the output layer tied to the embedding."""

    def __init__(self, model: ModelConfig, fused: bool) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(model.vocab, model.hidden), nn.Embedding(model.seq, model.hidden)
        self.blocks = nn.ModuleList(PeerBlock(model.hidden, model.heads, fused) for _ in range(model.layers))
        self.norm = nn.LayerNorm(model.hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=STD)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute the mean loss of a microbatch with tokens and labels [B, S]."""
        x = self.word(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return plain_loss(functional.linear(self.norm(x), self.word.weight), labels)


def plain_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean loss of a microbatch with logits [B, S, V] and labels [B, S]."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def hugging_face(model: ModelConfig) -> nn.Module:
    """Hugging Face's GPT-2 of the same sizes, with PyTorch's attention and no dropout; the loss is as in `PlainGPT`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    class GPT2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            options: dict[str, Any] = {
                "n_embd": model.hidden,
                "n_layer": model.layers,
                "n_head": model.heads,
                "n_positions": model.seq,
                "resid_pdrop": 0.0,
                "embd_pdrop": 0.0,
                "attn_pdrop": 0.0,
                "vocab_size": model.vocab,
                "use_cache": False,
                "bos_token_id": None,
                "eos_token_id": None,
                "attn_implementation": "sdpa",
            }
            self.gpt2 = GPT2LMHeadModel(GPT2Config(**options))

        def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return plain_loss(self.gpt2(tokens).logits, labels)

    return GPT2()


def hugging_face_rotary(model: ModelConfig) -> nn.Module:
    """Hugging Face's Llama of the same sizes, or its Mixtral of a model with experts; the loss is as in `PlainGPT`."""
    from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig

    options: dict[str, Any] = {
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "intermediate_size": model.mlp_width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.query_groups,
        "max_position_embeddings": model.seq,
        "rope_theta": model.rope_theta,
        "tie_word_embeddings": model.tied_embeddings,
        "attn_implementation": "sdpa",
        "use_cache": False,
    }
    if model.experts:
        options |= {"num_local_experts": model.experts, "num_experts_per_tok": model.experts_per_token}
        options |= {"experts_implementation": "grouped_mm"}
    llama = AutoModelForCausalLM.from_config((MixtralConfig if model.experts else LlamaConfig)(**options))
    return _Wrapped(lambda tokens, labels: plain_loss(llama(input_ids=tokens).logits, labels), llama)


def autocast(model: nn.Module, device: str) -> nn.Module:
    """The same with bf16 autocast on a GPU, its weights in fp32; on a CPU as it is."""
    if device == "cpu":
        return model

    def run(tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return cast(torch.Tensor, model(tokens, labels))

    return _Wrapped(run, model)


class _Wrapped(nn.Module):
    """A model under another call, with its parameters."""

    def __init__(self, run: Callable[..., torch.Tensor], model: nn.Module) -> None:
        super().__init__()
        self.run, self.model = run, model

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.run(tokens, labels)


class PlainStage(nn.Module):
    """Consecutive layers of `PlainGPT` as a stage: tokens [B, S] or [B, S, H] in, [B, S, H] or logits [B, S, V] out."""

    def __init__(self, model: ModelConfig, layers: range) -> None:
        super().__init__()
        whole = PlainGPT(model, fused=True)
        self.word = whole.word if layers.start == 0 else None
        self.position = whole.position if layers.start == 0 else None
        self.blocks = nn.ModuleList(whole.blocks[i] for i in layers)
        self.head = nn.Linear(model.hidden, model.vocab, bias=False) if layers.stop == model.layers else None
        self.norm = whole.norm if self.head else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the stage's output."""
        if self.word is not None and self.position is not None:
            x = self.word(x) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.head and self.norm else x


class AsStage(nn.Module):
    """A chunk of the engine as a stage of `torch.distributed.pipelining`: tokens or [S, B, H] in, [S, B, H] out."""

    def __init__(self, chunk: Chunk) -> None:
        super().__init__()
        self.chunk = chunk

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the chunk's output, without the loss."""
        x = self.chunk._embed(x) if self.chunk.is_first else x
        return self.chunk._block(0, len(self.chunk.layers))(x)


def plain_step(model: nn.Module, batch: Callable[[int], Batch], m: int) -> Callable[[], object]:
    """A training step as it is usually written; DistributedDataParallel reduces after the last microbatch only."""
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        adam.zero_grad()
        for j in range(m):
            with model.no_sync() if isinstance(model, DistributedDataParallel) and j < m - 1 else nullcontext():
                (model(*batch(j)) / m).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()

    return step
