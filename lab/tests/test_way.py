# SPDX-License-Identifier: GPL-2.0-only
"""bpf/ as docs/internals/architecture.md draws it, against the sources: a page fault's way, and what includes what."""

import re
import unittest
from pathlib import Path
from posixpath import dirname, normpath

from lab.paths import REPO
from lab.tests.test_rooms import circle

BPF = REPO / "bpf"
PAGE = REPO / "docs" / "internals" / "architecture.md"
USES = {
    "mthp_choose": ("mthp_answer_for",),
    "mthp_answer_for": (
        "mthp_adopt",
        "mthp_answer_without_state",
        "mthp_profile_of",
        "mthp_governed",
        "mthp_sample",
        "mthp_kept_facts",
        "mthp_decide",
        "mthp_walk_for_request",
        "mthp_passes_all",
        "mthp_count",
        "mthp_wanted",
        "mthp_report",
        "mthp_allow",
    ),
    "mthp_answer_without_state": ("mthp_new_facts", "mthp_decide"),
    "mthp_decide": ("mthp_governed", "mthp_refusal", "mthp_cap"),
    "mthp_report": ("mthp_decide",),
    "mthp_explain": ("mthp_decide",),
}
"""What the arrows say: a function -> those that it uses, itself or by others."""
RULES = (
    "mthp_governed",
    "mthp_wanted",
    "mthp_pressed",
    "mthp_small",
    "mthp_sparse",
    "mthp_refusal",
    "mthp_room_orders",
    "mthp_cap",
    "mthp_leave",
)
"""What mthp_decide() composes, and nobody else."""
ASKED = {
    ("mthp_answer_for", "mthp_governed"),
    ("mthp_answer_for", "mthp_wanted"),
    ("mthp_join_pud", "mthp_leave"),
}
"""But a request asks these two by itself: nothing is looked up for what no rule binds, and what is reported is the
decision for those who do not advise. And what is decided about 1 GiB is joined with the rest."""
IN_ORDER = ("mthp_answer_for", "mthp_decide")
"""Functions whose steps the picture has in the order of their code."""
_NAME = re.compile(r"\bmthp_\w+")
_STEP = re.compile(r"^[ |]*(mthp_\w+)", re.MULTILINE)
"""The function that a line of the picture begins with."""
_PASSED = (re.compile(r"\broom\("), "mthp_walk_for_request(")
"""mthp_decide() has the walk from its caller."""
# The kernel's style: a definition begins in the first column, its body ends with a brace there.
_FUNCTION = re.compile(
    r"^(?:[a-z_][\w \t*]*\b(mthp_\w+)\(|unsigned long BPF_PROG\((mthp_\w+),)[^;{]*\)\n\{\n(.*?)^\}", re.M | re.S
)


def functions(sources: dict[str, str]) -> dict[str, tuple[str, list[str]]]:
    """Function -> its file, and the names that its body uses, in the order in which they come."""
    found = {}
    for name, text in sources.items():
        for one in _FUNCTION.finditer(re.sub(r"/\*.*?\*/", "", text, flags=re.S)):
            body = _PASSED[0].sub(_PASSED[1], one[3]) if one[1] == "mthp_decide" else one[3]
            found[one[1] or one[2]] = (name, list(dict.fromkeys(_NAME.findall(body))))
    return found


