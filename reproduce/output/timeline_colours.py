"""The colours and hatches of the passes in timelines, told apart with any colour vision and in grey print."""

from reproduce.output.colours import DARK_PASSES as DARK
from reproduce.output.colours import LIGHT_PASSES as LIGHT

PASSES = {
    "F": "Forward pass",
    "B": "Backward pass",
    "I": "Input gradient",
    "W": "Weight gradient",
    "E": "Embedding",
    "S": "Logits",
    "T": "Logits' gradient",
    "G": "Embedding's gradient",
}
HATCHES = {"W": "////"}


def colour(kind: str, chunk: int, v: int) -> str:
    """The colour of a pass of a chunk: dark for the first, light for the last of v, graded between."""
    share = chunk / (v - 1) if v > 1 else 0.0
    ends = [[int(end[kind][i : i + 2], 16) for i in (1, 3, 5)] for end in (DARK, LIGHT)]
    mixed = [round(dark + share * (light - dark)) for dark, light in zip(*ends, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def luminance(colour: str) -> float:
    """Relative luminance of '#rrggbb', 0 (black) to 1 (white), as the WCAG define it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def text_colour(background: str) -> str:
    """Black or white, whichever has more contrast on `background`."""
    light = luminance(background) + 0.05
    return "white" if 1.05 / light > light / 0.05 else "black"
