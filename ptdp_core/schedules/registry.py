"""The schedules by name: those of `ptdp_core/schedules/zoo`, those of files, and those that a program registers."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from ptdp_core.errors import ConfigurationError
from ptdp_core.schedules import zoo
from ptdp_core.schedules.actions import Schedule
from ptdp_core.schedules.definition import Definition, of_table
from ptdp_core.schedules.files import PYTHON, TABLES, execute_definition, read_definition
from ptdp_core.schedules.vocabulary import SEPARATOR, with_vocabulary

_ZOO = [import_module(f"{zoo.__name__}.{module.name}").SCHEDULE for module in iter_modules(zoo.__path__)]
# Oldest first: the order in which they are listed everywhere.
DEFINITIONS: dict[str, Definition] = {
    schedule.name: schedule for schedule in sorted(_ZOO, key=lambda item: (item.year, item.name))
}

# Schedules in two directions, which hold each stage on two ranks: no placement here does. What to try in place of each.
TWO_DIRECTIONS = {
    "dualpipe": "'dualpipev' with half of p, v=2 and twice d, the same stages and passes on every GPU",
    "chimera": "'interleaved'",
}


def register(schedule: Definition) -> None:
    """Make a schedule known by its name in this process."""
    DEFINITIONS[schedule.name] = schedule
    build.cache_clear()


def register_table(table: Schedule) -> Definition:
    """Make one table known by its name, in this process: a schedule that exists for the table's own p, m and v only."""
    schedule = of_table(table)
    register(schedule)
    return schedule


def names() -> tuple[str, ...]:
    """The names of all schedules."""
    return tuple(DEFINITIONS)


def default_schedule(v: int) -> str:
    """The paper's schedule for v model chunks per rank."""
    return "1f1b" if v == 1 else "interleaved"


def definition(name: str) -> Definition:
    """The schedule of that name, or of that table (`files.py`), with `+` and a method also sharing the vocabulary.

    Raises `ConfigurationError` if there is none.

    The name may come from data: a Python file is not executed here, and is known only after `named_by_user`.
    """
    if isinstance(name, str) and name in DEFINITIONS:
        return DEFINITIONS[name]
    if isinstance(name, str) and name.endswith(TABLES):
        register(_of_file(read_definition, name))
    if isinstance(name, str) and name.endswith(PYTHON):
        raise ConfigurationError(
            f"schedule={name!r} is Python, which is executed only where the command line names it; needs --schedule "
            f"{name}, or a table; try reproduce schedule {name} --export torch, and the schedule.csv that it writes"
        )
    if isinstance(name, str) and name not in DEFINITIONS and SEPARATOR in name:
        return _shared(name)
    if isinstance(name, str) and (instead := TWO_DIRECTIONS.get(name.lower())):
        raise ConfigurationError(
            f"schedule={name!r} is unknown here: it runs in two directions, with each stage on two ranks; needs one "
            f"with each stage on one rank; try schedule={instead}"
        )
    if not isinstance(name, str) or name not in DEFINITIONS:
        (nearest,) = get_close_matches(str(name), names(), n=1) or names()[:1]
        raise ConfigurationError(
            f"schedule={name!r} is unknown; needs one of {', '.join(DEFINITIONS)}, or a file that ends in "
            f"{', '.join(TABLES)}; try schedule={nearest!r}"
        )
    return DEFINITIONS[name]


def _shared(name: str) -> Definition:
    """The schedule of a name such as `1f1b+vocab-1`: a schedule, and how all ranks share the vocabulary."""
    schedule, _, method = name.partition(SEPARATOR)
    try:
        return with_vocabulary(definition(schedule), method)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def named_by_user(name: str) -> Definition:
    """The schedule that a command line names: as `definition`, but a Python file is executed.

    This process knows the file's schedule from then on, wherever its name stands.
    """
    if name not in DEFINITIONS and name.endswith(PYTHON):
        register(_of_file(execute_definition, name))
    return definition(name)


def _of_file(read: Callable[[str], Definition], name: str) -> Definition:
    """What `read` makes of a file. What is wrong is said there, perhaps by the file's code; here it gets its class."""
    try:
        return read(name)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def check_schedule(name: str, p: int, m: int, v: int) -> None:
    """Raise `ConfigurationError` unless the schedule exists for p ranks, m microbatches and v chunks (Section 2.2)."""
    schedule, (least, most) = definition(name), definition(name).chunks
    for field, value in (("p", p), ("m", m), ("v", v)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigurationError(
                f"{field}={value!r} is not a positive whole number; needs {field} >= 1; try {field}=1"
            )
    if not schedule.has_chunks(v):
        needs = f"v >= {least}" if v < least else f"v <= {most}" if most != least else f"v={most}"
        raise ConfigurationError(
            f"v={v} with schedule={name!r}; needs {needs} model chunks per device; "
            f"try v={least}, or schedule={default_schedule(v)!r}"
        )
    problem = schedule.problem(p, m, v)
    if problem:
        raise ConfigurationError(problem)


def exists(name: str, p: int, m: int, v: int) -> bool:
    """Whether the schedule exists for p ranks, m microbatches and v chunks."""
    schedule = definition(name)
    return schedule.has_chunks(v) and not schedule.problem(p, m, v)


@lru_cache(maxsize=128)
def build(name: str, p: int, m: int, v: int = 1) -> Schedule:
    """The schedule of that name for p ranks, m microbatches and v chunks (Section 2.2).

    Raises `ConfigurationError` where it does not exist. The same arguments give the same object.
    """
    check_schedule(name, p, m, v)
    return definition(name).table(p, m, v)
