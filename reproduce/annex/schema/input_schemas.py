"""JSON Schemas of what people write for commands: points, the file of a training run, a cluster's file.

They follow from the fields' own rules (`ptdp_core.fields`), each field by itself; what several fields must be together,
the command checks.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, get_args

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.settings_file import SECTIONS
from ptdp_core.simulator import PAPER
from ptdp_core.simulator.cluster import HOST, NUMBERS, TILES
from ptdp_core.simulator.programs import program_names
from reproduce.experiment.sweep import REQUIRED

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES: Mapping[type, str] = {int: "integer", float: "number", bool: "boolean", str: "string"}
ENDS = {"least": "minimum", "most": "maximum", "above": "exclusiveMinimum", "below": "exclusiveMaximum"}
SOFTWARE = {
    "type": "array",
    "items": {"enum": list(vars(PAPER))},
    "description": "What the training program does beyond Megatron-LM of 2021.",
}
PROGRAM = {
    "type": "string",
    "pattern": f"^({'|'.join(program_names())})(@.+)?$",
    "description": "The training program, of a release behind an @.",
}


TILE_SIZES = {
    "type": "array",
    "items": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2},
    "description": "Rows and columns of the tiles that GEMM kernels compute.",
}


def field_schema(item: Field[Any]) -> dict[str, Any]:
    """The schema of a configuration's field, whose default is allowed in any case."""
    types = [TYPES[each] for each in get_args(item.type) or (item.type,)]
    rule: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    if item.metadata["choices"]:
        rule = {"enum": list(item.metadata["choices"])}
    rule |= {key: item.metadata[end] for end, key in ENDS.items() if item.metadata[end] is not None}
    described = {"description": item.metadata["description"]}
    if item.default is MISSING:
        return rule | described
    if not _allows(item, item.default):
        rule = {"anyOf": [{"const": item.default}, rule]}
    return rule | described | {"default": item.default}


def _allows(item: Field[Any], value: Any) -> bool:
    rule = item.metadata
    if rule["choices"]:
        return value in rule["choices"]
    above, below = (rule[end] for end in ("above", "below"))
    inside = rule["least"] is None or value >= rule["least"]
    return inside and (above is None or value > above) and (below is None or value < below)


def _object(properties: Mapping[str, Any], **further: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **further}


def points() -> dict[str, Any]:
    """POINTS.json of `reproduce simulate`."""
    properties = {item.name: field_schema(item) for part in (ModelConfig, ParallelConfig) for item in fields(part)}
    batch = {**properties["B"]}
    description = batch.pop("description")
    del batch["default"]  # which stands for none given
    tokens = {"type": "string", "pattern": r"^\d+(\.\d+)?[KMGBT]$"}
    properties["B"] = {"anyOf": [batch, tokens], "description": f"{description} Or tokens, as '4M': 4 x 1024 x 1024."}
    properties |= {
        "model": {"type": "string", "minLength": 1, "description": "In place of a model's fields, one by name."},
        "cluster": {"type": "string", "minLength": 1, "description": "A name, or a .toml file."},
        "program": PROGRAM,
        "software": SOFTWARE,
        "lengths": {
            "anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1}],
            "description": "Of samples, B in a step, packed: a file, or lengths, each alone or with how many have it.",
        },
        "label": {"type": "string", "description": "What the point is called in the answer."},
    }
    either = [{"required": ["model"]}, {"required": [name for name in REQUIRED if name != "B"]}]
    point = _object(properties, required=["B"], anyOf=either)
    return {"title": "POINTS.json", "type": "array", "minItems": 1, "items": point}


def point() -> dict[str, Any]:
    """POINT.json of `reproduce explain` and `explain trace`: one configuration, in a list."""
    return points() | {"title": "POINT.json", "maxItems": 1}


def run() -> dict[str, Any]:
    """The sections of a training run's file, for `reproduce train`."""
    sections = {}
    for name, part in SECTIONS.items():
        required = [item.name for item in fields(part) if item.default is MISSING]
        sections[name] = _object({item.name: field_schema(item) for item in fields(part)}, required=required)
    return {"title": "run.toml", **_object(sections, required=["model"])}


def cluster() -> dict[str, Any]:
    """A cluster's file, for every `--cluster`."""
    number = _object(
        {
            "value": {"type": "number", "description": "In the unit."},
            "unit": {"type": "string", "description": "As the base's."},
            "range": {
                "type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2,
                "description": "Plausible values, from and to.",
            },
            "source": {"type": "string", "description": "Where the number is from."},
            "set_with": {"type": "string", "description": "The data it was set with: public, or artifacts."},
        },
        required=["value", "unit", "range", "source", "set_with"],
    )  # fmt: skip
    texts = {
        "name": "What results call it.",
        "description": "A sentence about it.",
        "base": "The cluster whose numbers hold where this file has none.",
        "network": "The network between its nodes: a name, or a .toml file.",
    }
    properties: dict[str, Any] = {name: {"type": "string", "description": text} for name, text in texts.items()}
    properties |= {
        "software": SOFTWARE,
        "program": PROGRAM,
        TILES: TILE_SIZES,
        HOST: {"description": "The machine that was measured."},
    }
    properties |= {name: {"anyOf": [{"type": "number"}, number]} for name in NUMBERS}
    return {"title": "cluster.toml", **_object(properties)}
