"""`reproduce paper`: a paper of one's own from a CSV file of measurements; nothing of it is simulated."""

import csv
import re
from argparse import ArgumentParser, Namespace
from pathlib import Path

from reproduce.commands import options
from reproduce.experiment import papers
from reproduce.experiment.bounded import PUBLISHED
from reproduce.experiment.told import CLAIMS
from reproduce.output.terminal import shown_path
from results import opening
from results.records import write_files
from results.records.errors import DONE, UsageError

TABLE = "table_1"
NAME = re.compile(r"[a-z][a-z0-9_]*")
EXAMPLE = """system,batch,tokens_per_s,tokens_per_s_published
ours,8,1510,1500
ours,16,2890,2900
ours,32,5120,5200
ours,64,8010,8400
ours,128,10150,11900
baseline,8,1380,1400
baseline,16,2550,2600
baseline,32,4310,4400
baseline,64,6290,6500
baseline,128,7920,8100
"""
CLAIM = """# A claim compares a metric with bounds: docs/adding.md, 'A paper', has all keys.

[[claims]]
id = "{metric}_as_published"
table = "{table}"
sentence = "The {words} are those that were published."
place = "Table 1"
metric = "{metric}"
over = "published"
which = "mean distance from 1 of"
at_most = 0.10
"""
HELP = f"""Makes papers/NAME in the current folder: paper.toml, {CLAIMS} and {TABLE}.csv, a copy of FILE. Columns whose
name ends in _{PUBLISHED} are what a paper printed; those of the same name without it are measured, and every other
column names a row. Without FILE the table is an example of ten numbers. Then edit, and run:

  reproduce all --paper NAME
  reproduce verify --paper NAME
  reproduce report --paper NAME

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce paper`."""
    parser.add_argument("name", metavar="NAME", help="what its ids begin with: small letters, digits, _")
    parser.add_argument("file", metavar="FILE", nargs="?", type=options.path_of, help="a CSV file with a header")


def run(parsed: Namespace) -> int:
    """Write the folder. Raises `UsageError` for a name that is taken or none, and for a file that is no such table."""
    folder = Path(papers.OWN) / parsed.name
    if not NAME.fullmatch(parsed.name):
        raise UsageError(f"NAME {parsed.name!r}; needs small letters, digits and _, a letter first; try my_paper")
    if folder.exists() or any(known.name == parsed.name for known in papers.papers()):
        raise UsageError(f"there is a paper {parsed.name!r} already; needs another name; try {parsed.name}_2")
    text = EXAMPLE if parsed.file is None else _read(parsed.file)
    try:
        rows = list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise UsageError(f"{parsed.file} cannot be read: {error}; needs a CSV file with a header") from None
    files = _files(rows, text, "an example" if parsed.file is None else parsed.file.name)
    folder.mkdir(parents=True)
    write_files(folder, {name: content.encode() for name, content in files.items()})
    papers.read(folder)
    print(f"{shown_path(folder)}: {', '.join(files)}")
    print(f"next: {parsed.program} all --paper {parsed.name}")
    return DONE


def _read(path: Path) -> str:
    try:
        return opening.read_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; needs a CSV file with a header") from None


def _files(rows: list[dict[str, str]], text: str, source: str) -> dict[str, str]:
    """The files of the paper, by name. Raises `UsageError` if no column is published, or none names a row."""
    columns = [column for column in (rows[0] if rows else {}) if column]
    metrics = [column for column in columns if f"{column}_{PUBLISHED}" in columns]
    names = [column for column in columns if column not in metrics and not column.endswith(f"_{PUBLISHED}")]
    if not metrics or not names:
        raise UsageError(
            f"line 1 of {source} has the columns {', '.join(columns) or 'of nothing'}; needs one that names a row, and "
            f"one such as time with time_{PUBLISHED} beside it"
        )
    numeric = [name for name in names if all(row[name].replace(".", "", 1).isdigit() for row in rows)]
    series = next((name for name in names if name not in numeric), None)
    shown = [f'x = "{numeric[-1]}"'] if numeric else []
    shown += [f'series = "{series}"'] if series and numeric else []
    described = "".join(
        f'\n[tables.{TABLE}.metrics.{metric}]\nlabel = "{metric.replace("_", " ")}"\nunit = "{_unit(metric)}"\n'
        for metric in metrics
    )
    paper = "\n".join(
        [
            'title = "Title of the paper"',
            'authors = ["Its authors"]',
            "year = 2024",
            'short = "Short name"',
            'citation = "where it was published"',
            "",
            f"[tables.{TABLE}]",
            f'title = "Numbers of {source}"',
            'label = "Table 1"',
            'section = "1"',
            f'values = "{TABLE}.csv"',
            f"parameters = [{', '.join(map(_quoted, names))}]",
            *shown,
        ]
    )
    claims = CLAIM.format(metric=metrics[0], words=metrics[0].replace("_", " "), table=TABLE)
    return {papers.FILE: f"{paper}\n{described}", CLAIMS: claims, f"{TABLE}.csv": text}


def _quoted(name: str) -> str:
    return f'"{name}"'


def _unit(metric: str) -> str:
    """The base unit that a column's name speaks of, '1' if it does not."""
    for ending, unit in (("tokens_per_s", "tokens/s"), ("_per_s", "1/s"), ("_s", "s"), ("bytes", "B")):
        if metric.endswith(ending):
            return unit
    return "1"
