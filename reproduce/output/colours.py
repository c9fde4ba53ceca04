"""All colours, by what they mean: the one place for them (tests/reproduce/output/test_colours.py).

Told apart under simulated deuteranopia and protanopia (tests/reproduce/annex/page/test_colours.py): passes, and the
verdicts with a sign each. Text has a contrast of at least 4.5, what only marks a place one of 3.
"""

# Of the page and the report, what it is for: (light, dark). `build.py` and `report_page.py` write them into these.
COLOURS: dict[str, tuple[str, str]] = {
    "bg": ("#fbfaf7", "#131517"),
    "card": ("#ffffff", "#1a1d20"),
    "sunk": ("#f1efe8", "#24282c"),
    "line": ("#dedad0", "#363b41"),
    "edge": ("#85817a", "#838a92"),
    "ink": ("#1b1d20", "#eceae5"),
    "ink2": ("#575b61", "#adb1b6"),
    "accent": ("#1b5e9b", "#86bbee"),
    "on-accent": ("#ffffff", "#0d1a26"),
    "wash": ("#e6eff8", "#1c2d3e"),
    "fwd": ("#2364a6", "#4a90d9"),
    "fwd2": ("#7fb2e0", "#aed0f1"),
    "bwd": ("#d0771a", "#eb9a45"),
    "bwd2": ("#f0bd80", "#7d5526"),
    "msg": ("#7d57a8", "#b08fd8"),
    "opt": ("#66707a", "#8b949d"),
    "hatch": ("#938e82", "#656b71"),
    "on-fwd": ("#ffffff", "#0b1622"),
    "on-bwd": ("#1b1d20", "#17120b"),
    "on-fwd2": ("#14202b", "#14202b"),
    "on-bwd2": ("#1b1d20", "#eceae5"),
    "on-opt": ("#ffffff", "#131517"),
    "on-msg": ("#ffffff", "#131517"),
    "s1": ("#2b6cb0", "#74b0ee"),
    "s2": ("#b1530d", "#f0a25c"),
    "s3": ("#7d57a8", "#b08fd8"),
    "s4": ("#1d7a66", "#3fae94"),
    "holds": ("#1d7a66", "#3fae94"),
    "open": ("#c9c4b6", "#5a5e60"),
    "self": ("#56317d", "#d6baf2"),
    "contra": ("#bb2d1b", "#f0715c"),
    "on-verdict": ("#ffffff", "#131517"),
}
# Of the report on paper, where it differs.
PRINTED = {
    "bg": "#ffffff",
    "card": "#ffffff",
    "sunk": "#f6f7f9",
    "ink": "#000000",
    "ink2": "#444444",
    "line": "#cccccc",
    "accent": "#000000",
    "holds": "#14683a",
    "contra": "#a31515",
    "self": "#6a2c91",
}
SERIES = (1, 2, 3, 4)
VERDICTS = {"holds": "✓", "open": "?", "self": "≠", "contra": "✕"}  # with their signs
PASSES = ("fwd", "fwd2", "bwd", "bwd2", "msg", "opt")
TEXT = ("ink", "ink2", "accent", "s1", "s2", "s3", "s4", "contra", "holds")  # legible on each surface

# Of pictures, on white. The series are Okabe and Ito's, without the yellow; in this order neighbours differ under every
# colour deficiency.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
BLUE, ORANGE, AMBER = PALETTE[0], PALETTE[1], PALETTE[5]
LIGHT_BLUE, PALE_BLUE = "#7db3e0", "#e8f0f6"
BLACK, WHITE = "#000000", "#ffffff"
MARK, RULE, KEY, NOTE, AXIS = "#222222", "#333333", "#444444", "#555555", "#777777"  # greys of letters and lines
UNSURE, GRID, IDLE, BAND, SHADE, STRIPE = "#d4d4d4", "#dddddd", "#e0e0e0", "#e4e4e4", "#eeeeee", "#f4f4f4"  # of areas
STASHED, DEFERRED = "#4d7c53", "#b5cfa9"
STAGES = ("#cfe3f2", "#f9ddc6")
VERDICT_CELLS = {
    "holds": "#cfe8f6",
    "contradicted": "#f7d9c4",
    "inconclusive": SHADE,
    "not testable here": WHITE,
}
# Of passes in timelines, from the first chunk to the last. A vocabulary that all ranks share has one each: no chunk.
VOCABULARY_PASSES = {"E": "#1b7f5c", "S": "#0f5c43", "T": "#6fbf9b", "G": "#a5d9c3"}
DARK_PASSES = {"F": "#08458c", "B": "#b34700", "I": "#5c1f0a", "W": "#a970ff", **VOCABULARY_PASSES}
LIGHT_PASSES = {"F": LIGHT_BLUE, "B": "#f2a95f", "I": "#b98a72", "W": "#d6b8ff", **VOCABULARY_PASSES}
# Of the documents' theme in the dark, and of a terminal in a picture: background and letters.
DOCUMENTS = {"--md-code-hl-constant-color": "#b3a7ee", "--md-code-hl-number-color": "#f09a90"}
TERMINAL = ("#17212b", "#e6edf3")


def printed() -> str:
    """The custom properties that differ on paper."""
    return "@media print{:root{" + "".join(f"--{name}:{value};" for name, value in PRINTED.items()) + "}}"


def properties() -> str:
    """The colours as custom properties of a style sheet, light, and dark where the reader prefers it."""
    light, dark = ("".join(f"--{name}:{pair[i]};" for name, pair in COLOURS.items()) for i in (0, 1))
    return f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"


def classes() -> str:
    """The classes by which what is drawn has a colour: passes, letters on them, series, and shares by verdict."""
    rules = [f".{name}{{fill:var(--{name})}}" for name in (*PASSES, "sunk")]
    rules += [f"svg text.on-{name}{{fill:var(--on-{name})}}" for name in PASSES]
    rules += [f".s{i}{{stroke:var(--s{i})}}.f{i},svg text.f{i}{{fill:var(--s{i})}}" for i in SERIES]
    rules += [
        f'.p-{name}{{fill:var(--{name})}}.v-{name}{{--v:var(--{name});--g:"{g}"}}' for name, g in VERDICTS.items()
    ]
    return "".join(rules)
