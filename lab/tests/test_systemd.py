# SPDX-License-Identifier: GPL-2.0-only
"""Machines with systemd as PID 1: how the end of one is judged."""

import tempfile
import unittest
from pathlib import Path

from lab.checks import systemd
from lab.checks.result import Status, Suite


class WatchTest(unittest.TestCase):
    """A shell stands for QEMU."""

    def run_in(self, script: str, limit_s: float = 60) -> Suite:
        suite = Suite("machine")
        with tempfile.TemporaryDirectory() as directory:
            console, said = Path(directory, "console"), Path(directory, "said")
            console.touch()
            said.touch()
            argv = ["/bin/sh", "-c", script, str(said), str(console)]
            systemd.watch(argv, Path(directory, "log"), console, said, limit_s, suite, "boot 7")
        return suite

    def failed(self, suite: Suite) -> list[str]:
        return [test.name for test in suite.tests if test.status is Status.FAILED]

    def test_one_that_ends_well(self) -> None:
        suite = self.run_in('printf "ok 1 a\\nok 2 b\\n1..2\\n" > "$0"')
        self.assertEqual((len(suite.tests), self.failed(suite)), (2, []))

    def test_silence_an_exit_code_and_a_limit_are_failures(self) -> None:
        for script, limit_s in (
            ("true", 60),
            ('printf "ok 1 a\\n1..1\\n" > "$0"; exit 3', 60),
            ('printf "ok 1 a\\n1..1\\n" > "$0"; sleep 60', 0.5),
        ):
            self.assertEqual(self.failed(self.run_in(script, limit_s)), ["(boot 7)"], script)

    def test_a_complaint_of_the_kernel_is_one(self) -> None:
        suite = self.run_in('printf "ok 1 a\\n1..1\\n" > "$0"; echo "[ 1.0] WARNING: CPU: 0 PID: 1 at x" > "$1"')
        self.assertEqual(self.failed(suite), ["(boot 7: the kernel's log)"])
