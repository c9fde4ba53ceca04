"""Judges of claims that are data: what has to hold of named values (`values.py`), and how it is said.

A claim's table says it: `reproduce/papers/sc21/fig_interleaved.toml` is an example. A path such as 'gains.least' names
values, or what `Values` reads off them.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

from reproduce.experiment.bounded import BOUNDS
from reproduce.experiment.claims import Judgement
from reproduce.experiment.papers import NUMBER, check_table, tables_beside
from reproduce.experiment.results import Results, falls, numbers_of, rises
from reproduce.experiment.values import READINGS, Shown, Value, Values
from results.records import Number
from results.records.errors import did_you_mean

VALUES = "values"  # the table that names them
# How values compare with a bound, a number or a path; with values at the same keys each by itself.
COMPARED: dict[str, Callable[[float, float], bool]] = {name: compare for name, (compare, _) in BOUNDS.items()}
COMPARED["equals"] = operator.eq
ORDERED = {"rises": rises, "falls": falls}
# Keys of the tables, and what each is.
VALUE: dict[str, Any] = {"metric": str | list, "per": str | list, "where": dict, "over": object, "own": object}
VALUE |= dict.fromkeys(("along", "of", "by"), str) | {"at": list}
VALUE |= dict.fromkeys(("less", "taken_from", "unit"), NUMBER)
VALUE |= dict.fromkeys(("fits", "inverse", "ordered", "plain", "paper"), bool)
OF_PATHS = dict.fromkeys(("value", "over_value", "at_key"), str)
ASKED: dict[str, Any] = {"value": str, "open": str, "say": list} | dict.fromkeys(ORDERED, bool)
ASKED |= dict.fromkeys(COMPARED, int | float | str)
SHAPED: dict[str, Any] = {"judged": dict | list, "shown": str, "missed": str, "numbers": dict, "unit": str}
SHAPED |= {"origin": str, "inconsistent": bool}


Told = Value | Mapping[str, str]  # of points, or of two paths


class _Scope(dict[str, Any]):
    """What a text may name: values, made when they are asked for; a node's GPUs; parameters of the first point."""

    def __init__(self, values: Mapping[str, Told], results: Results) -> None:
        super().__init__()
        self.told, self.results = values, results

    def __missing__(self, name: str) -> Any:
        if name in self.told:
            told = self.told[name]
            self[name] = told(self.results) if isinstance(told, Value) else self._made_of(told)
        elif name == "gpus_per_node":
            self[name] = self.results.gpus_per_node
        else:
            self[name] = self.results.points[0].parameters[name]
        return self[name]

    def _made_of(self, told: Mapping[str, str]) -> float:
        """A value over another, or that at a key."""
        value = self.at(told["value"])
        if "over_value" in told:
            return float(value / self.at(told["over_value"]))
        return Shown(value[self.at(told["at_key"])], value.unit)

    def at(self, path: str) -> Any:
        """What a path names: 'gains.least'."""
        name, *parts = path.split(".")
        found = self[name]
        for part in parts:
            found = getattr(found, part)
        return found


@dataclass(frozen=True)
class Shaped:
    """The judge of a claim's table.

    - `values`: by name, those of the file
    - `judged`: each a path as `value`, and what has to hold of it: `rises`, `falls`, or a bound of `COMPARED`; with
      `open` a miss is inconclusive, and this says why; `say` are two words of which a text names one: '{say}'. A claim
      that nothing here can test has none
    - `shown`: the explanation, with paths in braces; `missed`: that of a miss, which may name what misses: '{wrong}'
    - `numbers`: paths by the names of the numbers that are kept, in `unit` unless a list says one,
      `["gains.most", "s"]`; of the results' origin or another
    - `inconsistent`: a miss is the paper's own
    """

    values: Mapping[str, Told]
    judged: tuple[Mapping[str, Any], ...]
    shown: str
    missed: str = ""
    numbers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unit: str = "1"
    origin: str = ""
    inconsistent: bool = False

    def __call__(self, results: Results, in_words: bool = True) -> Judgement:
        """The verdict on these results; alone, if not `in_words`. Raises `MissingResultError`."""
        scope = _Scope(self.values, results)
        wrong = [_wrong(scope, row) for row in self.judged]
        missed = [row for row, names in zip(self.judged, wrong, strict=True) if names]
        verdict = "paper inconsistent" if self.inconsistent else "contradicted"
        verdict = "inconclusive" if missed and "open" in missed[0] else verdict if missed else "holds"
        if not in_words:
            return Judgement(verdict, "")
        for row, names in zip(self.judged, wrong, strict=True):
            if "say" in row:
                scope["say"] = row["say"][bool(names)]
        scope["wrong"] = "; ".join(name for names in wrong for name in names)
        text = (self.missed if missed and self.missed else self.shown).format_map(scope)
        text = f"{missed[0]['open']}; {text}" if verdict == "inconclusive" else text
        numbers: dict[str, Number] = {}
        for name, (path, *others) in self.numbers.items():
            unit, origin = (*others, *(self.unit, self.origin or results.fidelity)[len(others) :])
            numbers |= numbers_of(origin, unit, **{name: scope.at(path)})
        return Judgement(verdict, text, numbers)


