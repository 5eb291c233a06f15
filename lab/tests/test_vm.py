# SPDX-License-Identifier: GPL-2.0-only
"""vm.run against a stand-in for QEMU: a script that writes what a guest would."""

import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from unittest import mock

from lab import vm
from lab.errors import Exit, LabError
from lab.vm import machine, qemu
from lab.vm.verdict import Verdict

# Finds its files in QEMU's arguments, and the nonce in the initramfs as only PID 1 could.
_PRELUDE = """\
#!/usr/bin/env python3
import os, re, subprocess, sys, time
line = " ".join(sys.argv)
def path(name):
    return re.search(r"id=" + name + r",path=(\\S+)", line)[1]
def write(name, text):
    with open(path(name), "a") as file:
        file.write(text)
image = open(re.search(r"-initrd (\\S+)", line)[1], "rb").read()
nonce = re.search(rb"nonce=([0-9a-f]{32})\\0", image)[1].decode()
"""


class Run(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)
        self.kernel = self.directory / "bzImage"
        self.kernel.touch()
        for target, value in (
            ("lab.vm.machine.BUILD", self.directory),
            ("lab.vm.hang._ANSWER_S", 0.2),
            ("lab.vm.machine.programs.guest", lambda: Path("/bin/true")),
            ("lab.vm.machine.initramfs.build", self.image),
        ):
            patcher = mock.patch(target, value)
            patcher.start()
            self.addCleanup(patcher.stop)

    @staticmethod
    def image(out: object, _init: Path, _programs: object, _files: object, data: dict[str, bytes]) -> None:
        out.write(data["/lab/job"])  # type: ignore[attr-defined]

    def run_fake(
        self, body: str, timeout_s: float = 20.0, boot_s: float = 10.0, stop_s: float | None = None, **more: object
    ) -> vm.Outcome:
        fake = self.directory / "qemu"
        fake.write_text(_PRELUDE + textwrap.dedent(body))
        fake.chmod(0o755)
        job = vm.Job(
            kernel=self.kernel, argv=["/bin/true"], timeout_s=timeout_s, boot_s=boot_s, stop_s=stop_s, name="fake"
        )
        with mock.patch.object(qemu, "binary", lambda: str(fake)):
            return vm.run(job, **more)  # type: ignore[arg-type]

    def test_pass(self) -> None:
        seen: list[dict[str, object]] = []
        outcome = self.run_fake(
            """
            write("results", '{"n": 1}\\n{"n"')
            time.sleep(0.2)
            write("results", ': 2}\\n')
            write("output", "hello\\n")
            write("verdict", nonce + " exit 0\\n")
            """,
            on_record=seen.append,
        )
        self.assertEqual(outcome.verdict, Verdict.PASSED, outcome.reason)
        self.assertEqual(outcome.records, [{"n": 1}, {"n": 2}])
        self.assertEqual(seen, outcome.records)
        self.assertEqual(outcome.output.read_text(), "hello\n")
        self.assertEqual(outcome.reason, "")

    def test_a_forged_verdict(self) -> None:
        outcome = self.run_fake(
            """
            for name in ("verdict", "output", "results", "console"):
                write(name, "0123 exit 0\\n")
            write("output", nonce + " exit 0\\n")
            """
        )
        self.assertEqual(outcome.verdict, Verdict.DIED)
        self.assertIn(str(outcome.console), outcome.reason)

    def test_a_hang_is_killed_with_all_its_children(self) -> None:
        outcome = self.run_fake(
            """
            child = subprocess.Popen(["sleep", "600"])
            write("output", str(child.pid))
            time.sleep(600)
            """,
            timeout_s=5.0,
        )
        self.assertEqual(outcome.verdict, Verdict.TIMEOUT)
        self.assertLess(outcome.seconds, 60)
        child = int(outcome.output.read_text())
        for _ in range(100):
            try:
                state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                break
            if state == "Z":
                break
            time.sleep(0.02)
        else:
            self.fail("a child of QEMU is still there")

    def test_a_boot_that_hangs_is_repeated_once(self) -> None:
        outcome = self.run_fake(
            """
            if not os.path.exists(os.path.join(os.path.dirname(path("console")), "hung-boot")):
                write("console", "half a bo")
                time.sleep(600)
            write("console", "[    1.0] Run /init as init process\\n")
            time.sleep(2)
            write("verdict", nonce + " exit 0\\n")
            """,
            boot_s=5.0,
        )
        self.assertEqual(outcome.verdict, Verdict.PASSED, outcome.reason)
        first = outcome.console.parent / "hung-boot"
        self.assertIn(str(first), outcome.hung)
        self.assertEqual((first / "console.log").read_text(), "half a bo")
        self.assertIn(" S ", (first / "processors.log").read_text())
        self.assertFalse((first / "initramfs.cpio").exists())

    def test_a_boot_that_hangs_twice_is_a_failure(self) -> None:
        outcome = self.run_fake("time.sleep(600)", boot_s=0.5)
        self.assertEqual(outcome.verdict, Verdict.TIMEOUT)
        self.assertIn("twice: no PID 1 after 0.5 s", outcome.reason)

    def test_a_guest_that_hangs_later_is_not_booted_again(self) -> None:
        outcome = self.run_fake(
            """write("console", "[    1.0] Run /init as init process\\n"); time.sleep(600)""",
            timeout_s=15.0,
            boot_s=10.0,
        )
        self.assertEqual(outcome.verdict, Verdict.TIMEOUT)
        self.assertEqual(outcome.hung, "")
        self.assertIn("no end after 15 s", outcome.reason)

    def test_a_qemu_that_aborts_while_it_boots_is_started_once_more(self) -> None:
        once = """
            if not os.path.exists(os.path.join(os.path.dirname(path("console")), "hung-boot")):
                os.abort()
            write("console", "[    1.0] Run /init as init process\\n")
            time.sleep(2)
            write("verdict", nonce + " exit 0\\n")
            """
        outcome = self.run_fake(once)
        self.assertEqual(outcome.verdict, Verdict.PASSED, outcome.reason)
        self.assertIn("QEMU aborted before PID 1", outcome.hung)
        twice = self.run_fake("os.abort()")
        self.assertEqual(twice.verdict, Verdict.DIED)
        later = self.run_fake('write("console", "[    1.0] Run /init as init process\\n"); time.sleep(2); os.abort()')
        self.assertEqual((later.verdict, later.hung), (Verdict.DIED, ""))

    def test_a_killed_qemu_and_its_last_words(self) -> None:
        outcome = self.run_fake("print('no such device', flush=True); os.kill(os.getpid(), 9)")
        self.assertEqual(outcome.verdict, Verdict.DIED)
        self.assertIn("signal 9", outcome.reason)
        self.assertIn("no such device", outcome.reason)

    def test_a_guest_is_asked_to_stop_and_reports_what_it_has(self) -> None:
        outcome = self.run_fake(
            """
            write("console", "[    1.0] Run /init as init process\\n")
            if b"env=LAB_CONTROL=1\\0" in image and "virtserialport,chardev=control,name=control" in line:
                port = int(re.search(r"id=control,fd=(\\d+)", line)[1])
                begin = time.monotonic()
                word = os.read(port, 100).decode()
                took = time.monotonic() - begin
                write("results", '{"word": "%s", "waited": %s}\\n' % (word.strip(), "true" if took > 0.5 else "false"))
            write("verdict", nonce + " exit 0\\n")
            """,
            stop_s=1.5,
        )
        self.assertEqual(outcome.verdict, Verdict.PASSED, outcome.reason)
        self.assertEqual(outcome.records, [{"word": "stop", "waited": True}])

    def test_a_guest_that_is_never_asked_has_no_such_port(self) -> None:
        outcome = self.run_fake(
            """
            write("results", '{"seen": %s}\\n' % ("true" if "control" in line or b"LAB_CONTROL" in image else "false"))
            write("verdict", nonce + " exit 0\\n")
            """
        )
        self.assertEqual(outcome.records, [{"seen": False}])

    def test_a_guest_that_does_not_listen_is_killed(self) -> None:
        outcome = self.run_fake("time.sleep(600)", timeout_s=3.0, stop_s=1.0)
        self.assertEqual(outcome.verdict, Verdict.TIMEOUT)
        self.assertEqual(outcome.cause, "no end after 3 s, asked to stop after 1 s; QEMU was killed")

    def cause(self, body: str) -> str:
        """Of a failed run, as the error has it."""
        outcome = self.run_fake(body)
        with self.assertRaises(LabError) as caught:
            outcome.check("the cell")
        error = caught.exception
        self.assertEqual((error.code, error.log), (Exit.GUEST_FAILED, outcome.output))
        self.assertTrue(str(error).startswith(f"the cell: {error.cause}"), error)
        self.assertIn(str(outcome.console), str(error))
        return error.cause

    def test_the_cause_is_what_the_workload_reported(self) -> None:
        said = self.cause(
            """
            write("output", "lab-guest bench: start server: it ended; it said: redis-server: no locale\\n")
            write("results", '{"type": "failure", "cause": "redis-server: no locale"}\\n')
            write("verdict", nonce + " exit 1\\n")
            """
        )
        self.assertEqual(said, "redis-server: no locale")

    def test_else_the_last_line_of_the_output(self) -> None:
        said = self.cause("""write("output", "one\\ntwo: why\\n\\n"); write("verdict", nonce + " exit 7\\n")""")
        self.assertEqual(said, "two: why")

    def test_else_how_it_ended(self) -> None:
        self.assertEqual(self.cause("""write("verdict", nonce + " exit 7\\n")"""), "exit code 7")

    def test_a_full_disk_is_named(self) -> None:
        with mock.patch("lab.vm.machine.space.free_mib", side_effect=[1 << 20, 0]):
            outcome = self.run_fake("""write("results", '{"n"'); write("verdict", nonce + " exit 0\\n")""")
        self.assertIn("the disk of", outcome.why)

    def test_a_guest_is_not_begun_without_room_for_it(self) -> None:
        with (
            mock.patch("lab.vm.machine.space.free_mib", return_value=17),
            mock.patch("lab.space.free_mib", return_value=17),
            self.assertRaises(LabError) as caught,
        ):
            self.run_fake("")
        self.assertEqual(caught.exception.code, Exit.SPACE)
        self.assertIn("where 17 MiB are free", str(caught.exception))

    def test_a_line_cut_off(self) -> None:
        outcome = self.run_fake("""write("results", '{"n": 1'); write("verdict", nonce + " exit 0\\n")""")
        self.assertEqual(outcome.verdict, Verdict.FAILED)
        self.assertEqual(outcome.records, [])

    def test_an_endless_writer_is_stopped(self) -> None:
        with mock.patch.object(machine, "_CHANNEL_LIMIT", 1 << 20):
            outcome = self.run_fake("while True: write('output', 'x' * 65536)")
        self.assertEqual(outcome.verdict, Verdict.TIMEOUT)
        self.assertIn("MiB in output.log", outcome.reason)

    def test_the_nonce_does_not_stay_on_disk(self) -> None:
        outcome = self.run_fake("""write("verdict", nonce + " exit 0\\n")""")
        self.assertFalse((outcome.console.parent / "initramfs.cpio").exists())

    def test_an_exception_in_the_callback_ends_qemu(self) -> None:
        def stop(_: object) -> None:
            raise KeyboardInterrupt

        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            self.run_fake("""write("results", "{}\\n"); time.sleep(600)""", on_record=stop)
        self.assertLess(time.monotonic() - begin, 10)

    def test_what_prevents_a_start_is_raised(self) -> None:
        with self.assertRaises(LabError) as caught:
            vm.run(vm.Job(kernel=self.directory / "gone", argv=["x"]))
        self.assertEqual(caught.exception.code, Exit.QEMU)
        for bad in ("", "../x", "a b"):
            with self.assertRaises(ValueError):
                vm.run(vm.Job(kernel=self.kernel, argv=["x"], name=bad, emulator=qemu.Emulator("q")))


