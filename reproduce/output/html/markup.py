"""HTML by construction: text is escaped unless it is `Html` already, so that nothing of a record can become markup."""

import base64
import struct
from collections.abc import Iterable
from html import escape

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_VOID = {"img", "br", "hr", "meta", "input"}


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


Content = str | None | Iterable["Content"]  # None is nothing


def markup(content: Content) -> Html:
    """The content as HTML."""
    if content is None:
        return Html("")
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return Html(escape(content, quote=True))
    return Html("".join(markup(part) for part in content))


def element(name: str, /, *content: Content, **attributes: str | int | None) -> Html:
    """An element. An attribute that is None is left out; `class_` is `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{markup(content)}</{name}>")


def png_image(data: bytes, alt: str, scale: float = 0.5) -> Html:
    """A PNG file inside the page, `scale` times its pixels wide. Raises ValueError if it is none."""
    if not data.startswith(PNG_SIGNATURE) or len(data) < 24:
        raise ValueError("not a PNG file")
    width, height = (round(size * scale) for size in struct.unpack(">II", data[16:24]))
    source = "data:image/png;base64," + base64.b64encode(data).decode()
    return element("img", src=source, alt=alt, width=width, height=height)
