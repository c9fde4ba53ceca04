"""Figures inside the page: SVG drawn from the record, with values to hover over and a text that tells the trend."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from markupsafe import Markup

from reproduce.experiment.artifact import Artifact
from reproduce.output import theme
from reproduce.output.figures import drawn
from results.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
SIZE = 7.5  # points of a figure on a rem of the page: its letters are about as large as the page's
BROAD = 72 * (theme.COLUMN + theme.PAGE) / 2  # points
WHITE = (1.0, 1.0, 1.0, 1.0)
REFERENCE = re.compile(r"url\(#|^#")
# Letters stay text, so that figures are small and can be searched; Verdana is as wide, where DejaVu is not installed.
LETTERS: Any = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"]}


@dataclass(frozen=True)
class Picture:
    """A figure: as an SVG element, and as a thumbnail that shows the same drawing again."""

    svg: Markup
    thumbnail: Markup


def picture(artifact: Artifact, record: Record, name: str) -> Picture | None:
    """The record's figure, None if it has none. `name` keeps its parts' ids apart from other figures' on the page."""
    import matplotlib

    if artifact.draw is None or not any(point.status == "ok" for point in record.points):
        return None
    with theme.style(), matplotlib.rc_context(LETTERS):
        figure = drawn(artifact, record)
        values: dict[str, list[str]] = {}
        for number, (axes, line) in enumerate(_marked(figure)):
            line.set_gid(f"values{number}")
            values[f"values{number}"] = _values(axes, line)
        parts: list[Any] = [figure, *figure.axes]
        for part in parts:
            part.patch.set_visible(part.get_facecolor() != WHITE)
        svg = theme.figure_bytes(figure, "svg", artifact.title)
    return _inline(svg, name, alternative(artifact, record, figure), values)


def alternative(artifact: Artifact, record: Record, figure: "Figure") -> str:
    """What the figure shows, for who does not see it: its lines' trends, or the titles in it."""
    from matplotlib.text import Text

    trends = [
        _trend(str(line.get_label()) or "ours", line, axes)
        for axes, line in _marked(figure)
        if not str(line.get_label()).endswith(")")  # the paper's values and what else is compared with
    ]
    titles = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text) and text.get_gid() == "title"]
    sentences = trends or titles or [artifact.description.removesuffix(".")]
    axes = figure.axes[0]
    over = f" {_one_line(axes.get_ylabel())} over {axes.get_xlabel()}:" if trends else ""
    return f"{artifact.label}, {record.fidelity}: {artifact.title}.{over} {'; '.join(map(_one_line, sentences))}."


def _marked(figure: "Figure") -> "Iterator[tuple[Axes, Line2D]]":
    """The lines whose points have values of their own."""
    for axes in figure.axes:
        for line in axes.lines:
            named = len(_numbers(line.get_xdata())) and not str(line.get_label()).startswith("_")
            if named and line.get_marker() not in ("None", "", None) and theme.OOM not in str(line.get_label()):
                yield axes, line


def _values(axes: "Axes", line: "Line2D") -> list[str]:
    """A text for each point of a line."""
    label = str(line.get_label()) or "ours"
    points = zip(_places(axes, line), _numbers(line.get_ydata()), strict=True)
    return [f"{label}: {y:.4g} at {axes.get_xlabel()} {x}" for x, y in points]


def _trend(label: str, line: "Line2D", axes: "Axes") -> str:
    """'Interleaved rises from 121 at 12 to 146 at 60'."""
    places, ys = _places(axes, line), _numbers(line.get_ydata())
    first, last = f"{ys[0]:.3g} at {places[0]}", f"{ys[-1]:.3g} at {places[-1]}"
    top, bottom = max(range(len(ys)), key=ys.__getitem__), min(range(len(ys)), key=ys.__getitem__)
    within = range(1, len(ys) - 1)
    if len(ys) == 1:
        return f"{label} is {first}"
    if top in within:
        return f"{label} goes from {first} up to {ys[top]:.3g} at {places[top]} and to {last}"
    if bottom in within:
        return f"{label} goes from {first} down to {ys[bottom]:.3g} at {places[bottom]} and to {last}"
    return f"{label} {'rises' if ys[-1] > ys[0] else 'falls' if ys[-1] < ys[0] else 'stays'} from {first} to {last}"


def _places(axes: "Axes", line: "Line2D") -> list[str]:
    """Where the points of a line are on the x axis, as its ticks say, else as numbers."""
    ticks = dict(zip(axes.get_xticks(), (text.get_text() for text in axes.get_xticklabels()), strict=False))
    return [ticks.get(x) or f"{x:g}" for x in _numbers(line.get_xdata())]


def _numbers(data: Any) -> list[float]:
    return [float(number) for number in data]


def _one_line(text: str) -> str:
    return " ".join(text.replace("$", "").split())


def _inline(drawn: bytes, name: str, text: str, values: Mapping[str, Sequence[str]]) -> Picture:
    """An SVG file as an element of a page: no background, no ids but those it needs, a title at each value."""
    for prefix, uri in (("", SVG), ("xlink", XLINK)):
        ElementTree.register_namespace(prefix, uri)
    root = ElementTree.fromstring(drawn)
    for kind in ("metadata", "title"):
        for child in root.findall(f"{{{SVG}}}{kind}"):
            root.remove(child)
    for group in root.iter(f"{{{SVG}}}g"):
        for use, value in zip(group.iter(f"{{{SVG}}}use"), values.get(group.get("id", ""), ()), strict=False):
            ElementTree.SubElement(use, f"{{{SVG}}}title").text = value
    needed = {value.strip("#") for node in root.iter() for value in _references(node)}
    for node in root.iter():
        if (id := node.attrib.pop("id", None)) in needed:
            node.set("id", f"{name}-{id}")
        for key, value in node.attrib.items():
            node.set(key, REFERENCE.sub(lambda match: f"{match[0]}{name}-", value))
    (drawing,) = root.findall(f"{{{SVG}}}g")
    drawing.set("id", name)
    thumbnail = Markup('<svg class="thumbnail" viewBox="{}" aria-hidden="true"><use href="#{}"/></svg>')
    thumbnail = thumbnail.format(root.get("viewBox"), name)
    width = float(root.attrib.pop("width").removesuffix("pt"))
    del root.attrib["height"]
    root.attrib |= {"role": "img", "aria-label": text, "style": f"width: {width / SIZE:.1f}rem"}
    element = ElementTree.tostring(root, encoding="unicode")
    # What is as broad as a page can be scrolled on a phone.
    broad = f'<div class="broad" tabindex="0">{element}</div>' if width > BROAD else element
    return Picture(Markup(broad), thumbnail)


def _references(node: ElementTree.Element) -> Iterator[str]:
    """The ids that a node refers to."""
    for value in node.attrib.values():
        yield from re.findall(r"url\(#([^)]+)\)", value)
        if value.startswith("#"):
            yield value[1:]
