# SPDX-License-Identifier: GPL-2.0-only
"""Hosts that lack something: what the lab says of each, and with which exit code."""

import errno
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import lab.__main__ as front
from lab import paths, programs, results, setup, space
from lab.errors import Exit, LabError, of_host
from lab.kernel import build, source
from lab.kernel.source import Base
from lab.paths import REPO
from lab.vm import accel
from lab.vm.qemu import Mode


class HostTest(unittest.TestCase):
    """With a directory to work in."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name).resolve()

    def refused(self, call: Callable[[], object], code: Exit, *words: str) -> str:
        with self.assertRaises(LabError) as caught:
            call()
        text = str(caught.exception)
        self.assertEqual(caught.exception.code, code, text)
        for word in words:
            self.assertIn(word, text)
        return text


class DirectoryTest(HostTest):
    @contextmanager
    def somebody_else(self, closed: Path) -> Iterator[None]:
        """As a user for whom `closed` is another's, and not to be written."""
        real = os.access
        with (
            mock.patch("lab.paths.os.access", lambda path, how: path != closed and real(path, how)),
            mock.patch("lab.paths.os.geteuid", lambda: os.getuid() + 4711),
        ):
            yield

    def cache(self, **env: str) -> Path:
        home = {"HOME": str(self.directory)}
        with mock.patch.dict(os.environ, {**home, **env}, clear=True):
            return paths.cache()

    def test_where_it_is(self) -> None:
        mine = self.directory / "x"
        self.assertEqual(self.cache(MTHP_CACHE=str(mine), XDG_CACHE_HOME="/y"), mine)
        self.assertEqual(self.cache(XDG_CACHE_HOME=str(mine)), mine / "mthp_ext")
        self.assertEqual(self.cache(), self.directory / ".cache/mthp_ext")
        self.assertTrue((self.directory / ".cache/mthp_ext").is_dir())

    def test_a_cache_that_cannot_be_written(self) -> None:
        place = self.directory / "cache"
        place.mkdir()
        with self.somebody_else(place):
            text = self.refused(lambda: self.cache(MTHP_CACHE=str(place)), Exit.DIRECTORY, "MTHP_CACHE=", "owner of")
        self.assertIn(f"{place} cannot be written", text)

    def test_what_another_user_left_in_it(self) -> None:
        place = self.directory / "cache"
        place.mkdir()
        left = place / "kernel.lock"
        left.touch()
        with self.somebody_else(left):
            self.refused(lambda: self.cache(MTHP_CACHE=str(place)), Exit.DIRECTORY, f"another user left {left}")

    def test_what_another_user_shares_is_fine(self) -> None:
        place = self.directory / "shared"
        place.mkdir()
        (place / "kernel.lock").touch()
        with self.somebody_else(Path("/nothing")):
            self.assertEqual(self.cache(MTHP_CACHE=str(place)), place)

    def test_a_file_in_its_place_or_above(self) -> None:
        file = self.directory / "file"
        file.touch()
        for chosen in (file, file / "below"):
            self.refused(lambda path=chosen: self.cache(MTHP_CACHE=str(path)), Exit.DIRECTORY, str(chosen))  # type: ignore[misc]

    def test_a_user_without_a_home(self) -> None:
        with mock.patch("lab.paths.Path.home", side_effect=RuntimeError):
            self.refused(self.cache, Exit.DIRECTORY, "no home directory", "MTHP_CACHE=")
            self.assertEqual(self.cache(MTHP_CACHE=str(self.directory)), self.directory)
            self.assertIn("PATH", programs.environment())

    def test_a_build_directory_of_another_user(self) -> None:
        left = self.directory / "build/vm/demo"
        left.mkdir(parents=True)
        with mock.patch("lab.paths.BUILD", self.directory / "build"), self.somebody_else(left):
            self.refused(paths.check_build, Exit.DIRECTORY, f"another user left {left}", "change the owner")

    def test_a_checkout_of_another_user(self) -> None:
        with (
            mock.patch("lab.paths.BUILD", self.directory / "build"),
            mock.patch("lab.paths.Path.mkdir", side_effect=PermissionError(errno.EACCES, "Permission denied")),
        ):
            self.refused(paths.check_build, Exit.DIRECTORY, "cannot be made (Permission denied", "git clone")


