# SPDX-License-Identifier: GPL-2.0-only
"""The soak's guest: what runs beside the soak, and what its end is judged by."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab.checks import soak
from lab.checks.result import Suite
from lab.errors import LabError
from lab.vm import Outcome, Verdict

_SOAK = """#!/bin/sh
mkdir -p {cgroups}/mthp_soak.$$/spare/leaf
echo "$@" >{seen}
sleep 1.5
rm -r {cgroups}/mthp_soak.$$
exit 3
"""
_ENDLESS = "#!/bin/sh\nexec sleep 60\n"


class Beside(unittest.TestCase):
    """The script, with a soak and a daemon that do nothing."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)
        self.results = self.directory / "results"

    def program(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text.format(cgroups=self.directory, seen=self.directory / "seen"))
        path.chmod(0o755)
        return path

    def run_script(
        self, daemon: str, soaking: str = _SOAK, seconds: int = 60
    ) -> tuple[int, dict[str, tuple[int, int]]]:
        """Its exit code, and its sums: got and wanted."""
        argv = soak.command(self.program("soak", soaking), self.program("daemon", daemon), seconds, 7)
        argv[2] = argv[2].replace("/sys/fs/cgroup", str(self.directory))
        done = subprocess.run(
            argv, env={"PATH": "/usr/bin:/bin", "LAB_RESULTS": str(self.results)}, timeout=60, check=False
        )
        records = [json.loads(line) for line in self.results.read_text().splitlines()]
        return done.returncode, {one["name"]: (one["got"], one["wanted"]) for one in records}

    def test_all_are_killed(self) -> None:
        code, sums = self.run_script(_ENDLESS)
        self.assertEqual(code, 3, "the soak's own")
        self.assertEqual(sums["daemons started"], (1, 1))
        self.assertEqual(len(set(sums["daemons killed"])), 1)
        self.assertGreater(sums["daemons killed"][0], 0)
        self.assertEqual(
            (self.directory / "seen").read_text().split(), ["-t", "60", "-s", "7", "-o", str(self.results)]
        )

    def test_one_that_ends_by_itself_is_seen(self) -> None:
        _, sums = self.run_script("#!/bin/sh\nexit 1\n")
        killed, started = sums["daemons killed"]
        self.assertLess(killed, started)

    def test_a_soak_that_does_not_begin_is_not_waited_for(self) -> None:
        code, sums = self.run_script(_ENDLESS, "#!/bin/sh\nexit 4\n")
        self.assertEqual((code, sums["daemons started"]), (4, (0, 1)))

    def test_nothing_is_started_shortly_before_the_end(self) -> None:
        _, sums = self.run_script(_ENDLESS, seconds=15)
        self.assertEqual(sums["daemons started"], (0, 1))


def kernel_with(hook: bool) -> mock.Mock:
    """A kernel, with PREEMPT_RT if it has no hook."""
    return mock.Mock(has=lambda option: hook and option == "BPF_TRANSPARENT_HUGEPAGE")


class Gates(unittest.TestCase):
    """What a run is judged by."""

    def failing(self, console: str, sums: int = 40) -> list[str]:
        """Names of the gates that a run with this console fails."""
        record = {"type": "sum", "name": "one", "got": 1, "wanted": 1}
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "console")
            path.write_text(console)
            outcome = Outcome(Verdict.PASSED, 0, [record] * sums, path, path, 1.0)
            return [one.name for one in soak.gates(outcome, Suite("soak"), kernel_with(True)) if not one.ok]

    def test_lockdep_must_have_seen_each_chain(self) -> None:
        console = "".join(f"[ 1.0] {text}\n" for text in soak.checked(kernel_with(True)))
        self.assertEqual(self.failing(console), [])
        for chain in soak.LOCKS:
            left = console.replace(f"saw {chain}", "did not see it")
            self.assertEqual(self.failing(left), [f"the guest said: lab-guest: lockdep saw {chain}"])

    def test_a_kernel_without_the_hook_takes_no_such_locks(self) -> None:
        self.assertEqual(soak.env(kernel_with(True))["LAB_LOCKS"], "; ".join(soak.LOCKS))
        self.assertEqual(soak.env(kernel_with(False)), {"LAB_LEAKS": "1"})
        said = soak.checked(kernel_with(False))
        self.assertEqual(said, ("lab-guest: lockdep is on", "lab-guest: no leaks"))

    def test_sums_must_be_there(self) -> None:
        self.assertIn("sums taken", self.failing("", sums=20))


class Refused(unittest.TestCase):
    """Soaks that are none."""

    def test_what_cannot_be(self) -> None:
        for minutes, preempt in ((0.1, ""), (1, "rt"), (1, "some")):
            with (
                self.subTest(minutes=minutes, preempt=preempt),
                mock.patch("lab.setup.ensure") as ensure,
                self.assertRaises(LabError),
            ):
                soak.main(minutes, 1, preempt)
            ensure.assert_not_called()
