"""Sentences of the paper, which are kept as its source has them, as people read them."""

import re

LATEX = (
    (r"~?\\(?:cite|footnote|label)\{[^{}]*\}", ""),
    (r"\\ref\{[^{}]*\}", "…"),
    (r"\\(?:emph|textbf|textit|texttt|text|mathrm)\{([^{}]*)\}", r"\1"),
    (r"\\cdot\b\s*", "· "),
    (r"\\times\b\s*", "×"),
    (r"\\gg\b", "≫"),
    (r"\\S(?![a-z])", "§"),
    (r"\\(?:left|right)\b\s*", ""),
    (r"\\(?:sim|approx)\b\s*", "≈"),
    (r"\\l(?:e|eq)\b\s*", "≤ "),
    (r"([_^])\{([^{}]*)\}", r"\1\2"),
    (r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)"),
    (r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)"),
    (r"\(([\w.^]+|\([^()]*\)[^()+-]*\([^()]*\))\)/", r"\1/"),  # what needs no brackets: 1/v, 8TP/(nX)
    (r"/\((\w'?|t_\w+)\)", r"/\1"),
    (r"\\([%&#$_ ])", r"\1"),
    (r"\$", ""),
    (r"~", " "),
    (r"---?", "–"),
    (r"``|''", '"'),
)


def plain(sentence: str) -> str:
    """A sentence of the paper's source without its LaTeX."""
    for pattern, replacement in LATEX:
        sentence = re.sub(pattern, replacement, sentence)
    return sentence
