"""The models that are known by name: the paper's, and later ones. The jobs of Table 1. Imports no simulator."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from ptdp_core.config import ModelConfig
from reproduce.experiment import published
from reproduce.planning import hub
from results.records.errors import UsageError, did_you_mean

# Of GPT-3's and Nemotron's other sizes and of the Llama family: the fields of `ModelConfig`.
LATER = {name: ModelConfig(**hub.whole(entry)) for name, entry in hub.KNOWN["later"].items()}


def find(name: str) -> hub.Known:
    """The model of that name, here or on Hugging Face's hub, or of a `config.json`. Raises `UsageError`."""
    if hub.is_file(name):
        return hub.read(name)
    short = hub.short_name(name)
    if short in hub.CONFIGS:
        return _of_the_hub(short)
    known = _of_the_paper() | LATER
    if short not in known:
        names = main_names()
        alike = [other for other in names if _numbers(other) == _numbers(short)]  # another size is another model
        hint = did_you_mean(short, alike) or _named_in_part(short, names)
        raise UsageError(
            f"unknown model {name!r}{hint}; needs a name that reproduce simulate --help lists, a config.json of the "
            "hub, or layers, hidden, heads; try the path of its config.json"
        )
    return hub.Known(short, known[short])


def named(name: str) -> ModelConfig:
    """The sizes of the model that `find` finds. Raises `UsageError`."""
    return find(name).model


def _named_in_part(short: str, names: list[str]) -> str:
    """The text '; did you mean ...?' with the models of which `short` is the size or the family, as 70b or qwen3."""
    meant = [name for name in names if short in name.split("-")][:4]
    return f"; did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def _numbers(name: str) -> list[str]:
    return re.findall(r"[\d.]+", name)


def with_model_fields(point: Any) -> Any:
    """The point, and beneath its own keys the fields of the model that it names as `model`. Raises `UsageError`."""
    if not isinstance(point, Mapping) or not isinstance(point.get("model"), str):
        return point
    fields = asdict(named(point["model"]))
    if isinstance(seq := point.get("seq"), int) and fields["window"] >= seq:  # it cuts nothing of sequences this short
        fields["window"] = 0
    return fields | {key: value for key, value in point.items() if key != "model"}


@cache
def _of_the_hub(name: str) -> hub.Known:
    return hub.known(name, hub.CONFIGS[name])


@cache
def _of_the_paper() -> dict[str, ModelConfig]:
    """The paper's models, called by their parameter counts, as in Tables 1 and 2 and as in its text."""
    by_name: dict[str, ModelConfig] = {}
    gpt3 = published.configuration("fig_interleaved")  # 175 billion there, 174.6 in Table 2
    rows = [*published.rows("table_weak_scaling"), *({**gpt3, "parameters_B": n} for n in (175, 174.6))]
    for row in rows:
        model = ModelConfig(row["layers"], row["hidden"], row["heads"])
        billions = row["parameters_B"]
        by_name[f"{billions:g}b"] = model
        if billions >= 10:  # the paper's text says 145B and 530B
            by_name |= {f"{int(billions)}b": model, f"{round(billions)}b": model}
        if billions >= 1000:
            by_name["1t"] = model
    return by_name


def main_names() -> list[str]:
    """One name for each model: the paper's by size, then those since."""
    names: dict[ModelConfig, str] = {}
    for name, model in _of_the_paper().items():
        names.setdefault(model, name)
    return [*sorted(names.values(), key=lambda name: float(name.rstrip("b"))), "1t", *LATER, *hub.CONFIGS]


def table_1_row(model: ModelConfig) -> Mapping[str, Any] | None:
    """The row of Table 1 for a model; None for one that is not in it."""
    rows = published.rows("table_weak_scaling")
    return next((row for row in rows if ModelConfig(row["layers"], row["hidden"], row["heads"]) == model), None)
