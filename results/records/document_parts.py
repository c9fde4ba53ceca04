"""What the parts of a record have in common: frozen dataclasses that say themselves what a document may hold.

All follows from a field's type and its sentence (`told`): the JSON Schema (`schema_of`), what is written (`to_json`)
and read (`from_json`), and what is refused already where a part is made.
"""

import functools
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

SCALARS = (int, float, str, bool, NoneType)  # what Any stands for: plain values
JSON_TYPES = {float: "number", int: "integer", str: "string", bool: "boolean", NoneType: "null"}

Real = int | float


class SchemaRule:
    """What JSON Schema says of an `Annotated` type; where it has a `name`, under that name among the definitions.

    A word that an `enum` does not have is refused already where a part is made.
    """

    def __init__(self, name: str = "", **rules: Any) -> None:
        self.name, self.rules = name, rules


Text = Annotated[str, SchemaRule(minLength=1)]
Name = Annotated[str, SchemaRule(pattern="^[a-z][a-z0-9_]*$")]


def told(sentence: str, default: Any = MISSING, *, absent: bool = False, **rules: Any) -> Any:
    """A field of a part: a sentence about it, and further rules of JSON Schema, such as `minimum`.

    JSON leaves out a field that may be `absent` where it has its default.
    """
    known = {"absent": absent, "default": default, "rules": {**rules, "description": sentence}}
    return field(default_factory=dict, metadata=known) if default == {} else field(default=default, metadata=known)


class RecordPart:
    """The base of the dataclasses: their JSON form has a key for each field, in the fields' order.

    A part that is `called` something stands among the schema's definitions, another one where it is used. `together`
    is what the schema says of several fields together.
    """

    called: ClassVar[str]
    together: ClassVar[Mapping[str, Any]]

    def __init_subclass__(cls, called: str = "", together: Mapping[str, Any] | None = None) -> None:
        cls.called, cls.together = called, together or {}

    def __post_init__(self) -> None:
        """Make numpy's scalars plain numbers and lists tuples. Raises ValueError for no number or an unknown word."""
        for name, clean in _ways(type(self)).clean.items():
            object.__setattr__(self, name, clean(name, getattr(self, name)))

    def to_json(self) -> dict[str, Any]:
        """The part as plain values, maps in the order of their keys."""
        document = {}
        for item in _fields(type(self)):
            value = getattr(self, item.name)
            if not item.metadata["absent"] or value != item.metadata["default"]:
                document[item.name] = _plain(value)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The part that a checked document describes."""
        read = _ways(cls).read
        return cls(**{name: read[name](value) if name in read else value for name, value in document.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, RecordPart):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class _Ways(NamedTuple):
    """What is done with a part's fields, by name: how each is cleaned where a part is made, and read from JSON."""

    clean: dict[str, Callable[[str, Any], Any]]
    read: dict[str, Callable[[Any], Any]]


def _ways_of(part: type[RecordPart]) -> _Ways:
    kinds = get_type_hints(part, include_extras=True)
    named = [(item.name, kinds[item.name]) for item in fields(part)]  # type: ignore[arg-type]
    clean = {name: way for name, kind in named if (way := _cleaning(kind))}
    return _Ways(clean, {name: back for name, kind in named if (back := _reading(kind))})


_ways: Callable[[Any], _Ways] = functools.cache(_ways_of)
_fields: Callable[[Any], tuple[Field[Any], ...]] = functools.cache(fields)


def _cleaning(kind: Any) -> Callable[[str, Any], Any] | None:
    """How a value of a type is made plain: numpy's scalars as Python's; None for what is taken as it is."""
    one, optional = _without_none(kind)
    own: Callable[[str, Any], Any] = number
    if get_origin(one) is Annotated and (allowed := get_args(one)[1].rules.get("enum")):
        own = functools.partial(_one_of, allowed)
    elif get_origin(one) is tuple:
        own = functools.partial(_tuple, _cleaning(get_args(one)[0]))
    elif get_origin(one) is Mapping and get_args(one)[1] is Any:
        own = _scalars
    elif one not in (Real, float):
        return None
    return (lambda name, value: None if value is None else own(name, value)) if optional else own


