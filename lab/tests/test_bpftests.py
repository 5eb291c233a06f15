# SPDX-License-Identifier: GPL-2.0-only
"""What test_progs prints, and what is made of it."""

import unittest

from lab.checks import bpftests
from lab.checks.result import Status, Suite

_PASSED = """\
#1/1     struct_ops_cgroup/attach:OK
#1/2     struct_ops_cgroup/module:SKIP
#1       struct_ops_cgroup:OK (SKIP: 1/2)
Summary: 1/1 PASSED, 1 SKIPPED, 0/0 FAILED
"""
_FAILED = """\
#1/1     struct_ops_cgroup/attach:OK
test_rmdir:FAIL:hup unexpected hup: got FALSE
#1/2     struct_ops_cgroup/rmdir:FAIL
#1       struct_ops_cgroup:FAIL

All error logs:
test_rmdir:PASS:attach 0 nsec
test_rmdir:FAIL:hup unexpected hup: got FALSE
#1/2     struct_ops_cgroup/rmdir:FAIL
#1       struct_ops_cgroup:FAIL
Summary: 0/1 PASSED, 0 SKIPPED, 1/1 FAILED
"""


def _parsed(text: str) -> Suite:
    suite = Suite("s")
    bpftests.parse(text, suite)
    return suite


class Parsing(unittest.TestCase):
    def test_each_subtest_counts_once(self) -> None:
        suite = _parsed(_PASSED)
        self.assertEqual(
            [(test.name, test.status) for test in suite.tests],
            [("struct_ops_cgroup/attach", Status.PASSED), ("struct_ops_cgroup/module", Status.SKIPPED)],
        )

    def test_a_failure_brings_its_log(self) -> None:
        suite = _parsed(_FAILED)
        self.assertEqual([test.status for test in suite.tests], [Status.PASSED, Status.FAILED])
        self.assertIn("test_rmdir:FAIL:hup", suite.tests[1].detail)

    def test_an_end_before_the_summary_is_a_failure(self) -> None:
        for cut in (_PASSED.rpartition("Summary")[0], ""):
            self.assertEqual(_parsed(cut).tests[-1].status, Status.FAILED)

    def test_the_numbers_must_agree(self) -> None:
        suite = _parsed(_PASSED.replace("1/1 PASSED", "1/2 PASSED"))
        self.assertEqual(suite.tests[-1].name, "(summary)")
