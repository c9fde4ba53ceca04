"""A timeline as a picture for LaTeX with TikZ."""

from reproduce.output.timeline import Timeline
from reproduce.output.timeline_colours import colour, text_colour


def tikz(timeline: Timeline) -> str:
    """The timeline as a TikZ picture: a box per pass, coloured as in our figures."""
    boxes = []
    for rank, top, height, box, action in timeline.places:
        shade = colour(box.kind, timeline.chunk_of(action), timeline.v)
        rows = f"{{{rank + top:g}}}{{{rank + top + height:g}}}"
        place = f"{{{float(box.start):g}}}{{{float(box.end):g}}}{rows}"
        look = f"{{{shade.lstrip('#').upper()}}}{{{text_colour(shade)}}}"
        boxes.append(rf"\pass{place}{look}{{{action.microbatch + 1}}}")
    devices = [rf"\node[left] at (0,-{rank}.5) {{Device {rank + 1}}};" for rank in range(timeline.p)]
    return "\n".join(
        [
            rf"% {timeline.schedule}, p={timeline.p}, m={timeline.m}, v={timeline.v}; {timeline.origin}",
            r"% needs \usepackage{tikz}; \pass{start}{end}{top}{bottom}{colour}{colour of the text}{microbatch}",
            r"\begin{tikzpicture}[x=4mm,y=4mm,font=\tiny]",
            r"\newcommand\pass[7]{\definecolor{passcolour}{HTML}{#5}",
            r"  \filldraw[fill=passcolour,draw=white] (#1,-#3) rectangle (#2,-#4) node[midway,text=#6] {#7};}",
            *devices,
            *boxes,
            r"\end{tikzpicture}",
            "",
        ]
    )
