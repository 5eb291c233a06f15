# SPDX-License-Identifier: GPL-2.0-only
"""Configuration checks, the key of a build, pinned tarballs, cleaning up after a killed build."""

import hashlib
import os
import tempfile
import unittest
from pathlib import Path

from lab.errors import Exit, LabError
from lab.kernel import build, config, series, tarball
from lab.kernel.series import Patch


class Config(unittest.TestCase):
    def test_lines_without_effect_are_listed(self) -> None:
        wanted = config.parse("CONFIG_A=y\nCONFIG_B=n\nCONFIG_C=8\n# CONFIG_D is not set\nCONFIG_E=y\n# note\n")
        actual = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=64\nCONFIG_D=y\n"
        self.assertEqual(
            config.missed(wanted, actual),
            ["CONFIG_C=8, but it is 64", "CONFIG_D=n, but it is y", "CONFIG_E=y, but it is n"],
        )
        with self.assertRaises(LabError) as caught:
            config.check(wanted, actual)
        self.assertEqual(caught.exception.code, Exit.CONFIG)

    def test_the_fragments_parse_whole(self) -> None:
        for path in config.fragments(list(config.SERIES_FRAGMENTS)):
            lines = [line for line in path.read_text().splitlines() if line and not line.startswith("# ")]
            self.assertEqual(len(config.parse(path.read_text())), len(lines), path)


class Key(unittest.TestCase):
    def test_every_input_counts(self) -> None:
        keys = {
            build.key("7.3.4", [Patch("a", b"x")], [b"c"], "gcc"),
            build.key("7.3.5", [Patch("a", b"x")], [b"c"], "gcc"),
            build.key("7.3.4", [Patch("a", b"y")], [b"c"], "gcc"),
            build.key("7.3.4", [Patch("a", b"x")], [b"d"], "gcc"),
            build.key("7.3.4", [Patch("a", b"x")], [b"c"], "gcc 2"),
            build.key("7.3.4", [Patch("a", b"x"), Patch("b", b"")], [b"c"], "gcc"),
            build.key("7.3.4", [], [b"x", b"c"], "gcc"),
        }
        self.assertEqual(len(keys), 7)

    def test_a_name_alone_does_not(self) -> None:
        self.assertEqual(build.key("7", [Patch("a", b"x")], [], ""), build.key("7", [Patch("b", b"x")], [], ""))

    def test_a_message_builds_nothing(self) -> None:
        for head in (b"diff --git a/f b/f\n", b"--- a/f\n", b"--- /dev/null\n"):
            keys = {
                build.key("7", [Patch("a", message + b"\n" + head + change)], [], "")
                for message in (b"one", b"two")
                for change in (b"+1\n", b"+2\n")
            }
            self.assertEqual(len(keys), 2)


class Series(unittest.TestCase):
    """Kernels with another series than the default."""

    def test_they_share_nothing_with_the_usual_one(self) -> None:
        self.assertIs(build.with_series(build.DEFAULT, ("mthp",)), build.DEFAULT)
        found = [build.with_series(build.DEFAULT, one) for one in (("pud",), ("mthp", "pud"))]
        for what in ("name", "objects", "series"):
            self.assertEqual(
                len({getattr(one, what) for one in (build.DEFAULT, build.PUD, *found)}), 4 - (what == "series")
            )

    def test_the_one_for_debugging_is_the_tested_one_with_more(self) -> None:
        self.assertEqual(build.PUD_DEBUG.fragments[: len(build.PUD.fragments)], build.PUD.fragments)
        self.assertEqual(build.PUD_DEBUG.series, build.PUD.series)
        for what in ("name", "objects"):
            self.assertNotEqual(getattr(build.PUD_DEBUG, what), getattr(build.PUD, what))

    def test_an_unknown_or_repeated_name_is_refused(self) -> None:
        self.assertEqual(series.names("mthp pud"), ("mthp", "pud"))
        for wrong in ("", "nope", "pud pud"):
            with self.assertRaises(LabError, msg=wrong) as caught:
                series.names(wrong)
            self.assertEqual(caught.exception.code, Exit.USAGE)
        with self.assertRaises(LabError):
            series.one(("mthp", "pud"))

    def test_the_options_of_one_are_not_asked_of_another(self) -> None:
        self.assertEqual(config.fragments(("mthp",)), [config.FRAGMENT, config.DIRECTORY / "series.config"])
        self.assertEqual(config.fragments(("pud",)), [config.FRAGMENT, config.DIRECTORY / "pud.config"])
        self.assertEqual(config.fragments(()), [config.FRAGMENT])


