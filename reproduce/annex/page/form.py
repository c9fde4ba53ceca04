"""The fields of a configuration as the page's form has them: groups, words for people, letters and units.

What a field is and may be comes from its definition (`ptdp_core.config`).
"""

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field
from dataclasses import fields as dataclass_fields
from functools import cache
from math import floor, log10
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.fields import LARGEST, smallest
from ptdp_core.schedules import names
from ptdp_core.simulator.cluster import ClusterParameter
from ptdp_core.simulator.programs import program_names
from reproduce.annex.page import words


class Label(NamedTuple):
    """What the form calls a field: words, the paper's letter if it has one, and the unit if it has one."""

    words: str
    letter: str = ""
    unit: str = ""


GROUPS = ("Layout", "Schedule", "Techniques", "Model")


ACRONYMS = {
    "allreduce": "all-reduce",
    "gemm": "GEMM",
    "gpus": "GPUs",
    "hca": "HCA",
    "nvlink": "NVLink",
    "p2p": "point-to-point",
    "zero3": "ZeRO-3",
}
PREFIXED = ("B", "B/s", "FLOP/s", "s")
PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
_FIELDS = [
    (item.metadata["group"] or usual, item)
    for part, usual in ((ParallelConfig, "Techniques"), (ModelConfig, "Model"))
    for item in dataclass_fields(part)
]
_IN_ORDER = sorted(_FIELDS, key=lambda field: GROUPS.index(field[0]))
LABELS = {
    item.name: Label(
        item.metadata["words"], item.metadata["letter"] or item.name * (len(item.name) == 1), item.metadata["unit"]
    )
    for _, item in _IN_ORDER
} | {"program": Label("Training program")}


@cache
def offered() -> dict[str, dict[str, Any]]:
    """Every field by name, in the order of the form: group, words, and what its definition says; then the program."""
    fields = {
        item.name: {"group": group, **LABELS[item.name]._asdict(), **_definition(item)} for group, item in _IN_ORDER
    }
    programs = ("", *program_names())
    of_program = {"sentence": "", "default": "", "choices": programs, "least": None, "most": None, "whole": False}
    told = {"choice_words": {name: words.choice("program", name) for name in programs}}
    return fields | {"program": {"group": "Program", **LABELS["program"]._asdict(), **of_program, **told}}


def _definition(field: Field[Any]) -> dict[str, Any]:
    """The sentence, default and range of a field; `most` is None where it is no smaller than what numbers can count."""
    most = field.metadata["most"]
    choices = ("", *names()) if field.name == "schedule" else field.metadata["choices"] or None
    return {
        "sentence": field.metadata["description"],
        "default": None if field.default is MISSING else field.default,
        "choices": choices,
        "choice_words": {choice: words.choice(field.name, choice) for choice in choices or ()},
        "least": smallest(field),
        "most": None if most == LARGEST else most,
        "whole": int in (field.type, type(field.default)),
    }


def shown(field: str, value: object) -> str:
    """A field's value in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else words.choice(field, str(value or ""))


def number_words(name: str) -> str:
    """What the page calls a number of a cluster."""
    words = " ".join(ACRONYMS.get(word, word) for word in name.split("_"))
    return words[0].upper() + words[1:]


def prefixed(number: ClusterParameter) -> tuple[str, float]:
    """The unit that a number is shown in, and how many of its own units that is: TFLOP/s and 1e12."""
    if number.unit not in PREFIXED or not number.value:
        return ("" if number.unit in ("1", "count") else number.unit), 1.0
    power = min(max(floor(log10(abs(number.value)) / 3), -3), 5)
    return PREFIXES[power] + number.unit, 10.0 ** (3 * power)


def number_shown(number: ClusterParameter) -> str:
    """A number of a cluster with its unit, in a sentence."""
    unit, factor = prefixed(number)
    return f"{number.value / factor:g} {unit}".strip()


# A field and its value, as errors and plans name them; behind it perhaps what is counted.
_VALUE = re.compile(r"\b([A-Za-z]\w*)=('?)([^\s,;:()]+)\2( (?:microbatch|model chunk|device|stage|layer|head|GPU))?")
_COUNTED = {"gpus": "GPUs", "m": "microbatches", "batch": "sequences"}


def named_in(text: str) -> Iterator[str]:
    """The fields that a sentence names with a value, in its order."""
    return (found[1] for found in _VALUE.finditer(text) if found[1] in LABELS)


def in_words(text: str) -> str:
    """A sentence of the planner or of an error for people: 'p=7' is 'pipeline stages 7', 'gpus=16' '16 GPUs'."""

    def said(found: re.Match[str]) -> str:
        name, value, noun = found[1], found[3], found[4]
        if noun:
            return f"{value}{noun}"
        if name in _COUNTED:
            return f"{value} {_COUNTED[name]}"
        if name not in LABELS:
            return found[0]
        label = LABELS[name].words
        label = label[:1].lower() + label[1:] if label[1:2].islower() else label
        known = {"True": "on", "False": "off"} | offered()[name]["choice_words"]
        return f"{label} {known.get(value, value)}"

    text = _VALUE.sub(said, text)
    return text[:1].upper() + text[1:]
