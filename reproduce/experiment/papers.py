"""What a paper is: a folder with `paper.toml`, its published values, its claims, and modules of figures and tables.

The first paper's folder is in `reproduce/papers/`, the others' in an annex, `reproduce/annex/papers/`; one's own are in
`papers/` of the current folder. A paper that cannot be read is left out, and `broken` says why: the others go on.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from reproduce.annex import require
from results import opening
from results.records.errors import UsageError, did_you_mean
from results.visible import has_control, visible

FOLDER = Path(__file__).parents[1] / "papers"
ANNEX = Path(__file__).parents[1] / "annex" / "papers"
OWN = "papers"  # the folder, in the current one, of papers that are not this project's
FILE = "paper.toml"
FIRST = "sc21"  # the paper whose ids and labels need no name of a paper
_KINDS: dict[str, Any] = {"title": str, "authors": list, "year": int, "short": str, "citation": str, "cluster": str}
_KINDS |= {"plain_ids": list, "ours": bool, "paraphrased": bool, "configuration": dict, "tables": dict}
NEEDED = ("title", "authors", "year", "short", "citation")
SCALAR = int | float | str  # true and false are whole numbers
NUMBER = int | float
_WORDS: dict[Any, str] = {str: "a text in quotes", list: "a list", int: "a whole number", bool: "true or false"}
_WORDS |= {dict: "a table", NUMBER: "a number", SCALAR: "a number, a text in quotes, true or false"}
_WORDS |= {str | list: "a text in quotes, or a list of them", dict | str: "a table, or a text in quotes"}
_WORDS |= {NUMBER | list: "a number, or a list of two", dict | list: "a table, or a list of them"}
BEGINS_OF_KEY = (r"^[ \t]*\[*(?:[\w.]+\.)?", r"[{,][ \t]*")
END_OF_KEY = r"(?:\.[\w.]+)?[ \t]*[=\]]"


class PaperError(UsageError):
    """A file of a paper is wrong: which one, in which line, and what would be right."""

    def __init__(self, path: Path, line: int, text: str) -> None:
        super().__init__(f"{path}, line {line}: {text}")


@dataclass(frozen=True, eq=False)
class Paper:
    """A paper, as its `paper.toml` describes it.

    - `name`: its folder's name, which the ids of its figures and tables begin with: 'zerobubble/table_4'
    - `title`, `authors`, `year`, `citation`; `short`: what tables call it
    - `cluster`: where its values were measured, which is what is simulated unless another one is asked for
    - `configuration`: what all its runs share
    - `plain_ids`: patterns of the ids that do without the paper's name
    - `ours`: whether it is no paper, but what this project adds
    - `paraphrased`: whether the sentences that are judged here are not quoted from it, but said in other words
    - `tables`: those of its tables whose values are in a CSV file and that need no module
    """

    name: str
    folder: Path
    title: str
    authors: tuple[str, ...]
    year: int
    short: str
    citation: str
    cluster: str = "selene"
    configuration: Mapping[str, Any] = field(default_factory=dict)
    plain_ids: tuple[str, ...] = ()
    ours: bool = False
    paraphrased: bool = False
    tables: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its figures and tables, without the paper's."""
        modules = (path.stem for path in self.folder.glob("*.py") if not path.stem.startswith("_"))
        return (*modules, *self.tables)

    def id_of(self, name: str) -> str:
        """The id of its figure or table of that name."""
        plain = any(fnmatchcase(name, pattern) for pattern in self.plain_ids)
        return name if plain else f"{self.name}/{name}"


def papers() -> tuple[Paper, ...]:
    """All that can be read, by year; what is ours comes last."""
    return _read_all(_folders())[0]


def broken() -> tuple[str, ...]:
    """A line for each paper that cannot be read."""
    return _read_all(_folders())[1]


def paper(name: str) -> Paper:
    """The paper of that name.

    Raises `UsageError` if there is none, or if it cannot be read, and `UnavailableError` without the annex of papers.
    """
    for known in papers():
        if known.name == name:
            return known
    for folder in _folders():
        if folder.name == name:
            return read(folder)
    require(ANNEX.name)
    names = [known.name for known in papers()]
    raise UsageError(f"unknown paper {name!r}; needs one of {', '.join(names)}{did_you_mean(name, names)}")


