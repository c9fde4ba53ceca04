"""`reproduce site`: the page that runs the simulator in a browser, as a folder of static files."""

from argparse import ArgumentParser, Namespace

from reproduce.annex.page.build import SOURCES_FILE, build
from reproduce.annex.page.space import write_space
from reproduce.commands.options import path_to_write
from reproduce.output.terminal import shown_path
from results.records.errors import DONE, UsageError

HELP = """The page draws the paper's figures and tables from simulations made in the browser, beside the published
values, and answers what-if questions. Copy the folder to any file server; `reproduce explore` opens it here.

examples:
  reproduce site --out public
  reproduce site --out public --offline    with Pyodide and the chart library beside it (14 MB, by npm)
  reproduce site --out space --space       as a static Space of Hugging Face
  reproduce site --time                    how long the page makes people wait, in Chromium on this machine

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce site`."""
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=path_to_write, metavar="DIR", help="where to write the page")
    target.add_argument("--time", action="store_true", help="measure the page in a browser (needs Chromium and npm)")
    parser.add_argument("--offline", action="store_true", help="put all that it needs beside it, by npm")
    parser.add_argument("--space", action="store_true", help="add what makes the folder a Hugging Face Space")


def run(parsed: Namespace) -> int:
    """Write the page, and say where it is and how large; or measure it. Raises `UsageError` and `UnavailableError`."""
    if parsed.time:
        from reproduce.annex.page.timing import measure

        print(*measure(), sep="\n")
        return DONE
    if parsed.out.is_file():
        raise UsageError(f"--out {parsed.out} is a file; needs a folder; try --out {parsed.out.with_suffix('')}")
    if not (parsed.out / SOURCES_FILE).is_file() and (others := sorted(path.name for path in parsed.out.glob("*"))):
        raise UsageError(
            f"--out {parsed.out} holds {others[0]}, which is none of ours; needs a new or empty folder, or an earlier "
            f"page; try --out {parsed.out / 'live'}"
        )
    built = build(parsed.out, parsed.offline, snapshot=True)
    if parsed.space:
        write_space(parsed.out)
    print(f"{shown_path(parsed.out / 'index.html')} ({built.size / 1e6:.1f} MB in all)")
    if built.no_snapshot:
        print(f"note: without a snapshot of Python, so the page takes longer to open: {built.no_snapshot}")
    return DONE
