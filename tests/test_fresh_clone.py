"""What reviewers and newcomers are told to type, in a fresh clone: `make docs`, and `compare` with the reference."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
LEADS_TO = re.compile(r'\s(?:href|src)="([^"#?]*)[^"]*"')
ELSEWHERE = re.compile(r"[a-z]+:|//")  # another scheme or host
MADE_AT_RUN_TIME = "@"  # begins the placeholders in a page's own scripts


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of this checkout with its uncommitted changes, in which importing torch fails."""
    folder = tmp_path_factory.mktemp("fresh") / "clone"
    git = ["git", "-C", str(ROOT)]
    subprocess.run([*git, "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
    changes = subprocess.run([*git, "diff", "--binary", "HEAD"], check=True, capture_output=True).stdout
    if changes:
        subprocess.run(["git", "-C", str(folder), "apply"], input=changes, check=True)
    (folder / "torch.py").write_text('raise ImportError("no torch here", name="torch")\n')
    return folder


def typed(clone, *words):
    """What a command prints in the clone, which it has to end well in."""
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    done = subprocess.run(words, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def dead_links(site):
    """Each link of the site's pages that leads to no file of the site."""
    for page in site.rglob("*.html"):
        for link in set(LEADS_TO.findall(page.read_text(encoding="utf-8"))):
            if not link or ELSEWHERE.match(link) or link.startswith(MADE_AT_RUN_TIME):
                continue
            target = (site / link.lstrip("/")) if link.startswith("/") else page.parent / unquote(link)
            if not (target.is_file() or (target / "index.html").is_file()):
                yield f"{page.relative_to(site)}: {link}"


def test_the_comparison_that_reviewers_are_told_to_type_finds_nothing(clone):
    reproduce = (sys.executable, "-m", "reproduce")
    typed(clone, *reproduce, "fig_bubble", "fig_interleaved", "korthikanti/figure_1")
    said = typed(clone, *reproduce, "compare", "results/reference", "results/runs")
    assert said.endswith("3 experiments in both: 3 the same, 0 differ\n")


def test_the_documentation_is_built_without_a_warning_and_no_link_is_dead(clone):
    """The recipe of `make docs`, with this environment's packages in place of those that it would install."""
    said = typed(clone, "make", "docs", f"RUN={Path(sys.executable).parent}", "INSTALL=:", "SMALL=")
    assert "WARNING -" not in said
    assert list(dead_links(clone / "build" / "site")) == []


@pytest.mark.slow
def test_make_docs_installs_what_it_needs_and_no_torch(clone):
    """From the clone alone, with its own environment; needs a package index."""
    typed(clone, "make", "docs", f"PYTHON={sys.executable}")
    (packages,) = (clone / ".venv" / "lib").glob("python*/site-packages")
    installed = {path.name for path in packages.iterdir()}
    assert "mkdocs" in installed
    assert not installed & {"torch", "triton", "pytest", "hypothesis"}


@pytest.mark.parametrize("word", ["results", "kernels", "nothing"])
def test_make_of_what_is_no_target_says_where_they_are_listed(word):
    """Folders are no targets: make would find them up to date and say nothing of use."""
    done = subprocess.run(("make", word), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"make {word}: there is no such target; make help lists them" in done.stderr