def read(folder: Path) -> Paper:
    """The paper in a folder. Raises `PaperError` that names file, line and what is expected."""
    path = folder / FILE
    data = read_toml(path)
    check_table(path, data, _KINDS, NEEDED)
    frozen: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return Paper(folder.name, folder, **frozen)


def check_table(
    path: Path,
    table: Any,
    kinds: Mapping[str, Any],
    needed: Collection[str] = (),
    parameters: Collection[str] = (),
    place: tuple[str, ...] = (),
    first: int = 1,
) -> None:
    """Raise `PaperError`, at its line, for a key that is none of these or of another kind, or that is needed.

    `place` are the keys above those of the table, and `first` is the line from which on they stand.
    """
    at, text = place, ""
    if not isinstance(table, dict):
        table, text = {}, f"{table!r} as {place[-1]}; needs a table"
    elif missing := [key for key in needed if not table.get(key)]:
        text = f"lacks {', '.join(missing)}; needs {', '.join(needed)}"
    for key, value in table.items():
        kind = kinds.get(key, SCALAR if key in parameters else None)
        if kind is None:
            further = " or a parameter (reproduce simulate --schema)" if parameters else ""
            near = did_you_mean(key, (*kinds, *parameters))
            text = f"unknown key {key!r}; needs one of {', '.join(kinds)}{further}{near}"
        elif not isinstance(value, kind) or (kind in (int, NUMBER) and isinstance(value, bool)):
            text = f"{key} = {value!r}; needs {_WORDS[kind]}"
        else:
            continue
        at = (*place, key)
        break
    if text:
        raise PaperError(path, line_of(path, *at, first=first), text)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file. Raises `PaperError` that names the line, if it is none."""
    import tomllib  # which takes a while

    try:
        data = tomllib.loads(text := opening.read_text(path, opening.TOML, within=path.parent))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise PaperError(path, line, f"{str(error).partition(' (at')[0]}; needs TOML, such as year = 2024") from None
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise PaperError(path, 1, f"cannot be read: {error}; needs a text file") from None
    for key, value in data.items():
        if has_control((key, value)):
            raise PaperError(path, line_of(path, key), f"{visible(key)} has control characters; needs plain text")
    return data


@cache
def tables_beside(path: Path) -> dict[str, Any]:
    """The tables of the TOML file beside a module, read once. Raises `PaperError`."""
    return read_toml(path)


def line_of(path: Path, *keys: str, first: int = 1) -> int:
    """The line in which the last of these keys of a TOML file stands, each after the one before it, from `first` on.

    A key stands as `key =` or `[key]` at the beginning of a line, or inside braces. The line of one that stands nowhere
    is that of the key before it.
    """
    text = opening.read_text(path, opening.TOML)
    place = len("".join(text.splitlines(keepends=True)[: first - 1]))
    for depth, key in enumerate(keys):
        ways = [rf"{begin}[\"']?(?P<key>{re.escape(key)})[\"']?{END_OF_KEY}" for begin in BEGINS_OF_KEY]
        found = [match.start("key") for way in ways if (match := re.compile(way, re.MULTILINE).search(text, place))]
        if found:  # inside of another key the nearest, else what begins a line
            place = min(found) if depth else found[0]
    return text.count("\n", 0, place) + 1


def _folders() -> tuple[Path, ...]:
    """The folders of all papers: this project's, then one's own."""
    return (*_ours(FOLDER, ANNEX), *_in(Path.cwd() / OWN))


@cache
def _ours(*roots: Path) -> tuple[Path, ...]:
    """The folders of this project's papers. They do not change while a program runs, and every point asks for them."""
    return tuple(folder for root in roots for folder in _in(root))


def _in(root: Path) -> tuple[Path, ...]:
    return tuple(path.parent for path in sorted(root.glob(f"*/{FILE}")))


@cache
def _read_all(folders: tuple[Path, ...]) -> tuple[tuple[Paper, ...], tuple[str, ...]]:
    found: dict[str, Paper] = {}
    problems = []
    for folder in folders:
        try:
            if folder.name in found:
                raise PaperError(folder / FILE, 1, f"there is a paper {folder.name!r} already; needs another name")
            found[folder.name] = read(folder)
        except PaperError as error:
            problems.append(str(error))
    return tuple(sorted(found.values(), key=lambda known: (known.ours, known.year, known.name))), tuple(problems)
