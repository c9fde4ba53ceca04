"""Prints what `--json` asks for: a JSON document that names its format and is checked against it first."""

import json
from collections.abc import Mapping
from typing import Any

from results.records.validation import check


def print_document(name: str, version: int, body: Mapping[str, Any]) -> None:
    """Print `body` as a document of the format `results/schema/NAME-VERSION.schema.json`.

    Its first key is `schema`, such as "ptdp-list/1". Characters beyond ASCII are escaped, so that every terminal can
    print them. Raises `RecordError`, and prints nothing, if the document does not match the schema.
    """
    text = json.dumps({"schema": f"ptdp-{name}/{version}", **body}, indent=1, allow_nan=False)
    check(json.loads(text), f"{name}-{version}", "--json")
    print(text)