class SpaceTest(HostTest):
    def test_enough_is_no_matter(self) -> None:
        space.need(0, self.directory / "not/there/yet", "nothing")

    def test_what_is_needed_is_said_before(self) -> None:
        with mock.patch("lab.space.free_mib", return_value=17):
            self.refused(lambda: space.need(18, self.directory, "this"), Exit.SPACE, "this needs about 18 MiB",
                         "17 MiB are free", str(self.directory))  # fmt: skip

    def source(self, free: int, **env: str) -> Callable[[], object]:
        def get() -> object:
            with (
                mock.patch.dict(os.environ, {"MTHP_CACHE": str(self.directory), **env}),
                mock.patch("lab.space.free_mib", return_value=free),
                mock.patch("lab.kernel.source._from_debian", side_effect=LookupError("fetched")),
                mock.patch("lab.kernel.source.tarball.verify", return_value="7.3.4"),
                mock.patch("lab.kernel.source.tarball.sha256", return_value="0" * 64),
                mock.patch("lab.kernel.source.tarball.download", side_effect=LookupError("fetched")),
                mock.patch("lab.kernel.source._untar", side_effect=LookupError("unpacked")),
                redirect_stdout(io.StringIO()),
            ):
                return source.get(more_mib=1000)

        return get

    def test_the_source_and_what_is_built_of_it(self) -> None:
        for env, mib in (
            ({"KERNEL_TARBALL": "", "KERNEL_URL": ""}, 3300),
            ({"KERNEL_TARBALL": "/x/linux-7.3.4.tar.xz"}, 2900),
            ({"KERNEL_TARBALL": "", "KERNEL_URL": "https://x/linux-7.3.4.tar.xz"}, 2900),
        ):
            self.refused(self.source(mib - 1, **env), Exit.SPACE, f"about {mib} MiB", "MTHP_CACHE=")
            with self.assertRaises(LookupError):
                self.source(mib, **env)()

    def test_a_build_in_a_source_that_is_there(self) -> None:
        base = Base("7.3.4", self.directory / "base")

        def make(free: int, objects: bool) -> None:
            if objects:
                (base.directory / build.DEFAULT.objects).mkdir(parents=True)
            with (
                mock.patch("lab.kernel.build.load_all", return_value=[]),
                mock.patch("lab.kernel.build.locked", return_value=nullcontext(0)),
                mock.patch("lab.kernel.build.source.get", return_value=base),
                mock.patch("lab.kernel.build.source.compiler_identity", return_value="cc"),
                mock.patch("lab.kernel.build.Worktree.set", return_value=[]),
                mock.patch("lab.kernel.build.cache", return_value=self.directory),
                mock.patch("lab.kernel.source.cache", return_value=self.directory),
                mock.patch("lab.space.free_mib", return_value=free),
                mock.patch("lab.kernel.build._build", side_effect=LookupError("built")),
                redirect_stdout(io.StringIO()),
            ):
                build.ensure()

        self.refused(lambda: make(2449, False), Exit.SPACE, "building kernel needs about 2450 MiB")
        with self.assertRaises(LookupError):
            make(2450, False)
        self.refused(lambda: make(549, True), Exit.SPACE, "about 550 MiB")


class KvmTest(HostTest):
    def best(self, device: Path) -> tuple[Mode, str]:
        with mock.patch("lab.vm.accel._DEVICE", device):
            return accel.best(self.directory / "bzImage")

    def test_no_device(self) -> None:
        self.assertEqual(self.best(self.directory / "kvm"), (Mode.TCG, f"there is no {self.directory / 'kvm'}"))

    def test_a_device_that_may_not_be_opened(self) -> None:
        # Its mode would allow it; the container does not.
        device = self.directory / "kvm"
        device.touch(mode=0o666)
        with mock.patch("lab.vm.accel.os.open", side_effect=PermissionError(errno.EPERM, "Operation not permitted")):
            self.assertEqual(self.best(device), (Mode.TCG, f"{device} cannot be opened: Operation not permitted"))

    def test_a_device_that_opens_is_tried(self) -> None:
        device, boot = self.directory / "kvm", self.directory / "boot_id"
        device.touch()
        boot.write_text("one\n")
        with (
            mock.patch("lab.vm.accel._BOOT_ID", boot),
            mock.patch("lab.vm.accel.cache", return_value=self.directory),
            mock.patch("lab.vm.accel.qemu.binary", return_value="/bin/true"),
            mock.patch("lab.vm.accel._probe", return_value=(Mode.KVM, "it booted")) as probe,
        ):
            self.assertEqual([self.best(device), self.best(device)], [(Mode.KVM, "it booted")] * 2)
        self.assertEqual(probe.call_count, 1)


class ModeOfKernelTest(HostTest):
    def test_one_thread_for_a_kernel_that_patches_itself(self) -> None:
        kernel = build.Kernel(self.directory, "7.3", Path(), Path())
        for line, best, wanted in (
            ("CONFIG_JUMP_LABEL=y", Mode.TCG, Mode.SINGLE),
            ("CONFIG_JUMP_LABEL=y", Mode.KVM, Mode.KVM),
            ("# CONFIG_JUMP_LABEL is not set", Mode.TCG, Mode.TCG),
        ):
            kernel.config.write_text(f"{line}\n")
            with self.subTest(line, best=best), mock.patch("lab.vm.accel.best", return_value=(best, "why")):
                self.assertEqual(accel.of(kernel)[0], wanted)
                self.assertEqual(accel.of_image(kernel.image)[0], wanted)

    def test_one_thread_for_an_image_of_unknown_configuration(self) -> None:
        for best, wanted in ((Mode.TCG, Mode.SINGLE), (Mode.KVM, Mode.KVM)):
            with mock.patch("lab.vm.accel.best", return_value=(best, "why")):
                self.assertEqual(accel.of_image(self.directory / "bzImage")[0], wanted)


