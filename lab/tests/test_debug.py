# SPDX-License-Identifier: GPL-2.0-only
"""Selftests that share a guest: whose output is whose, and who did not end."""

import unittest

from lab.testing import debug
from lab.testing.guest import SELFTEST_BOOTS, SelftestBoot

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


class CommandLines(unittest.TestCase):
    def test_unusual_boots_are_left_out(self) -> None:
        SELFTEST_BOOTS["mthp_zz"] = {
            "": SelftestBoot(only=("one",)),
            "psi_off": SelftestBoot(append="psi=0"),
            "v1": SelftestBoot(env={"LAB_CONTROLLERS": "cpu"}),
        }
        self.addCleanup(SELFTEST_BOOTS.pop, "mthp_zz")
        lines = debug.command_lines(["mthp_yy", "mthp_zz"])
        self.assertEqual(lines, [("mthp_yy", ["mthp_yy"]), ("mthp_zz", ["mthp_zz", "-t", "one"])])
