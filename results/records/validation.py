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

    It raises `JsonSchemaException` for a wrong document. The library knows JSON Schema up to draft 7, and the schemas
    of records use nothing that came later.
    """
    import fastjsonschema

    draft_7 = _schemas().contents(f"urn:ptdp:{schema}") | {"$schema": "http://json-schema.org/draft-07/schema#"}
    return fastjsonschema.compile(draft_7, use_default=False)


def _is_valid_record(document: Any, schema: str) -> bool:
    """Whether the document is what the schema describes; what is wrong with another one, `validator` says."""
    import fastjsonschema

    try:
        _compiled(schema)(document)
    except fastjsonschema.JsonSchemaException:
        return False
    return True


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


def check(document: Any, source: str = "record") -> None:
    """Raise `RecordError` with the first problem of a record (parsed JSON), in the schema's order."""
    check_document(document, RECORD, source)
    for part, name in (("points", "key"), ("claims", "id")):
        _raise_first(_repeated((entry[name] for entry in document[part]), part, name), source)


def check_document(document: Any, schema: str, source: str) -> None:
    """Raise `RecordError` with the first problem of `document` (parsed JSON) against a schema such as "list-1"."""
    if schema not in RECORDS or not _is_valid_record(document, schema):
        _raise_first(map(_explain, validator(schema).iter_errors(document)), source)
    _raise_first(_not_finite(document, ()), source)  # the schema takes 1e999, which is read as infinity, for a number


def _raise_first(problems: Iterator[Problem], source: str) -> None:
    for path, value, needs in problems:
        raise RecordError(f"{source}: {_pointer(path)}: found {value}; needs {needs}")


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


def _repeated(names: Iterable[str], part: str, name: str) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, value in enumerate(names):
        if first.setdefault(value, index) != index:
            needs = f"one that differs from /{part}/{first[value]}/{name}"
            yield (part, index, name), _show(value), needs


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
