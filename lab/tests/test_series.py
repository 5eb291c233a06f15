# SPDX-License-Identifier: GPL-2.0-only
"""Applying the series: incremental rewriting, refusals, coming back from an interruption."""

import os
import re
import tempfile
import unittest
from pathlib import Path

from lab.checks.checkpatch import unlisted
from lab.errors import Exit, LabError
from lab.kernel.series import DEFAULT, ROOT, Patch, every, joints, load, load_all, names
from lab.kernel.source import Base
from lab.kernel.worktree import Worktree
from lab.paths import KERNEL_DIR

_EDIT = b"""\
--- a/mm/one.c
+++ b/mm/one.c
@@ -1,3 +1,3 @@
 a
-b
+B
 c
"""
_ADD = b"""\
diff --git a/mm/new.c b/mm/new.c
new file mode 100644
index 0000000..1111111
--- /dev/null
+++ b/mm/new.c
@@ -0,0 +1 @@
+new
"""
_REMOVE = b"""\
diff --git a/mm/two.c b/mm/two.c
deleted file mode 100644
index 1111111..0000000
--- a/mm/two.c
+++ /dev/null
@@ -1 +0,0 @@
-two
"""
_SECOND = b"""\
--- a/mm/new.c
+++ b/mm/new.c
@@ -1 +1,2 @@
 new
+newer
"""


class Parts(unittest.TestCase):
    def test_the_readme_has_each_patch_once(self) -> None:
        text = (KERNEL_DIR / "README.md").read_text()
        rows = re.findall(r"^\| \([a-g]\) (\d{4})(?:-(\d{4}))? \|", text, re.MULTILINE)
        listed = [number for first, last in rows for number in range(int(first), int(last or first) + 1)]
        self.assertEqual(listed, [int(patch.name[:4]) for patch in load()])


