"""The JSON Schema of records, made from their classes: `python -m results.records.schema` writes its file."""

from typing import Any

from results.records.document_parts import schema_of
from results.records.record import SCHEMA, Record
from results.records.storage import atomic_write_bytes, json_lines
from results.records.validation import RECORD, SCHEMAS

DEPTH = 4  # of what has a line to itself: a property of a definition
FILE = SCHEMAS / f"{RECORD}.schema.json"


def schema() -> dict[str, Any]:
    """The JSON Schema of records, which `results/schema/` has as a file."""
    first = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ptdp:{RECORD}",
        "title": "ptdp record, version 2",
        "description": "What the suite writes to disk: the results of one artifact of the paper, of one benchmark, or "
        "of one comparison, at one fidelity. Every number carries a unit of a closed list and its origin. Uniqueness "
        "of points[].key and claims[].id is checked by the reader. A change that an older reader cannot read makes "
        "version 3.",
    }
    return schema_of(Record, first, {"schema": {"const": SCHEMA, "description": "The version of this format."}})


def text() -> str:
    """What the schema's file holds."""
    return json_lines(schema(), DEPTH) + "\n"


if __name__ == "__main__":
    atomic_write_bytes(FILE, text().encode())