class Command(unittest.TestCase):
    def test_counted_time_has_one_thread(self) -> None:
        files = qemu.Files(Path("i"), Path("c,d"), {name: Path(name) for name in qemu.PORTS})
        argv = qemu.command("q", Path("k"), files, mode=qemu.Mode.ICOUNT, memory_mib=64, cpus=1, append="psi=0")
        self.assertIn("shift=0,sleep=off", argv)
        self.assertIn("file,id=console,path=c,,d", argv)
        self.assertTrue(argv[argv.index("-append") + 1].endswith(" nolapic_timer psi=0"))
        several = qemu.command("q", Path("k"), files, mode=qemu.Mode.ICOUNT, memory_mib=64, cpus=8, append="")
        self.assertIn("tcg,thread=single", several)
        self.assertIn("8,sockets=1", several)
        # Only one processor can do without that timer.
        self.assertNotIn("nolapic_timer", several[several.index("-append") + 1])

    def test_one_thread_for_several_cpus(self) -> None:
        files = qemu.Files(Path("i"), Path("c"), {name: Path(name) for name in qemu.PORTS})
        argv = qemu.command("q", Path("k"), files, mode=qemu.Mode.SINGLE, memory_mib=64, cpus=2, append="")
        self.assertIn("tcg,thread=single", argv)
        self.assertNotIn("-icount", argv)

    def test_nodes_share_memory_and_processors(self) -> None:
        files = qemu.Files(Path("i"), Path("c"), {name: Path(name) for name in qemu.PORTS})

        def argv(memory_mib: int, nodes: int) -> list[str]:
            tcg = qemu.Mode.TCG
            return qemu.command("q", Path("k"), files, mode=tcg, memory_mib=memory_mib, cpus=4, append="", nodes=nodes)

        self.assertNotIn("-numa", argv(64, 1))
        two = argv(64, 2)
        self.assertIn("memory-backend-ram,id=node1,size=32M", two)
        self.assertIn("node,nodeid=0,memdev=node0,cpus=0-1", two)
        self.assertIn("node,nodeid=1,memdev=node1,cpus=2-3", two)
        # More nodes than processors: the last ones have memory only.
        self.assertIn("node,nodeid=4,memdev=node4", argv(320, 5))
        with self.assertRaises(ValueError):
            argv(65, 2)