class Joints(unittest.TestCase):
    def test_what_two_series_have_to_do_with_each_other_comes_after_both(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for one in ("a", "b", "a+b", "b+c", "a+b+c"):
                (root / one).mkdir()
                (root / one / "series").write_text("")
            for series, found in (
                (("a",), []),
                (("b", "a"), ["a+b"]),
                (("c", "b"), ["b+c"]),
                (("a", "c", "b"), ["a+b", "a+b+c", "b+c"]),
            ):
                self.assertEqual(joints(series, root), found, series)

    def test_it_is_part_of_both_and_of_neither(self) -> None:
        joint = load(ROOT / "mthp+pud")
        self.assertTrue(joint)
        both = load_all(("mthp", "pud"))
        self.assertEqual(both[-len(joint) :], joint)
        self.assertEqual(len(both), len(joint) + sum(len(load_all((one,))) for one in ("mthp", "pud")))
        self.assertEqual(load_all(DEFAULT), load())
        self.assertNotIn("mthp+pud", every())
        with self.assertRaises(LabError):
            names("mthp+pud")


class Maintainers(unittest.TestCase):
    def test_new_files_need_an_entry(self) -> None:
        patch = (_EDIT + _ADD).decode()
        for entries, missing in (
            ("F:\tmm/\n", []),
            ("F:\tmm/ne*.c\n", []),
            ("THE REST\nF:\t*\nF:\t*/\n", ["mm/new.c"]),
            ("F:\tmm/one.c\n", ["mm/new.c"]),
        ):
            self.assertEqual(unlisted(patch, entries), missing, entries)


class Rewriting(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.base = Base("7.3.0", Path(holder.name))
        (self.base.tree / "mm").mkdir(parents=True)
        (self.base.tree / "mm" / "one.c").write_text("a\nb\nc\n")
        (self.base.tree / "mm" / "two.c").write_text("two\n")
        (self.base.tree / "mm" / "three.c").write_text("three\n")
        for path in (self.base.tree / "mm").iterdir():
            os.utime(path, (1, 1))
        self.worktree = Worktree(self.base)

    def read(self, name: str) -> str | None:
        path = self.base.tree / "mm" / name
        return path.read_text() if path.exists() else None

    def test_writes_only_what_differs(self) -> None:
        series = [Patch("1", _EDIT), Patch("2", _ADD)]
        self.assertEqual(self.worktree.set(series), ["mm/new.c", "mm/one.c"])
        self.assertEqual((self.read("one.c"), self.read("new.c")), ("a\nB\nc\n", "new\n"))
        times = {path: path.stat().st_mtime_ns for path in (self.base.tree / "mm").iterdir()}
        self.assertEqual(self.worktree.set(series), [])
        self.assertEqual(self.worktree.set([*series, Patch("3", _SECOND)]), ["mm/new.c"])
        for path, before in times.items():
            if path.name != "new.c":
                self.assertEqual(path.stat().st_mtime_ns, before, path)

    def test_goes_back_to_the_base(self) -> None:
        self.worktree.set([Patch("1", _EDIT), Patch("2", _ADD), Patch("3", _REMOVE)])
        self.assertEqual((self.read("new.c"), self.read("two.c")), ("new\n", None))
        self.assertEqual(self.worktree.set([]), ["mm/new.c", "mm/one.c", "mm/two.c"])
        self.assertEqual((self.read("one.c"), self.read("new.c"), self.read("two.c")), ("a\nb\nc\n", None, "two\n"))
        # make has to see that the file is another one now.
        self.assertGreater((self.base.tree / "mm" / "one.c").stat().st_mtime, 1)

    def test_a_patch_that_does_not_apply_is_named_and_changes_nothing(self) -> None:
        broken = _EDIT.replace(b"-b\n", b"-x\n")
        with self.assertRaises(LabError) as caught:
            self.worktree.set([Patch("0001-add.patch", _ADD), Patch("0002-broken.patch", broken)])
        self.assertEqual(caught.exception.code, Exit.PATCH)
        for word in ("patch 2 of 2", "0002-broken.patch", "mm/one.c:1", "Linux 7.3.0"):
            self.assertIn(word, str(caught.exception))
        self.assertEqual((self.read("one.c"), self.read("new.c")), ("a\nb\nc\n", None))

    def test_repairs_a_tree_that_was_left_half_done(self) -> None:
        self.worktree.set([Patch("1", _EDIT)])
        (self.base.tree / "mm" / "one.c").write_text("cut off")
        self.assertEqual(self.worktree.set([Patch("1", _EDIT)]), ["mm/one.c"])
        self.assertEqual(self.read("one.c"), "a\nB\nc\n")

    def test_a_patch_cannot_leave_the_tree(self) -> None:
        evil = _ADD.replace(b"mm/new.c", b"../../evil")
        with self.assertRaises(LabError):
            self.worktree.set([Patch("1", evil)])
        self.assertFalse((self.base.directory.parent / "evil").exists())

    def test_export_is_the_base(self) -> None:
        self.worktree.set([Patch("1", _EDIT), Patch("2", _ADD), Patch("3", _REMOVE)])
        out = self.base.directory / "out"
        self.worktree.export(out)
        self.assertEqual(sorted(path.name for path in (out / "mm").iterdir()), ["one.c", "three.c", "two.c"])
        self.assertEqual((out / "mm" / "one.c").read_text(), "a\nb\nc\n")

    def test_the_stock_tree_stays_the_base(self) -> None:
        self.worktree.set([Patch("1", _EDIT), Patch("2", _ADD)])
        stock = self.worktree.stock()
        self.worktree.set([Patch("1", _EDIT), Patch("2", _ADD), Patch("3", _REMOVE)])
        self.worktree.set([])
        self.assertEqual(self.worktree.stock(), stock)
        self.assertEqual(sorted(path.name for path in (stock / "mm").iterdir()), ["one.c", "three.c", "two.c"])
        self.assertEqual((stock / "mm" / "one.c").read_text(), "a\nb\nc\n")


class Listing(unittest.TestCase):
    def test_series_file(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            self.assertEqual(load(directory), [])
            (directory / "series").write_text("# comment\n0001-a.patch\n\n0002-b.patch # why\n")
            (directory / "0001-a.patch").write_bytes(_EDIT)
            with self.assertRaises(LabError) as caught:
                load(directory)
            self.assertIn("0002-b.patch", str(caught.exception))
            (directory / "0002-b.patch").write_bytes(_ADD)
            self.assertEqual([patch.name for patch in load(directory)], ["0001-a.patch", "0002-b.patch"])

    def test_files_of_a_patch(self) -> None:
        self.assertEqual(Patch("", _EDIT + _ADD + _REMOVE).files(), {"mm/one.c", "mm/new.c", "mm/two.c"})