def _wrong(scope: _Scope, row: Mapping[str, Any]) -> list[str]:
    """The names of what is not as a row asks."""
    values = scope.at(row["value"])
    if not isinstance(values, Values):
        values = Values({row["value"]: values})
    wrong = []
    for name, bound in row.items():
        if name in ORDERED:
            lines = values.named if values.of_lines else {row["value"]: values}
            wrong += [which for which, line in lines.items() if not ORDERED[name](line)]
        elif name in COMPARED:
            limit = scope.at(bound) if isinstance(bound, str) else bound
            limits = limit.flat if isinstance(limit, Values) else dict.fromkeys(values.flat, limit)
            wrong += [
                str(x) for x, value in values.flat.items() if x in limits and not COMPARED[name](value, limits[x])
            ]
    return wrong


@cache
def _values_in(path: Path) -> Mapping[str, Told]:
    """The values that a TOML file names. Raises `PaperError` or ValueError."""
    values: dict[str, Told] = {}
    for name, told in tables_beside(path).get(VALUES, {}).items():
        of_paths = "value" in told
        place = (VALUES, name)
        check_table(path, told, OF_PATHS if of_paths else VALUE, () if of_paths else ("metric",), place=place)
        values[name] = told if of_paths else Value(**told)
    for made in values.values():
        for part in () if isinstance(made, Value) else made.values():
            _check_path(part, values, or_parameter=False)
    return values


def judge_of(path: Path, name: str, row: dict[str, Any]) -> Shaped:
    """The judge that a claim's table is, whose keys are taken from the row. Raises `PaperError` or ValueError."""
    values = _values_in(path)
    said = {key: row.pop(key) for key in SHAPED if key in row}
    check_table(path, said, SHAPED, ("shown",), place=(name,))
    judged = said.get("judged", [])
    rows = judged if isinstance(judged, list) else [judged]
    texts: dict[str, Any] = {key: " ".join(said[key].split()) for key in ("shown", "missed") if key in said}
    for asked in rows:
        check_table(path, asked, ASKED, ("value",), place=(name, "judged"))
        _check_path(asked["value"], values, or_parameter=False)
    paths = [asked[key] for asked in rows for key in COMPARED if isinstance(asked.get(key), str)]
    numbers = {key: [kept] if isinstance(kept, str) else kept for key, kept in said.get("numbers", {}).items()}
    paths += [kept[0] for kept in numbers.values()]
    paths += [path for text in texts.values() for _, path, _, _ in Formatter().parse(text) if path]
    for path_to in paths:
        _check_path(path_to, values)
    all_told: dict[str, Any] = {**said, **texts, "judged": tuple(rows), "numbers": numbers}
    return Shaped(values, **all_told)


def _check_path(path: str, values: Mapping[str, Told], or_parameter: bool = True) -> None:
    """Raise ValueError for a path that names nothing; a word alone may be a parameter's name."""
    name, *parts = path.split(".")
    if name not in values and (parts or not or_parameter):
        raise ValueError(f"no value {name!r}; needs one of [{VALUES}]{did_you_mean(name, tuple(values))}")
    for part in parts:
        if part not in READINGS:
            raise ValueError(f"{part!r} of {path!r}; needs one of {', '.join(READINGS)}{did_you_mean(part, READINGS)}")
