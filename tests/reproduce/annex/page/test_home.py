"""What the page has without a script: every paper on one screen, its claims as cells of the same matrix."""

import re

from reproduce.annex.page import home
from reproduce.experiment import catalog


def test_every_paper_has_a_screen_with_all_its_claims_and_figures():
    marks, everything = home.marks(), home.judged()
    pages = marks["@PAPER_PAGES@"].split("<section")[1:]
    assert len(pages) == len(everything.papers)
    for page, (short, claims) in zip(pages, everything.papers.items(), strict=True):
        name = claims.claims[0].artifact.paper
        assert f'data-paper="{name}"' in page
        assert f"{short}: do its {len(claims.claims)} sentences hold?" in page
        assert page.count("view=figure&amp;artifact=") == len(claims.claims) + len(catalog.ids(name))
        assert f"#view=paper&amp;paper={name}" in marks["@PAPERS@"]
        decided = re.findall(r"(\d+) [a-z' ]+[,.]", re.search(r"Decided are (.*?)\.", page)[0])
        assert sum(map(int, decided)) == sum(number for number, _ in claims.by_what.values())
