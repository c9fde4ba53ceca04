"""Checks documents against the schemas in `results/schema/`. An error says in one line what is wrong and where."""

import functools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from results import ROOT

SCHEMAS = ROOT / "results" / "schema"
RECORD = "record-2"
RECORDS = ("record-1", RECORD)

Place = tuple[str | int, ...]
Problem = tuple[Place, str, str]  # the place, what the document has there, and what is needed


class RecordError(ValueError):
    """A document does not match its schema. The message is one line: the place, what is there, what is needed."""


@functools.cache
def validator(schema: str) -> Any:
    """The validator of a schema, such as "record-1". Schemas refer to each other as urn:ptdp:NAME-VERSION."""
    from jsonschema import Draft202012Validator  # imported here: it takes 60 ms, which `reproduce list` need not pay

    registry = _schemas()
    return Draft202012Validator(registry.contents(f"urn:ptdp:{schema}"), registry=registry)


@functools.cache
def _compiled(schema: str) -> Callable[[Any], Any]:
    """A check of a record as a Python function, which takes a tenth of the validator's time.

    It returns the document, and raises ValueError for a wrong one. The library knows JSON Schema up to draft 7, and the
    schemas of records use nothing that came later.
    """
    import fastjsonschema

    draft_7 = _schemas().contents(f"urn:ptdp:{schema}") | {"$schema": "http://json-schema.org/draft-07/schema#"}
    return fastjsonschema.compile(draft_7, use_default=False)


@functools.cache
def _schemas() -> Any:
    from referencing import Registry, Resource

    files = (json.loads(file.read_text(encoding="utf-8")) for file in SCHEMAS.glob("*.schema.json"))
    return ([Resource.from_contents(schema) for schema in files] @ Registry()).crawl()


def parse(data: bytes, source: str) -> Any:
    """Parse the JSON document in `data`. Raises `RecordError` with the line and column if it is no JSON."""
    try:
        return json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}, column {error.colno}: found no valid JSON ({error.msg})"
    except (ValueError, RecursionError) as error:  # not UTF-8; thousands of digits; nested too deep
        problem = f"found no valid JSON ({error})"
    raise RecordError(f"{source}: {problem}; needs a record")


def check(document: Any, schema: str, source: str) -> None:
    """Raise `RecordError` with the first problem of `document` (parsed JSON) against a schema such as "list-1"."""
    for place, value, needs in _problems(document, schema):
        raise RecordError(f"{source}: {_pointer(place)}: found {value}; needs {needs}")


def _problems(document: Any, schema: str) -> Iterator[Problem]:
    """What is wrong with a document, in the schema's order."""
    try:
        sound = schema in RECORDS and _compiled(schema)(document) is document
    except ValueError:  # what is wrong, the slower validator says
        sound = False
    if not sound:
        yield from map(_explain, validator(schema).iter_errors(document))
    yield from _not_finite(document, ())  # the schema takes 1e999, which is read as infinity, for a number
    for part, name in (("points", "key"), ("claims", "id")) if schema == RECORD else ():
        first: dict[str, int] = {}
        for index, entry in enumerate(document[part]):
            if (other := first.setdefault(entry[name], index)) != index:
                yield (part, index, name), _show(entry[name]), f"one that differs from /{part}/{other}/{name}"


def _not_finite(value: Any, path: Place) -> Iterator[Problem]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path, str(value), "a finite number"
    elif isinstance(value, int) and abs(value) > sys.float_info.max:
        yield path, f"a number of {len(str(abs(value)))} digits", "a finite number"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _not_finite(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_finite(item, (*path, index))


def _explain(error: Any) -> Problem:
    """The problem that a jsonschema error describes."""
    path, rule, value = tuple(error.absolute_path), error.validator_value, _show(error.instance)
    match error.validator:
        case "required":
            missing = next(key for key in rule if key not in error.instance)
            return (*path, missing), "nothing", f"this key; the object has {_listed(error.instance)}"
        case "additionalProperties":
            known = list(error.schema.get("properties", ()))
            patterns = list(error.schema.get("patternProperties", ()))
            extra = next(
                key
                for key in error.instance
                if key not in known and not any(re.search(pattern, key) for pattern in patterns)
            )
            needs = f"one of the keys {_listed(known)}" if known else f"a name that matches {patterns[0]}"
            return (*path, extra), "an unknown key", needs
        case "type":
            needs = " or ".join([rule] if isinstance(rule, str) else rule)
        case "const":
            needs = _show(rule)
        case "enum":
            needs = f"one of {_listed(rule)}"
        case "pattern":
            needs = f"text that matches {rule}"
        case "minLength" | "minItems":
            needs = f"at least {rule} {'character' if error.validator == 'minLength' else 'item'}"
        case "minimum":
            needs = f"at least {rule}"
        case _:
            needs = f"what the schema's {error.validator!r} asks for: {_show(rule)}"
    description = error.schema.get("description")
    return path, value, f"{needs} ({description})" if description else needs


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(str(name) for name in names) or "none"


def _show(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _pointer(path: Place) -> str:
    """A place as a JSON pointer (RFC 6901), such as /points/0/key."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path) or "the document"