class AptTest(HostTest):
    def apt(self, script: str) -> str:
        """What is printed while a made-up apt-get runs as root would call it."""
        (self.directory / "apt-get").write_text(f"#!/bin/sh\ncd {self.directory}\n{script}")
        (self.directory / "apt-get").chmod(0o755)
        log = self.directory / "setup.log"
        log.touch()
        out = io.StringIO()
        with (
            mock.patch.dict(os.environ, {"PATH": f"{self.directory}:{os.environ['PATH']}"}),
            mock.patch("lab.setup._LOG", log),
            mock.patch("lab.setup._LOCK_S", 0.5),
            mock.patch("lab.setup._LOCK_POLL_S", 0.05),
            redirect_stdout(out),
        ):
            setup._apt([], "update", what="apt-get update")
        return out.getvalue()

    LOCKED = "echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)' >&2; exit 100\n"

    def test_a_lock_is_waited_for_and_its_holder_named(self) -> None:
        said = self.apt(f"echo x >> tries; [ $(wc -l < tries) -gt 2 ] || {{ {self.LOCKED.strip()}; }}\n")
        self.assertEqual(said.count("held by process 7 (apt-get)"), 1)

    def test_a_lock_for_ever(self) -> None:
        self.refused(lambda: self.apt(self.LOCKED), Exit.INSTALL, "held apt's lock", "process 7", "try again")

    def test_another_failure_is_not_waited_for(self) -> None:
        text = self.refused(
            lambda: self.apt("echo x >> tries; echo 'E: Unable to locate package x'; exit 100\n"),
            Exit.INSTALL, "exit code 100", "Unable to locate package x",
        )  # fmt: skip
        self.assertEqual((text.count("Unable"), (self.directory / "tries").read_text()), (1, "x\n"))

    def test_nobody_to_type_a_password(self) -> None:
        sudo = self.directory / "sudo"
        sudo.write_text("#!/bin/sh\nexit 1\n")
        sudo.chmod(0o755)
        for path, words in ((str(self.directory), "there is no terminal"), ("/nonexistent", "sudo is not installed")):
            with (
                mock.patch("lab.setup.os.geteuid", return_value=4711),
                mock.patch.dict(os.environ, {"PATH": path}),
                mock.patch("sys.stdin", None),
            ):
                self.refused(lambda: setup._root(["gcc"]), Exit.PRIVILEGE, "missing here: gcc", words)


@unittest.skipUnless(shutil.which("git") and (REPO / ".git").exists(), "no git checkout")
class GitTest(unittest.TestCase):
    def test_a_checkout_of_another_user_has_a_revision(self) -> None:
        # git's own way to try this out.
        with mock.patch.dict(os.environ, {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}):
            plain = subprocess.run(["git", "describe", "--always"], cwd=REPO, capture_output=True, check=False)
            self.assertIn(b"dubious ownership", plain.stderr)
            self.assertTrue(results.environment(None, "none")["revision"])


