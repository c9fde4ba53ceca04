"""Text from a checkpoint: the whole model on one device, sampled token by token."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from kernels import select
from ptdp_core.config import ParallelConfig
from ptdp_core.engine.checkpoint import Checkpoints
from ptdp_core.engine.checkpoint_folder import STATE, resolve
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.sections import from_mapping
from ptdp_core.engine.settings import EngineSettings, RunSettings, Settings
from ptdp_core.engine.trainer import Trainer


def load(source: str | Path, device: torch.device) -> Trainer:
    """Load the whole model of a checkpoint onto one device; the checkpoint may have been saved with any (p, t, d, v).

    `source` is a checkpoint, or a folder whose newest whole one is taken. Raises `ValueError` if there is none, or if
    it is damaged.
    """
    path = resolve(source)
    saved = from_mapping(json.loads((path / STATE).read_text(encoding="utf-8"))["settings"])
    settings = Settings(
        saved.model,
        ParallelConfig(b=saved.parallel.B, B=saved.parallel.B, recompute="none", attention=saved.parallel.attention),
        EngineSettings(
            dtype=saved.engine.dtype,
            kernels="auto",
            device=device.type,
            seed=saved.engine.seed,
        ),
        saved.optimizer,
        RunSettings(data=saved.run.data, validation=saved.run.validation),
    )
    trainer = Trainer(settings, Groups.alone(device), select(settings.kernels, device))
    Checkpoints("", trainer).load(path)
    trainer.chunks[0].eval()
    return trainer


@torch.no_grad()
def sample(
    trainer: Trainer, prompt: Sequence[int], count: int, *, temperature: float, seed: int, tokens: int
) -> Iterator[int]:
    """Generate `count` tokens that follow the prompt, one at a time.

    Each is drawn from the softmax of the logits divided by `temperature`; with a temperature of 0 the most likely token
    is taken. Only the first `tokens` ids of the vocabulary can be drawn. The model sees the last s tokens. Raises
    `ValueError` for a prompt that is empty or has other ids.
    """
    seq = trainer.settings.model.seq
    if not prompt or not all(0 <= token < tokens for token in prompt):
        raise ValueError(f"prompt={list(prompt)} cannot be; needs tokens from 0 to {tokens - 1}; try another prompt")
    generator = torch.Generator().manual_seed(seed)
    context = list(prompt)
    for _ in range(count):
        window = context[-seq:]
        padded = torch.zeros(1, seq, dtype=torch.int64)  # attention is causal, so padding at the end changes nothing
        padded[0, : len(window)] = torch.tensor(window)
        logits = trainer.chunks[0].logits(padded.to(trainer.groups.device))[len(window) - 1, 0, :tokens].float().cpu()
        if temperature == 0:
            token = int(logits.argmax())
        else:
            token = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
        context.append(token)
        yield token
