# SPDX-License-Identifier: GPL-2.0-only
"""From patches to a git tree and back."""

import io
import shutil
import subprocess
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from lab.errors import Exit, LabError
from lab.kernel import gittree
from lab.kernel.source import Base


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class RoundTrip(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        base = Base("7.3.0", self.root / "base")
        (base.tree / "mm").mkdir(parents=True)
        (base.tree / "mm" / "one.c").write_text("a\nb\nc\n")
        (base.tree / ".gitignore").write_text("/*\n")
        self.patches = self.root / "patches"
        self.tree = self.root / "tree"
        for target, value in (
            ("lab.kernel.gittree.source.get", lambda: base),
            ("lab.lock.cache", lambda: self.root),
        ):
            patcher = mock.patch(target, value)
            patcher.start()
            self.addCleanup(patcher.stop)
        quiet = redirect_stdout(io.StringIO())
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)
        gittree.create(self.tree, self.patches)

    def git(self, *args: str) -> str:
        identity = ["-c", "user.name=A B", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", "-C", str(self.tree), *identity, *args], check=True, capture_output=True, text=True
        ).stdout

    def commit(self, text: str, message: str) -> None:
        (self.tree / "mm" / "one.c").write_text(text)
        self.git("commit", "-q", "-a", "-m", message)

    def export(self) -> None:
        gittree.export(self.tree, patches_dir=self.patches)

    def refused(self, call: object, word: str) -> None:
        with self.assertRaises(LabError) as caught:
            call()  # type: ignore[operator]
        self.assertEqual(caught.exception.code, Exit.TREE)
        self.assertIn(word, str(caught.exception))

    def test_out_and_in_and_out_again_is_the_same(self) -> None:
        self.commit("a\nB\nc\n", "mm: [one] upper\n\nWhy it is so.")
        self.commit("a\nB\nC\n", "mm: two")
        self.export()
        first = {path.name: path.read_bytes() for path in self.patches.iterdir()}
        self.assertEqual(sorted(first), ["0001-mm-one-upper.patch", "0002-mm-two.patch", "series"])
        shutil.rmtree(self.tree)
        gittree.create(self.tree, self.patches)
        self.assertEqual(self.git("log", "-2", "--format=%s", "--reverse"), "mm: [one] upper\nmm: two\n")
        self.git("commit", "--amend", "-q", "--no-edit", "--date=now", "--author=A B <a@b>")
        self.git("reset", "-q", "--hard", "HEAD@{1}")
        self.export()
        self.assertEqual({path.name: path.read_bytes() for path in self.patches.iterdir()}, first)
        exported = gittree._export(self.tree, "lab-base")
        self.assertEqual({name: first[name] for name in exported}, exported)

    def test_a_dropped_patch_goes_from_the_directory(self) -> None:
        self.commit("a\nB\nc\n", "mm: one")
        self.commit("a\nB\nC\n", "mm: two")
        self.export()
        self.git("reset", "-q", "--hard", "HEAD~")
        self.export()
        self.assertEqual(sorted(path.name for path in self.patches.iterdir()), ["0001-mm-one.patch", "series"])

    def test_work_is_never_overwritten(self) -> None:
        (self.tree / "mm" / "new.c").write_text("x\n")
        self.refused(self.export, "not committed (mm/new.c)")
        self.refused(lambda: gittree.create(self.tree, self.patches), "was edited")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "mm: new")
        self.refused(lambda: gittree.create(self.tree, self.patches), "commits of its own")
        self.export()
        gittree.create(self.tree, self.patches)
        self.assertTrue((self.tree / "mm" / "new.c").exists())

    def test_patches_changed_meanwhile_are_not_overwritten(self) -> None:
        self.commit("a\nB\nc\n", "mm: one")
        self.export()
        patch = self.patches / "0001-mm-one.patch"
        patch.write_text(patch.read_text().replace("mm: one", "mm: changed by hand"))
        self.commit("a\nB\nC\n", "mm: two")
        self.refused(self.export, "has changed since")
        self.assertIn("changed by hand", patch.read_text())

    def test_an_unedited_tree_follows_the_series(self) -> None:
        self.commit("a\nB\nc\n", "mm: one")
        self.export()
        patch = self.patches / "0001-mm-one.patch"
        patch.write_text(patch.read_text().replace("mm: one", "mm: changed by hand"))
        gittree.create(self.tree, self.patches)
        self.assertEqual(self.git("log", "-1", "--format=%s"), "mm: changed by hand\n")

    def test_a_directory_of_somebody_else(self) -> None:
        other = self.root / "other"
        other.mkdir()
        (other / "file").touch()
        self.refused(lambda: gittree.create(other, self.patches), "not a tree that")
        self.refused(lambda: gittree.export(other), "no git tree")