class FrontTest(HostTest):
    def main(self, fail: BaseException | None = None) -> tuple[int, str]:
        """Exit code and complaint of a command."""
        err = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["lab", "build"]),
            mock.patch("lab.paths.BUILD", self.directory),
            mock.patch("lab.__main__.BUILD", self.directory),
            mock.patch("lab.setup.ensure", side_effect=fail),
            mock.patch("lab.programs.mthp_ext", return_value="/it"),
            mock.patch("lab.proc.stop_on_signals"),
            redirect_stderr(err),
            redirect_stdout(io.StringIO()),
        ):
            return front.main(), err.getvalue()

    def test_a_host_that_has_all(self) -> None:
        self.assertEqual(self.main(), (0, ""))

    def test_no_proc(self) -> None:
        with mock.patch("lab.__main__._PROC", self.directory / "proc"):
            code, said = self.main()
        self.assertEqual(code, Exit.HOST)
        self.assertIn("mount -t proc", said)

    def test_what_the_host_refuses_is_no_trace(self) -> None:
        code, said = self.main(OSError(errno.ENOSPC, "No space left on device", "/x/y"))
        self.assertEqual((code, said), (Exit.SPACE, "lab: /x/y: No space left on device; make room there\n"))
        code, said = self.main(PermissionError(errno.EACCES, "Permission denied", "/x/y"))
        self.assertEqual(code, Exit.DIRECTORY)
        self.assertIn("/x/y: Permission denied; likely an earlier run of another user", said)
        with self.assertRaises(FileNotFoundError):
            self.main(FileNotFoundError(errno.ENOENT, "No such file", "/x/y"))

    def test_a_place_for_temporary_files_that_is_none(self) -> None:
        with mock.patch.dict(os.environ, {"TMPDIR": str(self.directory / "gone")}):
            code, said = self.main()
            self.assertEqual((code, os.environ["TMPDIR"]), (0, str(self.directory / "tmp")))
        self.assertIn("cannot be used", said)
        self.assertTrue((self.directory / "tmp").is_dir())

    def test_each_failure_has_a_code_of_its_own_and_is_documented(self) -> None:
        codes = {of_host(OSError(number, "x")).code for number in (errno.ENOSPC, errno.EROFS, errno.ENOENT)}
        self.assertEqual(codes, {Exit.SPACE, Exit.DIRECTORY, Exit.HOST})
        page = next(path for path in (REPO / "docs").rglob("lab.md"))
        table = page.read_text().partition("## Exit codes")[2]
        for code in Exit:
            span = "31-34" if code in range(31, 35) else str(int(code))
            self.assertIn(f"| {span} |", table, code.name)


class VariableTest(unittest.TestCase):
    """Variables of make that are options of a command."""

    FREE = frozenset({"KERNEL_TARBALL", "KERNEL_URL", "MTHP_CACHE"})
    """Those that are no option: where things come from and lie, for every command."""

    def options(self, *words: str, **variables: str) -> dict[str, object]:
        with mock.patch.dict(os.environ, variables):
            return vars(front._parser().parse_args(words))

    def test_those_that_the_makefile_hands_over_are_options(self) -> None:
        [exported] = re.findall(r"^export (.*)$", (REPO / "Makefile").read_text(), re.MULTILINE)
        commands = front._parser()._subparsers
        assert commands
        [choice] = commands._group_actions
        helps = " ".join(str(action.help) for sub in dict(choice.choices or {}).values() for action in sub._actions)
        self.assertEqual(set(re.findall(r"also: (\w+)=", helps)), set(exported.split()) - self.FREE)

    def test_they_are_read_as_the_options_are(self) -> None:
        soak = self.options("soak", MINUTES="2.5", SEED="7", PREEMPT="full")
        self.assertEqual((soak["minutes"], soak["seed"], soak["preempt"]), (2.5, 7, "full"))
        self.assertEqual(self.options("soak", "--seed", "8", SEED="7")["seed"], 8)
        self.assertEqual(self.options("kernel-tree", DIR="/x")["dir"], Path("/x"))
        self.assertTrue(self.options("clean-root", AS_USER="1")["user"])

    def test_an_empty_one_is_none(self) -> None:
        soak = self.options("soak", MINUTES="", SEED="", PREEMPT="")
        self.assertEqual((soak["minutes"], soak["seed"], soak["preempt"]), (30.0, None, ""))
        self.assertFalse(self.options("kernel", DEBUG="")["debug"])
        self.assertFalse(self.options("kernel", DEBUG="0")["debug"])


class PythonTest(HostTest):
    """What comes before the lab: make, and a Python that cannot read it."""

    def make(self, *words: str, **env: str) -> tuple[int, str]:
        usual = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        program = shutil.which("make")
        assert program
        done = subprocess.run(
            [program, *words, "demo"], cwd=REPO, env={**usual, **env}, capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        first, second = done.stderr.splitlines()
        self.assertIn("Error 10", second)
        self.assertIn("apt-get install python3", first)
        return done.returncode, first

    def script(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    @unittest.skipUnless(shutil.which("make"), "make is not installed")
    def test_make_says_what_is_lacking(self) -> None:
        self.assertIn("there is no nosuchpython", self.make("PYTHON=nosuchpython")[1])
        for name in ("sh", "env", "head"):
            (self.directory / name).symlink_to(str(shutil.which(name)))
        self.assertIn("there is no python3;", self.make(PATH=str(self.directory))[1])
        old = self.script(
            "old",
            '[ "$1" != -V ] || exec echo Python 3.9.2\n'
            f"exec {sys.executable} -c 'import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])' \"$2\"",
        )
        self.assertIn("old is Python 3.9.2;", self.make(f"PYTHON={old}")[1])
        self.assertIn("lacks parts of its own library", self.make(f"PYTHON={self.script('poor', 'exit 1')}")[1])

    def test_an_older_python_gets_one_line(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", "import sys; sys.version_info = (3, 9, 2, 'final', 0); import lab"],
            cwd=REPO, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (10, "lab: this is Python 3.9; the lab needs 3.11 or newer\n"))
