# SPDX-License-Identifier: GPL-2.0-only
"""Selftests that share a guest: whose output is whose, and who did not end."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab.checks import debug, soak
from lab.checks.guest import SELFTEST_BOOTS, SelftestBoot
from lab.checks.result import Status
from lab.vm import Outcome, Verdict

_TEXT = """== lab: begin mthp_a
TAP version 13
1..1
ok 1 one
== lab: end mthp_a 0
== lab: begin mthp_b
1..2
ok 1 one
"""


class Sections(unittest.TestCase):
    def test_split(self) -> None:
        found = debug.sections(_TEXT)
        self.assertEqual({name: code for name, (code, _) in found.items()}, {"mthp_a": 0, "mthp_b": None})
        self.assertIn("ok 1 one", found["mthp_b"][1])
        self.assertNotIn("1..2", found["mthp_a"][1])

    def test_the_end_of_another_is_none(self) -> None:
        found = debug.sections("== lab: begin mthp_a\n== lab: end mthp_b 0\n")
        self.assertIsNone(found["mthp_a"][0])


class Log(unittest.TestCase):
    def test_what_the_guest_has_to_say_goes_by_the_kernel(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "console")
            path.write_text("[ 1.0] lab-guest: lockdep is on\n[ 2.0] lab-guest: no leaks\n")
            outcome = Outcome(Verdict.PASSED, 0, [], path, path, 1.0)
            for hook in (False, True):
                kernel = mock.Mock(has=mock.Mock(return_value=hook))
                failed = debug.log(outcome, soak.checked(kernel)).count(Status.FAILED)
                self.assertEqual(failed, len(soak.LOCKS) if hook else 0)


class CommandLines(unittest.TestCase):
    def test_unusual_boots_are_left_out(self) -> None:
        SELFTEST_BOOTS["mthp_zz"] = {
            "": SelftestBoot(only=("one",)),
            "psi_off": SelftestBoot(append="psi=0"),
            "v1": SelftestBoot(env={"LAB_CONTROLLERS": "cpu"}),
            "8cpu": SelftestBoot(cpus=8, only=("one",)),
            "2nodes": SelftestBoot(nodes=2),
        }
        self.addCleanup(SELFTEST_BOOTS.pop, "mthp_zz")
        lines = debug.command_lines(["mthp_yy", "mthp_zz"])
        self.assertEqual(lines, [("mthp_yy", ["mthp_yy"]), ("mthp_zz", ["mthp_zz", "-t", "one"])])
