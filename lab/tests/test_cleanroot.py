# SPDX-License-Identifier: GPL-2.0-only
"""The clean Debian root, as far as it can be tested without one, and what setup installs for the linters."""

import errno
import io
import os
import subprocess
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from lab import setup
from lab.checks import cleanroot
from lab.errors import Exit, LabError
from lab.kernel import build


class CleanRootTest(unittest.TestCase):
    def _other(self, text: str) -> str:
        with mock.patch.object(Path, "read_text", return_value=text):
            return cleanroot.other_suite()

    def test_the_other_suite_is_not_the_host_s(self) -> None:
        self.assertEqual(self._other("ID=debian\nVERSION_CODENAME=bookworm\n"), "trixie")
        self.assertEqual(self._other('VERSION_CODENAME="trixie"\n'), "bookworm")
        self.assertEqual(self._other("ID=arch\n"), "trixie")

    def test_the_checkout_may_be_another_user_s(self) -> None:
        """Root clones what it does not own, which git refuses unless both of its processes are told otherwise."""
        with tempfile.TemporaryDirectory() as name:
            root, source = Path(name) / "root", Path(name) / "source"
            (root / "srv").mkdir(parents=True)
            git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
            for words in (["init", "-q", str(source)], ["-C", str(source), "commit", "-q", "--allow-empty", "-m", "x"]):
                subprocess.run([*git, *words], check=True)
            if os.geteuid() == 0:
                for path in [source, *source.rglob("*")]:
                    os.chown(path, 65534, 65534)

            def call(argv: list[str], **_: object) -> None:
                if "clone" in argv:
                    subprocess.run(argv, check=True, env={"PATH": os.environ["PATH"], "HOME": name})

            found = mock.Mock(uri="x")
            with (
                mock.patch.object(cleanroot, "REPO", source),
                mock.patch.object(cleanroot, "mirrors", return_value=[found]),
                mock.patch.object(cleanroot, "host_config", return_value={}),
                mock.patch.object(cleanroot, "_CERTIFICATES", Path(name) / "none"),
                mock.patch("shutil.copyfile"),
                mock.patch("lab.proc.run", call),
                redirect_stdout(io.StringIO()),
            ):
                cleanroot._make("trixie", root, Path(name), False)
            self.assertTrue((root / "srv" / "project" / ".git").is_dir())

    def test_only_root_can_make_one(self) -> None:
        with mock.patch.object(os, "geteuid", return_value=1000), self.assertRaises(LabError) as caught:
            cleanroot.main("trixie", ["lint"], False)
        self.assertIs(caught.exception.code, Exit.PRIVILEGE)

    def test_suites_have_names(self) -> None:
        with self.assertRaises(LabError) as caught:
            cleanroot.main("buster", ["lint"], False)
        self.assertIs(caught.exception.code, Exit.USAGE)

    def test_the_script_runs_make_as_the_user_asked_for(self) -> None:
        for as_user, expected in ((False, "chroot '/c/root x' env -i HOME=/root"), (True, "sudo -u newcomer env -i")):
            script = cleanroot.script(Path("/c/root x"), Path("/c"), as_user)
            subprocess.run(["sh", "-n"], input=script, text=True, check=True)
            self.assertIn(expected, script)
            self.assertIn("MTHP_CACHE=/srv/cache make -C /srv/project", script)

    def test_arguments_reach_make(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for tool in ("mount", "chroot"):
                path = root / tool
                path.write_text(f'#!/bin/sh\necho {tool} "$@" >>{root}/calls\n')
                path.chmod(0o755)
            subprocess.run(
                ["sh", "-c", cleanroot.script(root, root, False), "sh", "test-short"],
                env={"PATH": f"{root}:/usr/bin:/bin"},
                check=True,
            )
            calls = (root / "calls").read_text().splitlines()
        self.assertTrue(calls[-1].endswith("make -C /srv/project test-short"), calls)
        self.assertEqual(sum(call.startswith("mount ") for call in calls), 5)


class LentKernelTest(unittest.TestCase):
    """The usual kernel of the host in the cache of a root."""

    def setUp(self) -> None:
        self._place = tempfile.TemporaryDirectory()
        self.addCleanup(self._place.cleanup)
        self.store = Path(self._place.name) / "store"
        finished = Path(self._place.name) / "finished"
        for path, text in (("bzImage", "image"), ("release", "7.3.4\n")):
            finished.mkdir(exist_ok=True)
            (finished / path).write_text(text)
        self.kernel = build.Kernel(finished, "7.3.4-1", finished, finished)
        self.store.mkdir()

    def _lent(self) -> build.Kernel | None:
        with mock.patch.object(build, "cache", return_value=self.store), redirect_stdout(io.StringIO()):
            return build.lent()

    def test_is_found_there(self) -> None:
        self.assertIsNone(self._lent())
        build.lend(self.kernel, self.store)
        build.lend(self.kernel, self.store)
        found = self._lent()
        assert found
        self.assertEqual(("image", "7.3.4", "7.3.4-1"), (found.image.read_text(), found.release, found.base))

    def test_of_another_series_is_not_taken(self) -> None:
        build.lend(self.kernel, self.store)
        with mock.patch.object(build, "load_all", return_value=[]):
            self.assertIsNone(self._lent())
            build.lend(self.kernel, self.store)
        self.assertIsNone(self._lent(), "one is kept")

    def test_of_another_day_is_replaced(self) -> None:
        """The key of what was lent knows neither base nor compiler."""
        build.lend(self.kernel, self.store)
        self.kernel.image.write_text("of a newer base")
        build.lend(build.Kernel(self.kernel.directory, "7.3.5-1", self.kernel.tree, self.kernel.objects), self.store)
        found = self._lent()
        assert found
        self.assertEqual((found.image.read_text(), found.base), ("of a newer base", "7.3.5-1"))

    def test_a_full_disk_has_the_code_for_that(self) -> None:
        full = mock.patch("shutil.copytree", side_effect=OSError(errno.ENOSPC, "full"))
        with full, self.assertRaises(LabError) as caught:
            build.lend(self.kernel, self.store)
        self.assertIs(caught.exception.code, Exit.SPACE)

    def test_is_for_one_target(self) -> None:
        with self.assertRaises(LabError) as caught:
            cleanroot.main("trixie", ["demo"], False, lend=True)
        self.assertIs(caught.exception.code, Exit.USAGE)

    def test_can_be_forgotten(self) -> None:
        build.lend(self.kernel, self.store)
        build.forget_lent(self.store)
        self.assertIsNone(self._lent())


class RustLintersTest(unittest.TestCase):
    def _there(self, tools: dict[str, str]) -> bool:
        with mock.patch("shutil.which", lambda tool, **_: tools.get(tool)):
            return setup.rust_linters_are_there()

    def test_missing_linters_of_debian_s_cargo_are_installed(self) -> None:
        self.assertFalse(self._there({"cargo": "/usr/bin/cargo", "cargo-fmt": "/usr/bin/cargo-fmt"}))
        self.assertFalse(self._there({}))

    def test_those_of_another_cargo_are_named(self) -> None:
        with self.assertRaises(LabError) as caught:
            self._there({"cargo": "/opt/rust/bin/cargo", "cargo-clippy": "/opt/rust/bin/cargo-clippy"})
        self.assertIn("cargo-fmt", str(caught.exception))
        self.assertIn("rustup component add", str(caught.exception))

    def test_nothing_is_missing(self) -> None:
        self.assertTrue(self._there({"cargo": "/x/cargo", "cargo-fmt": "/x/cargo-fmt", "cargo-clippy": "/x/clippy"}))

    def test_each_set_of_packages_has_both(self) -> None:
        for names in setup._RUST:
            self.assertTrue(any("rustfmt" in name for name in names), names)
            self.assertTrue(any("clippy" in name for name in names), names)
