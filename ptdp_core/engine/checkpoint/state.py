"""The state file of a checkpoint: where its run stood, with which settings, and on which data.

A checkpoint may come from somebody else, and its checksums tell damage, not tampering. So every field is checked for
its type, its range, and against the others. This module imports no torch.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from reprlib import Repr
from typing import Any

from ptdp_core.engine.checkpoint.folder import STATE, step_of
from ptdp_core.engine.files import read_json
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.settings_file import to_mapping

SHORT = Repr()
SHORT.maxstring = SHORT.maxother = 200  # characters of a value in a message


@dataclass(frozen=True)
class Progress:
    """Where a run stands: all that a checkpoint holds besides tensors. Random streams follow from seed and step.

    `consumed` counts samples, `updates` the steps that were not skipped, and `good_steps` those since the loss scale
    `scale` was changed last.
    """

    step: int
    consumed: int
    seed: int
    updates: int
    scale: float
    good_steps: int


@dataclass(frozen=True)
class State:
    """What the state file in the checkpoint `path` says; `data` identifies the training data (`data.fingerprint`).

    `settings` are those of the saved run as {section: {field: value}}. An older checkpoint lacks later fields, and the
    values are not checked here, but for those that `progress` depends on.
    """

    path: Path
    progress: Progress
    settings: Mapping[str, Mapping[str, Any]]
    data: str


def wrong(path: Path, field: str, value: object, needs: str) -> ValueError:
    """The error for a field of a checkpoint's state that cannot be as a run saved it."""
    return ValueError(
        f"load={str(path)!r} has {STATE} with {field}={SHORT.repr(value)}; needs {needs}; "
        "try another checkpoint, or a copy of this one as it was saved"
    )


def read_state(path: Path) -> State:
    """The state of the checkpoint `path`. Raises `ValueError` naming the file and the field that cannot be right."""
    try:
        saved = read_json(path / STATE)
    except ValueError as error:
        raise ValueError(f"load={str(path)!r} has {STATE} that {error}; needs JSON; try another checkpoint") from None
    progress, settings, data = (_part(path, saved, name) for name in ("progress", "settings", "data"))
    for section, values in _mapping(path, "settings", settings).items():
        _mapping(path, f"settings.{section}", values)
    if not isinstance(data, str):
        raise wrong(path, "data", data, "text")
    return State(path, _progress(path, _mapping(path, "progress", progress), settings), settings, data)


def _part(path: Path, saved: object, name: str) -> Any:
    return _mapping(path, "state", saved).get(name)


def _mapping(path: Path, field: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise wrong(path, field, value, "an object")
    return value


def _progress(path: Path, values: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> Progress:
    """Check and return the progress: every step consumes B samples, and the folder is named by the steps done."""
    names = {field.name for field in fields(Progress)}
    if names != values.keys():
        raise wrong(path, "progress", sorted(values), f"the fields {', '.join(sorted(names))}")

    def whole(name: str, value: object, most: int | None = None) -> int:
        if type(value) is not int or value < 0 or (most is not None and value > most):
            limit = "" if most is None else f" up to {most}"
            raise wrong(path, name, value, f"a whole number from 0{limit}")
        return value

    def equal(name: str, expected: int, why: str) -> int:
        if (value := whole(f"progress.{name}", values[name])) != expected:
            raise wrong(path, f"progress.{name}", value, f"{expected}, {why}")
        return value

    step = equal("step", step_of(path), "as the folder is named")
    B = whole("settings.parallel.B", settings.get("parallel", {}).get("B"))
    seed = whole("settings.engine.seed", settings.get("engine", {}).get("seed"))
    scale = values["scale"]
    if type(scale) not in (int, float) or not 0 < scale <= sys.float_info.max:
        raise wrong(path, "progress.scale", scale, "a finite number above 0")
    return Progress(
        step,
        consumed=equal("consumed", step * B, "the samples of its steps"),
        seed=equal("seed", seed, "as in its settings"),
        updates=whole("progress.updates", values["updates"], step),
        scale=scale,
        good_steps=whole("progress.good_steps", values["good_steps"], step),
    )


def changes_since(saved: State, settings: Settings, data: str) -> list[str]:
    """What differs between a checkpoint's run and this one, as 'name: before -> now'.

    Raises `ValueError` for what has to agree, so that the run that goes on is the run that was saved: the model, the
    batch size, the seed, the data, and the share of them that is held out. A checkpoint of step 0, which holds imported
    weights, has to agree in the model only.
    """
    now, then = to_mapping(settings), saved.settings
    must_agree = {("model", name) for name in now["model"]}
    if saved.progress.step > 0:
        must_agree |= {("parallel", "B"), ("engine", "seed"), ("run", "validation")}
    changes = []
    for section in ("model", "parallel", "engine", "optimizer", "run"):
        names = ["validation"] if section == "run" else list(now[section])
        for name in names:
            value = now[section][name]
            before = then.get(section, {}).get(name, value)
            if before != value and (section, name) in must_agree:
                raise ValueError(
                    f"{name}={value!r} where load={str(saved.path)!r} was saved with {SHORT.repr(before)}; needs the "
                    f"same model, B, seed and data; try {name}={SHORT.repr(before)}"
                )
            if before != value:
                changes.append(f"{name} {SHORT.repr(before)} -> {value!r}")
    if data and saved.data and data != saved.data:
        raise ValueError(
            f"data is not what load={str(saved.path)!r} was saved with; needs the same tokens in the same order; "
            f"try data={SHORT.repr(then.get('run', {}).get('data'))}"
        )
    return changes