class Variants(unittest.TestCase):
    """Kernels with another model of preemption."""

    def test_they_share_nothing_with_the_usual_ones(self) -> None:
        for variant in (build.DEFAULT, build.DEBUG):
            self.assertIs(build.preempted(variant, ""), variant)
            found = [build.preempted(variant, model) for model in build.PREEMPTION]
            self.assertEqual(len({one.name for one in (variant, *found)}), 3)
            self.assertNotIn(variant.objects, {one.objects for one in found})
            for one in found:
                self.assertEqual(one.fragments[:-1], variant.fragments)

    def test_an_unknown_model_is_refused(self) -> None:
        with self.assertRaisesRegex(LabError, "full, rt"):
            build.preempted(build.DEFAULT, "voluntary")

    def test_every_fragment_parses_whole(self) -> None:
        for path in config.DIRECTORY.glob("*.config"):
            lines = [line for line in path.read_text().splitlines() if line and not line.startswith("# ")]
            self.assertEqual(len(config.parse(path.read_text())), len(lines), path)

    def test_a_kernel_knows_its_options(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            Path(name, "config").write_text("CONFIG_JUMP_LABEL=y\n# CONFIG_PREEMPT_RT is not set\n")
            kernel = build.Kernel(Path(name), "7.3", Path(), Path())
            self.assertEqual([kernel.has(one) for one in ("JUMP_LABEL", "PREEMPT_RT", "SMP")], [True, False, False])


class Interrupted(unittest.TestCase):
    def test_what_a_killed_build_was_writing_is_removed(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            objects = Path(name)
            for file, when in (("old.o", 100), ("new.o", 300), (".new.o.cmd", 300)):
                (objects / file).write_text("")
                os.utime(objects / file, (when, when))
            build.drop_unfinished(objects, 200)
            self.assertEqual([path.name for path in objects.iterdir()], ["old.o"])


class Tarball(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.tar = Path(holder.name, "linux-7.3.4.tar.xz")
        self.tar.write_bytes(b"content")
        self.sum = hashlib.sha256(b"content").hexdigest()
        self.pins = Path(holder.name, "pins")

    def message(self) -> str:
        with self.assertRaises(LabError) as caught:
            tarball.verify(self.tar, self.pins)
        self.assertEqual(caught.exception.code, Exit.SOURCE)
        return str(caught.exception)

    def test_a_pinned_one_is_taken(self) -> None:
        self.pins.write_text(f"# comment\n{self.sum}  {self.tar.name}\n")
        self.assertEqual(tarball.verify(self.tar, self.pins), "7.3.4")

    def test_an_unpinned_one_is_refused_with_the_line_to_add(self) -> None:
        self.assertIn(f"{self.sum}  {self.tar.name}", self.message())

    def test_another_content_is_refused(self) -> None:
        self.pins.write_text(f"{'0' * 64}  {self.tar.name}\n")
        self.assertIn("is not the file", self.message())

    def test_a_damaged_pin_file_is_no_permission(self) -> None:
        self.pins.write_text(f"{self.sum} ? {self.tar.name}\n")
        self.assertIn("not a line of sha256sum", self.message())

    def test_other_names_are_refused(self) -> None:
        self.tar = self.tar.rename(self.tar.with_name("evil.tar.xz"))
        self.assertIn("not named like", self.message())