def reached(known: dict[str, tuple[str, list[str]]], start: str) -> set[str]:
    """The functions that one uses, itself or by others."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = {name for name in known[todo.pop()][1] if name in known} - seen
        seen |= new
        todo += new
    return seen


def out_of_order(picture: str, known: dict[str, tuple[str, list[str]]]) -> list[str]:
    """Where the steps of a function come in another order than in its code."""
    drawn = list(dict.fromkeys(_STEP.findall(picture)))
    wrong = []
    for name in IN_ORDER:
        code = [step for step in known[name][1] if step in drawn and step != name]
        for here, there in zip([step for step in drawn if step in code], code, strict=True):
            if here != there:
                wrong.append(f"{name} has {there} where {here} is drawn")
                break
    return wrong


def differences(picture: str, known: dict[str, tuple[str, list[str]]]) -> list[str]:
    """Where the picture and the sources differ."""
    wrong = [
        f"{name} is not in {path}"
        for name, path in re.findall(r"(mthp_\w+) +(bpf/\S+)", picture)
        if known.get(name, ("", []))[0] != path
    ]
    drawn = set(re.findall(r"(?<!struct )\bmthp_\w+", picture))
    arrows = set(USES) | {name for names in USES.values() for name in names}
    wrong += [f"{name}: drawn without an arrow, or the other way round" for name in sorted(drawn ^ arrows)]
    wrong += [
        f"{name} does not use {other}"
        for name, others in USES.items()
        for other in others
        if name not in known or other not in reached(known, name)
    ]
    wrong += [
        f"{name} uses {rule}"
        for name, (path, used) in sorted(known.items())
        for rule in RULES
        if rule in used and path != "bpf/decide.h" and (name, rule) not in ASKED
    ]
    return wrong + out_of_order(picture, known)


def sources() -> dict[str, str]:
    """Every file of bpf/ by its path in the repository."""
    paths = [path for path in BPF.rglob("*") if path.suffix in (".h", ".c")]
    return {str(path.relative_to(REPO)): path.read_text(encoding="utf-8") for path in paths}


def parts(page: str) -> list[list[str]]:
    """Files of bpf/ as the table of its parts has them, row by row."""
    rows = re.findall(r"^\| [^|]+ \| [\d,]+ \| ((?:`[\w./]+\.[ch]`(?:, )?)+) \|$", page, re.M)
    return [[f"bpf/{name}" for name in re.findall(r"`([^`]+)`", row)] for row in rows]


def wrong_includes(table: list[list[str]], files: dict[str, str]) -> list[str]:
    """Files that are not in the table once, or include one of a later part, or one that includes them."""
    named = [name for row in table for name in row]
    wrong = [f"{name}: {named.count(name)} times" for name in sorted({*named, *files}) if named.count(name) != 1]
    wrong += [f"{name} is no file" for name in named if name not in files]
    if wrong:
        return wrong
    place = {name: number for number, row in enumerate(table) for name in row}
    uses: dict[str, set[str]] = {}
    for name, text in files.items():
        uses[name] = set()
        for path in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', text, re.M):
            # As a compiler does: beside the file first, then in bpf/; what is in neither is the system's.
            places = (normpath(f"{directory}/{path}") for directory in (dirname(name), "bpf"))
            uses[name].update([place for place in places if place in files][:1])
        wrong += [f"{name} includes {path}" for path in sorted(uses[name]) if place[path] > place[name]]
    found = circle(uses)
    return wrong + ([f"in a circle: {', '.join(found)}"] if found else [])


def picture(page: Path = PAGE) -> str:
    """The drawing alone."""
    _, _, rest = page.read_text(encoding="utf-8").partition("## A page fault's way\n\n```text\n")
    return rest.partition("```")[0]


class PartsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.table = parts(PAGE.read_text(encoding="utf-8"))

    def test_a_part_includes_those_above_it(self) -> None:
        self.assertGreater(sum(text.count('#include "') for text in sources().values()), 40)
        self.assertEqual(wrong_includes(self.table, sources()), [])

    def test_what_is_not_so_is_found(self) -> None:
        for path, line, wanted in (
            ("bpf/decide.h", '#include "facts/limits.bpf.h"', "bpf/decide.h includes bpf/facts/limits.bpf.h"),
            ("bpf/tunables.bpf.h", '#include "state.bpf.h"', "bpf/tunables.bpf.h includes bpf/state.bpf.h"),
            ("bpf/report.bpf.h", '#include "explain.bpf.h"', "in a circle: "),
            ("bpf/facts/limits.bpf.h", '#include "cache.bpf.h"', "limits.bpf.h includes bpf/facts/cache.bpf.h"),
            ("bpf/facts/limits.bpf.h", ' # include "../scan.bpf.h"', "limits.bpf.h includes bpf/scan.bpf.h"),
            ("bpf/decide.h", "#include <scan.bpf.h>", "bpf/decide.h includes bpf/scan.bpf.h"),
            ("bpf/decide.h", '#include "./scan.bpf.h"', "bpf/decide.h includes bpf/scan.bpf.h"),
        ):
            files = sources()
            files[path] += f"{line}\n"
            self.assertIn(wanted, "\n".join(wrong_includes(self.table, files)))
        self.assertEqual(wrong_includes(self.table, {**sources(), "bpf/new.h": ""}), ["bpf/new.h: 0 times"])
        gone = {name: text for name, text in sources().items() if name != "bpf/walk.h"}
        self.assertEqual(wrong_includes(self.table, gone), ["bpf/walk.h is no file"])


class WayTest(unittest.TestCase):
    def test_the_picture_is_true(self) -> None:
        known = functions(sources())
        self.assertLessEqual({*RULES, *USES}, set(known))
        self.assertEqual(differences(picture(), known), [])
        self.assertEqual(len(re.findall(r"mthp_\w+ +bpf/", picture())), 17)
        # What is drawn of them has its own line, or its order would not be compared.
        steps = {step for name in IN_ORDER for step in USES[name]}
        self.assertEqual(steps - set(_STEP.findall(picture())), set())
        for name, rule in ASKED:
            self.assertIn(rule, known[name][1])

    def test_the_unit_tests_take_the_same_decision(self) -> None:
        self.assertIn("mthp_decide(", (REPO / "tests" / "facts.h").read_text())

    def test_what_is_not_so_is_found(self) -> None:
        for path, old, new, wanted in (
            (
                "bpf/choose.bpf.h",
                "mthp_report(cgrp, state, 0)",
                "mthp_tell()",
                "mthp_answer_for does not use mthp_report",
            ),
            ("bpf/explain.bpf.h", "mthp_decide_each(", "mthp_guess(", "mthp_explain does not use mthp_decide"),
            ("bpf/scan.bpf.h", "mthp_report(cgrp, state, 1)", "mthp_small(0, 0)", "mthp_visit uses mthp_small"),
            ("bpf/scan.bpf.h", "mthp_report(cgrp, state, 1)", "mthp_wanted(0, 0)", "mthp_visit uses mthp_wanted"),
            ("bpf/decide.h", "mthp_cap(f, t)", "0", "mthp_decide does not use mthp_cap"),
        ):
            changed = sources()
            self.assertIn(old, changed[path])
            changed[path] = changed[path].replace(old, new)
            self.assertEqual(differences(picture(), functions(changed)), [wanted])
        known = functions(sources())
        moved = picture().replace("bpf/mthp.bpf.c", "bpf/hook.h")
        self.assertEqual(differences(moved, known), ["mthp_choose is not in bpf/hook.h"])
        more = picture() + "mthp_scan"
        self.assertEqual(differences(more, known), ["mthp_scan: drawn without an arrow, or the other way round"])

    def test_another_order_is_found(self) -> None:
        for path, earlier, later, wanted in (
            (
                "bpf/choose.bpf.h",
                "mthp_sample(cgrp, state, t, reason);",
                "mthp_kept_facts(&f, state, pud);",
                "mthp_answer_for has mthp_kept_facts where mthp_sample is drawn",
            ),
            (
                "bpf/choose.bpf.h",
                "d = mthp_decide(&f, t, mthp_walk_for_request, &place);",
                "if (mthp_passes_all(t)) {",
                "mthp_answer_for has mthp_passes_all where mthp_decide is drawn",
            ),
            (
                "bpf/decide.h",
                "d.rule = mthp_refusal(f, t);",
                "room(f, of);",
                "mthp_decide has mthp_walk_for_request where mthp_refusal is drawn",
            ),
        ):
            changed = sources()
            for one in (earlier, later):
                self.assertEqual(changed[path].count(one), 1, one)
            text = changed[path].replace(earlier, "@").replace(later, earlier).replace("@", later)
            changed[path] = text
            self.assertEqual(differences(picture(), functions(changed)), [wanted])
        lines = picture().splitlines()
        at = next(number for number, line in enumerate(lines) if "mthp_governed" in line)
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
        self.assertEqual(
            differences("\n".join(lines), functions(sources())),
            ["mthp_answer_for has mthp_governed where mthp_sample is drawn"],
        )
