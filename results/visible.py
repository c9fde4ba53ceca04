"""Text of others as people can look at it: control characters, which command a terminal, are spelled out."""

import re
from typing import Any, TextIO

# All but tab and newline; of Unicode also those that change the direction of what follows.
CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with its control characters as escapes, such as \\x1b."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def has_control(value: Any) -> bool:
    """Whether a text, or one of those in a value as JSON or TOML has it, holds a control character."""
    if isinstance(value, str):
        return CONTROL.search(value) is not None
    parts = (*value.keys(), *value.values()) if isinstance(value, dict) else value
    return isinstance(parts, list | tuple) and any(map(has_control, parts))


class VisibleStream:
    """A stream of text through which only visible text goes. Rich writes its colours to the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write the text, visible."""
        self.rich_proxied_file.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)
