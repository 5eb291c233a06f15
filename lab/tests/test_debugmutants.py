# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of the kernel for debugging: what their patches must say."""

import tempfile
import unittest
from pathlib import Path

from lab.checks import debugmutants
from lab.errors import LabError

_HUNK = "--- a/mm/a.c\n+++ b/mm/a.c\n@@ -1 +1 @@\n-Test: no\n+Seen-as: no\n"


class Load(unittest.TestCase):
    def load(self, head: str) -> debugmutants.Mutant:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "one.patch"
            path.write_text(f"{head}\n{_HUNK}")
            return debugmutants.load(path)

    def test_all_there(self) -> None:
        for path in sorted(debugmutants.DIRECTORY.glob("*.patch")):
            mutant = debugmutants.load(path)
            self.assertTrue(mutant.test.startswith("mthp_"), path)
            self.assertTrue(mutant.patch.files(), path)

    def test_the_head_counts(self) -> None:
        mutant = self.load("Why.\n\nTest: mthp_x\nSeen-as: BUG: KASAN\n")
        self.assertEqual((mutant.test, mutant.seen_as), ("mthp_x", "BUG: KASAN"))

    def test_a_hunk_does_not(self) -> None:
        with self.assertRaisesRegex(LabError, "Seen-as and Test"):
            self.load("Why.\n")
