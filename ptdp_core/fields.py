"""A field of a configuration: a sentence about itself and what it may be, and the one checker of all of them."""

import json
import sys
from collections.abc import Hashable
from dataclasses import MISSING, Field, field, fields
from functools import lru_cache, partial
from typing import Any, cast, get_args

from ptdp_core.errors import ConfigurationError

# What other frameworks call a value of ours.
VALUES_ELSEWHERE = {"fsdp": "zero3", "fsdp2": "zero3", "ddp": "torch", "flash": "sdpa", "flash_attention": "sdpa"}
LARGEST = 1 << 53  # of a size; floating-point numbers, in which times are computed, count exactly up to here


def described(
    description: str,
    default: Any = MISSING,
    words: str = "",
    *,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    wrong: str = "",
    fix: str = "",
    later: bool = False,
    group: str = "",
    letter: str = "",
    unit: str = "",
) -> Any:
    """A dataclass field with a sentence about itself and what it may be; without `default` a value is required.

    A word is one of `choices`. A number is at least `least`, or above `above`, and at most `most`, or below `below`; a
    default is allowed in any case: 0 for a size that follows from others. An error says that another value "is `wrong`;
    ...; try `fix`", where `check_fields` has no better words. `later` marks what came after the paper: records name it
    only where it is not at its default (`TrainingConfig.to_plain`). People call it `words`, with the paper's letter and
    the unit if it has one; it stands among those of a `group`, by default that of its class.
    """
    said = dict(locals())
    return field(default=said.pop("default"), metadata=said)


def counted(description: str, default: Any = MISSING, words: str = "", **more: Any) -> Any:
    """A `described` field that is a positive whole number."""
    return described(description, default, words, least=1, most=LARGEST, wrong="not a positive whole number", **more)


described_later, counted_later = partial(described, later=True), partial(counted, later=True)


def descriptions(part: type) -> dict[str, str]:
    """What each field of a configuration class is, in a sentence."""
    return {item.name: str(item.metadata["description"]) for item in fields(part)}


def choices(part: type) -> dict[str, tuple[str, ...]]:
    """What each field that is one of several words may be."""
    return {item.name: item.metadata["choices"] for item in fields(part) if item.metadata["choices"]}


def smallest(item: Field[Any]) -> float | None:
    """The lower end of the numbers that a field may be, its default included; None if there is none."""
    ends = [item.metadata[end] for end in ("least", "above") if item.metadata[end] is not None]
    return min(ends if item.default is MISSING else [*ends, item.default]) if ends else None


def field_help(*parts: type) -> str:
    """The fields of configuration classes as text for `--help`: a line for each, its default and its sentence."""
    lines = []
    for part in parts:
        for name, sentence in descriptions(part).items():
            default = next(item.default for item in fields(part) if item.name == name)
            shown = name if default in ("", MISSING) else f"{name}={json.dumps(default)}"
            lines.append(f"  {shown}  {sentence}")
    return "\n".join(lines)


def check_fields(part: Any) -> None:
    """Raise `ConfigurationError` for a field that is not of its type (for a float also an int), or not as `described`.

    What several fields must be together is checked by the classes themselves.
    """
    for item, name, default in fields_of(cast(Hashable, type(part))):
        value = getattr(part, name)
        if value is not default and (problem := _problem(item, value)):
            raise ConfigurationError(f"{name}={value!r} is {problem}")


@lru_cache(maxsize=64)
def fields_of(part: type) -> tuple[tuple[Field[Any], str, Any], ...]:
    """The fields of a configuration class, each with its name and default, which every configuration is asked for."""
    return tuple((item, item.name, item.default) for item in fields(part))


def _problem(item: Field[Any], value: object) -> str:
    """See `_problem_of`; searches make many configurations with the same few values."""
    try:
        return _problem_of(item, value)
    except TypeError:  # a value that cannot be hashed, such as a list
        return _problem_of.__wrapped__(item, value)


@lru_cache(maxsize=4096, typed=True)
def _problem_of(item: Field[Any], value: object) -> str:
    """What an error says that a value is, what is needed, and a fix; empty if the field may have the value."""
    name, rule, types = item.name, item.metadata, get_args(item.type) or (item.type,)
    if rule["choices"]:
        usual = VALUES_ELSEWHERE.get(str(value).lower())
        fix = usual if usual in rule["choices"] else rule["choices"][0]
        needed = f"needs one of {', '.join(rule['choices'])}; try {name}={fix!r}"
        return "" if value in rule["choices"] else f"unknown; {needed}"
    if types == (bool,):
        return "" if isinstance(value, bool) else f"not a truth value; needs true or false; try {name}=true"
    if isinstance(value, bool) or not isinstance(value, (*types, int) if float in types else types):
        if not rule["wrong"]:
            return f"of type {type(value).__name__}; needs {types[-1].__name__}; try {name}={item.default!r}"
        if isinstance(value, str) and value.isdecimal():
            return _outside(item, "a number in quotes", f"{name}={value}")
        return _outside(item)
    if float in types and isinstance(value, int | float) and not abs(value) <= sys.float_info.max:  # nor for NaN
        return _outside(item) if rule["wrong"] else f"no finite number; needs one; try {name}={item.default!r}"
    if isinstance(value, int | float) and rule["most"] is not None and value > rule["most"]:
        return f"larger than any run's; needs at most {rule['most']}; try a smaller {name}"
    if not isinstance(value, int | float):
        return ""
    least, above, below = (rule[end] for end in ("least", "above", "below"))
    outside = (least is not None and value < least) or (below is not None and value >= below)
    return _outside(item) if outside or (above is not None and value <= above) else ""


def _outside(item: Field[Any], wrong: str = "", fix: str = "") -> str:
    """What an error says of a value that is not in the field's range."""
    name, rule = item.name, item.metadata
    if rule["above"] is not None:
        usual, needed = "not positive", f"{name} > {rule['above']}"
    elif rule["below"] is not None:
        usual, needed = "out of range", f"{rule['least']} <= {name} < {rule['below']}"
    else:
        usual, needed = "too small", f"{name} >= {rule['least']}"
    wrong, fix = wrong or rule["wrong"] or usual, fix or rule["fix"] or f"{name}={rule['least']}"
    return f"{wrong}; needs {needed}; try {fix}"


def largest_divisor(n: int, at_most: int) -> int:
    """The largest divisor of `n` that is no greater than `at_most`, or 1 if it is far below: what messages suggest."""
    nearest = range(min(n, at_most), 0, -1)[:1_000_000]  # a size that somebody made up may have no divisor for long
    return next((k for k in nearest if n % k == 0), 1)


def check_divides(name: str, parts: int, of: str, whole: int, needed: str, fix: str = "") -> None:
    """Raise ConfigurationError unless `parts`, the value of a field, divide `whole`, that of another; try `fix`."""
    if whole % parts:
        raise ConfigurationError(
            f"{name}={parts} does not divide {of}={whole}; needs {needed}; "
            f"try {fix or name}={largest_divisor(whole, parts)}"
        )