def number(name: str, value: Any) -> int | float:
    """Return `value`, which may be a numpy scalar, as a plain int or float. Raises ValueError if it is not finite."""
    plain: int | float = value
    if type(value) not in (float, int):  # of another type, whether it is a number is slow to say
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise ValueError(f"{name}={value!r} is not a number; needs a finite int or float")
        plain = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        raise ValueError(f"{name}={value!r} is not finite; needs a finite number")
    return plain


def _one_of(allowed: tuple[str, ...], name: str, value: str) -> str:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is unknown; needs one of {', '.join(allowed)}")
    return value


def _tuple(clean: Callable[[str, Any], Any] | None, name: str, value: Any) -> tuple[Any, ...]:
    return tuple(clean(f"{name}[{index}]", item) for index, item in enumerate(value)) if clean else tuple(value)


def _scalars(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    plain = (bool, str, NoneType)
    return {k: v if isinstance(v, plain) else number(f"{name}.{k}", v) for k, v in values.items()}


def _reading(kind: Any) -> Callable[[Any], Any] | None:
    """How a value of a type is read from JSON; None for what is taken as it is."""
    one, _ = _without_none(kind)
    if isinstance(one, type) and issubclass(one, RecordPart):
        return lambda value: None if value is None else one.from_json(value)
    if get_origin(one) is tuple and (item := _reading(get_args(one)[0])):
        return lambda value: tuple(map(item, value))
    if get_origin(one) is Mapping and (entry := _reading(get_args(one)[1])):
        return lambda value: {key: entry(inner) for key, inner in value.items()}
    return None


def _without_none(kind: Any) -> tuple[Any, bool]:
    """A type without None, and whether that was one of its members."""
    members = get_args(kind)
    if get_origin(kind) in (tuple, Mapping, Annotated) or NoneType not in members:
        return kind, False
    others = [member for member in members if member is not NoneType]
    return functools.reduce(lambda one, other: one | other, others), True


def schema_of(document: type[RecordPart], first: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a document: with its `first` keys, and its first `properties`, which no field has."""
    shared: dict[str, Any] = {}
    body = _object(document, shared)
    body["properties"] = {**properties, **body["properties"]}
    body["required"] = [*properties, *body["required"]]
    return {**first, **body, "$defs": shared}


def _object(part: type[RecordPart], shared: dict[str, Any]) -> dict[str, Any]:
    kinds, properties, required = get_type_hints(part, include_extras=True), {}, []
    for item in fields(part):  # type: ignore[arg-type]
        kind = kinds[item.name]
        if item.metadata["absent"]:
            kind, _ = _without_none(kind)
        else:
            required.append(item.name)
        rules = item.metadata["rules"]
        own = {} if {"const", "enum"} & rules.keys() else _schema(kind, shared)
        properties[item.name] = {**own, **rules}
    whole = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {**whole, **part.together}


def _schema(kind: Any, shared: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type. What has a name stands in `shared`, and is referred to."""
    one, optional = _without_none(kind)
    name, own = "", {}
    if isinstance(one, type) and issubclass(one, RecordPart):
        name, own = one.called, _object(one, shared)
    elif get_origin(one) is Annotated:
        plain, rule = get_args(one)
        name, own = rule.name, ({} if "enum" in rule.rules else {"type": JSON_TYPES[plain]}) | rule.rules
    elif get_origin(one) is tuple:
        own = {"type": "array", "items": _schema(get_args(one)[0], shared)}
    elif get_origin(one) is Mapping:
        key, value = get_args(one)
        named = {get_args(key)[1].rules["pattern"]: _schema(value, shared)}
        own = {"type": "object", "patternProperties": named, "additionalProperties": False}
    else:
        members = SCALARS if one is Any else get_args(one) or (one,)
        names = [JSON_TYPES[float if member is int and float in members else member] for member in members]
        own = {"type": names[0] if len(set(names)) == 1 else list(dict.fromkeys(names))}
    if optional:
        return {**own, "type": [own["type"], "null"]}
    if not name:
        return own
    shared[name] = own
    return {"$ref": f"#/$defs/{name}"}
