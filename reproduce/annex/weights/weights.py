"""Checkpoints made from weights in Hugging Face's naming, and the other way round: the whole model on one device."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kernels import select
from ptdp_core.config import ParallelConfig
from ptdp_core.engine.checkpoint.checkpoints import Checkpoints
from ptdp_core.engine.checkpoint.folder import STATE, manifest, resolve
from ptdp_core.engine.checkpoint.state import State, read_state, wrong
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.least_memory import STATE_BYTES, check_memory
from ptdp_core.engine.parameters import LocalParameter
from ptdp_core.engine.settings import EngineSettings, Settings
from ptdp_core.engine.settings_file import from_mapping
from ptdp_core.engine.trainer import Trainer
from ptdp_core.formulas import parameters
from reproduce.annex.weights import hugging_face

# What one process that loads a whole model takes over from the run that saved it; the layout is its own.
KEPT = {"model": None, "parallel": ("attention",), "engine": ("dtype", "seed"), "run": ("data", "validation")}


def alone(saved: State, device: str) -> Settings:
    """Settings with which one process on `device` can load the whole model.

    Raises `ValueError` for a setting that cannot be, and for a model that the files of the checkpoint cannot hold.
    """
    sections: dict[str, Mapping[str, Any]] = {}
    for section, names in KEPT.items():
        values = saved.settings.get(section, {})
        sections[section] = values if names is None else {name: values[name] for name in names if name in values}
    B = saved.settings.get("parallel", {}).get("B")
    sections["parallel"] = {**sections["parallel"], "b": B, "B": B, "recompute": "none"}
    sections["engine"] = {**sections["engine"], "kernels": "auto", "device": device}
    try:
        settings = from_mapping({**sections, "optimizer": saved.settings.get("optimizer", {})})
    except ValueError as error:
        raise ValueError(f"load={str(saved.path)!r} has {STATE} with {error}") from None
    files = sum(file.size for file in (manifest(saved.path) or {}).values())
    if (needed := STATE_BYTES * parameters(settings.model)) > files:
        layers, hidden, vocab = settings.model.layers, settings.model.hidden, settings.model.vocab
        raise wrong(
            saved.path,
            "settings.model",
            {"layers": layers, "hidden": hidden, "vocab": vocab},
            f"a model that its files hold: of {needed} bytes there are {files}",
        )
    return settings


def load(source: str | Path, device: torch.device) -> Trainer:
    """Load the whole model of a checkpoint onto one device; the checkpoint may have been saved with any (p, t, d, v).

    `source` is a checkpoint, or a folder whose newest whole one is taken. Raises `ValueError` if there is none, or if
    it is damaged, or of a model that its files cannot hold.
    """
    path = resolve(source)
    settings = alone(read_state(path), device.type)
    check_memory(settings, device, ranks=1)
    trainer = Trainer(settings, Groups.alone(device), select(settings.kernels, device))
    Checkpoints("", trainer).load(path)
    return trainer


def export_weights(checkpoint: str | Path, out: Path) -> Settings:
    """Write a checkpoint's weights as `config.json` and `model.safetensors`, in the precision that it trained in.

    Returns its settings. Raises `ValueError` if there is no such checkpoint, or the model has no name there.
    """
    trainer = load(checkpoint, torch.device("cpu"))
    weights = {}
    for local in trainer.store.parameters:
        weights[local.shard.parameter.name] = _without_padding(local).detach().clone()
    hugging_face.write(out, trainer.settings.model, weights)
    return trainer.settings


def import_weights(folder: Path, save: Path, seq: int | None = None) -> tuple[Settings, Path]:
    """Make a checkpoint of step 0 from `config.json` and safetensors; the model has sequences of `seq` tokens.

    Returns its settings, and its folder in `save`. A run with another batch size, seed or precision can begin with it.
    Raises `ValueError` for weights that cannot be read, or for a folder `save` that already holds checkpoints.
    """
    model, weights = hugging_face.read(folder, seq)
    settings = Settings(model, ParallelConfig(recompute="none"), EngineSettings(device="cpu"))
    trainer = Trainer(settings, Groups.alone(), select("reference"))
    with torch.no_grad():
        for local in trainer.store.parameters:
            _without_padding(local).copy_(weights[local.shard.parameter.name])
    checkpoints = Checkpoints(save, trainer)
    checkpoints.claim()
    checkpoints.begin(0)
    return settings, checkpoints.save(0)


def _without_padding(local: LocalParameter) -> torch.Tensor:
    """A parameter of a run with t = 1 as a view without the rows that pad the vocabulary."""
    return local.tensor.narrow(local.shard.parameter.dimension, 0, local.shard.stop)
