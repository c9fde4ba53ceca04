"""Which part of the project may import which: `LEVELS` from the ground up, and no circles anywhere.

A room is a package or a module of the top level of one of the four packages. A module may import its own room and the
rooms of the levels below, wherever the import stands: at the top, inside a function, or under `TYPE_CHECKING`. Rooms of
one level do not know each other.
"""

import ast
import functools
from pathlib import Path

import pytest

from reproduce.annex import ANNEXES

ROOT = Path(__file__).parents[1]
PACKAGES = ("results", "kernels", "ptdp_core", "benchmarks", "reproduce", "ptdp")
LEVELS = (
    ("results",),
    ("results.opening", "results.visible"),
    ("results.records",),
    ("kernels",),
    ("ptdp_core", "ptdp_core.errors", "ptdp_core.interrupts", "ptdp_core.packages", "ptdp_core.turns"),
    ("ptdp_core.fields", "ptdp_core.pipeline_layout"),
    ("ptdp_core.schedules",),  # tables of actions: a configuration asks them for its schedule
    ("ptdp_core.config",),
    ("ptdp_core.layers",),
    ("ptdp_core.formulas",),
    ("ptdp_core.layout",),
    ("ptdp_core.simulator", "ptdp_core.engine"),
    ("ptdp_core.launch",),
    ("benchmarks",),
    ("benchmarks.harness",),
    ("benchmarks.gated",),
    ("reproduce",),
    ("reproduce.annex",),  # its registry alone: an annex is imported by name
    ("reproduce.experiment",),
    ("reproduce.output",),
    ("reproduce.papers",),
    ("reproduce.running",),
    ("reproduce.planning",),
    ("reproduce.interface",),
    ("reproduce.commands",),
    tuple(f"reproduce.annex.{annex}" for annex in ANNEXES),
    ("reproduce.cli",),
    ("reproduce.__main__",),
    ("ptdp",),
    ("ptdp.__main__", "ptdp.train", "ptdp.pytest_gate"),
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# `reproduce.run` and the other names of the interface are imported when somebody asks the package for one of them.
ALLOWED = {
    ("reproduce", "reproduce.interface"),
    # A timeline of version 1 has its passes in the order of the point's schedule, which only the schedule tells.
    ("results.records.version_1", "ptdp_core.config"),
    ("results.records.version_1", "ptdp_core.schedules"),
}


def modules(root):
    """The modules of our packages by their dotted names."""
    named = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            named[".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")] = path
    return named


@functools.cache
def import_statements(path):
    """All of a file, wherever they stand."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(name, path, known):
    """The modules of ours that a module imports, anywhere in it, and the line."""
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            assert not node.level, f"{path}, line {node.lineno}: a relative import; write the whole name"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [target if target in known else str(node.module) for target in whole]
        for target in targets:
            if target in known and target != name:
                yield target, node.lineno


def room_of(module):
    """The room that a module is in."""
    package, *rest = module.split(".")
    deep = 2 if rest[:1] == ["annex"] else 1
    return package if package == "kernels" else ".".join([package, *rest[:deep]])


def upward_imports(root):
    """What imports a room that is not below its own, in sentences."""
    known = modules(root)
    wrong = []
    for name, path in known.items():
        room = room_of(name)
        if room not in LEVEL:
            wrong.append(f"{path.relative_to(root)}: room {room} has no place in LEVELS")
            continue
        for target, line in imports(name, path, known):
            other = room_of(target)
            if other != room and LEVEL.get(other, 0) >= LEVEL[room] and (name, target) not in ALLOWED:
                wrong.append(
                    f"{path.relative_to(root)}, line {line}: {room} imports {target}, but {other} is not below {room}; "
                    "move what is needed down, or its user up"
                )
    return list(dict.fromkeys(wrong))


def circles(root):
    """The groups of modules that import each other, directly or through others (Tarjan's algorithm)."""
    known = modules(root)
    graph = {
        name: [target for target, _ in imports(name, path, known) if (name, target) not in ALLOWED]
        for name, path in known.items()
    }
    number = {}
    lowest = {}
    stack = []
    cycles = []

    def visit(name):
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for target in graph[name]:
            if target not in number:
                visit(target)
            if target in stack:
                lowest[name] = min(lowest[name], lowest[target])
        if lowest[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                cycles.append(sorted(group))

    for name in graph:
        if name not in number:
            visit(name)
    return cycles


def test_rooms_import_only_what_stands_below_them():
    wrong = upward_imports(ROOT)
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other():
    assert not circles(ROOT), "these modules form a circle: " + "; ".join(", ".join(group) for group in circles(ROOT))


def test_a_class_has_its_name_alone():
    """But for the `Record` that `import reproduce` offers: a record of the lowest room that can draw itself, too."""
    homes = {}
    for module, path in modules(ROOT).items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    shared = {name: at for name, at in homes.items() if len(at) > 1}
    assert shared == {"Record": ["results.records.record", "reproduce.interface"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import reproduce.cli", "reproduce.cli"),
        ("from reproduce import cli", "reproduce.cli"),
        ("def late():\n    from reproduce.cli import main", "reproduce.cli"),
        ("if TYPE_CHECKING:\n    from reproduce.commands.run import run", "reproduce.commands"),
    ],
)
def test_an_upward_import_is_found_wherever_it_stands(tmp_path, text, expected):
    for name, content in {"cli": "", "commands/run": "", "output/table": text}.items():
        path = tmp_path / "reproduce" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    [violation] = upward_imports(tmp_path)
    assert violation.startswith("reproduce/output/table.py, line")
    assert f"but {expected} is not below reproduce.output" in violation


def test_a_circle_and_a_room_without_a_place_are_found(tmp_path):
    for name, content in {"a": "from kernels import b", "b": "def late():\n    import kernels.a"}.items():
        (tmp_path / "kernels").mkdir(exist_ok=True)
        (tmp_path / "kernels" / f"{name}.py").write_text(content)
    assert circles(tmp_path) == [["kernels.a", "kernels.b"]]
    (tmp_path / "reproduce").mkdir()
    (tmp_path / "reproduce" / "attic.py").write_text("")
    assert upward_imports(tmp_path) == ["reproduce/attic.py: room reproduce.attic has no place in LEVELS"]


@pytest.mark.parametrize(
    ("room", "forbidden"), [("ptdp_core/simulator", ("torch",)), ("ptdp_core/schedules", ("torch", "numpy"))]
)
def test_what_runs_without_torch_does_not_import_it(room, forbidden):
    for path in (ROOT / room).rglob("*.py"):
        for node in import_statements(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            assert not [name for name in names if name.split(".")[0] in forbidden], path
