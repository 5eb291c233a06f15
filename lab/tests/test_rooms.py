# SPDX-License-Identifier: GPL-2.0-only
"""The rooms of the lab: who uses whom, and that docs/internals/architecture.md shows them so."""

import ast
import sys
import unittest
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from lab.paths import REPO

LAB = REPO / "lab"
TOP = "top"
"""The files of lab/ itself."""
FRONT = "__main__"
"""The command line, which hands over to all."""
ROOMS = (TOP, "report", "kernel", "vm", "deb", "tlb", "bench", "demo", "cost", "checks", FRONT)
"""From the one that uses nobody to the one that uses all."""


def room_of(path: Path) -> str:
    """The room that a file below lab/ is in."""
    parts = path.relative_to(LAB).parts
    return parts[0] if len(parts) > 1 else FRONT if path.stem == FRONT else TOP


def files() -> list[Path]:
    """Every Python file of the lab but the tests, which use all."""
    return sorted(path for path in LAB.rglob("*.py") if room_of(path) != "tests")


def imported(text: str) -> Iterator[str]:
    """What a file imports of the lab, wherever it does: at its top, in a function, for types only."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = ["." * node.level] if node.level else [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        yield from (name for name in names if name.split(".")[0] in ("lab", ""))


def foreign(text: str) -> set[str]:
    """What a file imports of neither the lab nor Python's library."""
    modules = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.append(node.module)
        elif isinstance(node, ast.Import):
            modules += [one.name for one in node.names]
    return {name.partition(".")[0] for name in modules} - {"lab"} - sys.stdlib_module_names


def used(name: str) -> str:
    """The room of an imported name; empty for an import that does not say which."""
    first = name.partition(".")[2].partition(".")[0]
    return first if (LAB / first).is_dir() else FRONT if first == FRONT else TOP


def wrong(room: str, text: str) -> list[str]:
    """What is wrong with the imports of a file in `room`."""
    own = ROOMS.index(room)
    found = [(name, used(name)) for name in imported(text)]
    return [
        f"{room} uses {name}"
        for name, other in found
        if not name.startswith("lab.") or other not in ROOMS or ROOMS.index(other) > own
    ]


def name_of(path: Path) -> str:
    """As it is imported."""
    parts = path.relative_to(REPO).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _AtRun(ast.NodeTransformer):
    """Leaves out what is imported for the types alone: it is not there when the program runs. A case says what is read
    of its runs, and a run says of which case it is."""

    def visit_If(self, node: ast.If) -> ast.AST:
        return ast.Pass() if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


def uses(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Each module and those that it imports, of modules by their texts."""
    found: dict[str, set[str]] = {}
    for module, text in modules.items():
        names = imported(ast.unparse(_AtRun().visit(ast.parse(text))))
        # What is imported is a module, or something of one.
        whole = (name if name in modules else name.rpartition(".")[0] for name in names)
        found[module] = {name for name in whole if name in modules and name != module}
    return found


def circle(used_by: Mapping[str, set[str]]) -> list[str]:
    """Modules that use each other, if there are any."""
    try:
        TopologicalSorter(used_by).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


class RoomsTest(unittest.TestCase):
    def test_no_module_uses_one_that_uses_it(self) -> None:
        found = uses({name_of(path): path.read_text(encoding="utf-8") for path in files()})
        self.assertEqual(circle(found), [])
        self.assertGreater(sum(map(len, found.values())), 500)

    def test_a_circle_is_found(self) -> None:
        one = {"lab.a": "from lab import b", "lab.b": "def f():\n    from lab.c.d import x", "lab.c.d": "import lab.a"}
        self.assertEqual(set(circle(uses(one))), set(one))
        types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lab import a"
        self.assertEqual(circle(uses({"lab.a": "from lab.b import x", "lab.b": types})), [])

    def test_a_room_uses_those_before_it(self) -> None:
        problems, seen = [], 0
        for path in files():
            text = path.read_text(encoding="utf-8")
            seen += len(list(imported(text)))
            problems += [f"{path.relative_to(REPO)}: {problem}" for problem in wrong(room_of(path), text)]
        self.assertEqual(problems, [])
        self.assertGreater(seen, 500)

    def test_nothing_is_needed_but_python(self) -> None:
        found = {path: foreign(path.read_text(encoding="utf-8")) for path in LAB.rglob("*.py")}
        self.assertEqual({path: names for path, names in found.items() if names}, {})
        text = "def f():\n    import yaml.nodes\nfrom pytest import mark\nimport os\nfrom lab import proc"
        self.assertEqual(foreign(text), {"yaml", "pytest"})

    def test_each_is_named(self) -> None:
        self.assertEqual({room_of(path) for path in files()}, set(ROOMS))

    def test_what_points_the_other_way_is_found(self) -> None:
        self.assertEqual(wrong("vm", "from lab.kernel import build\nfrom lab import proc\nimport os"), [])
        self.assertEqual(wrong("kernel", "from lab import vm"), ["kernel uses lab.vm"])
        self.assertEqual(
            wrong("kernel", "def f():\n    from lab.vm.qemu import Mode"), ["kernel uses lab.vm.qemu.Mode"]
        )
        self.assertEqual(wrong(TOP, "import lab.report.svg"), [f"{TOP} uses lab.report.svg"])
        self.assertEqual(wrong("checks", "from lab import __main__"), ["checks uses lab.__main__"])
        self.assertEqual(wrong("demo", "from lab.tests.bench_runs import one"), ["demo uses lab.tests.bench_runs.one"])
        # Which room it is would have to be worked out.
        self.assertEqual(wrong("demo", "from . import cells"), ["demo uses ."])
        self.assertEqual(wrong("demo", "import lab"), ["demo uses lab"])

    def test_the_picture_names_the_rooms_in_their_order(self) -> None:
        page = (REPO / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
        named = ROOMS[1:-1]
        self.assertIn(" < ".join(named), page)
        _, _, picture = page.partition("\n lab/ ")
        picture, _, _ = picture.partition("```")
        places = [picture.find(f" {room}  ") for room in named]
        self.assertNotIn(-1, places)
        self.assertEqual(places, sorted(places))
