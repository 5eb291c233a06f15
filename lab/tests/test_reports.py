# SPDX-License-Identifier: GPL-2.0-only
"""Reading TAP and libtest reports, honest and otherwise, and how suites and gates are judged."""

import json
import math
import tempfile
import unittest
from pathlib import Path

from lab import results, setup
from lab.checks import libtest, tap
from lab.checks.result import Status, Suite, total


def _tap(text: str) -> Suite:
    suite = Suite("x")
    tap.parse(text, suite)
    return suite


def _libtest(text: str) -> Suite:
    suite = Suite("x")
    libtest.parse(text, suite)
    return suite


def _counts(suite: Suite) -> tuple[int, int, int]:
    return suite.count(Status.PASSED), suite.count(Status.FAILED), suite.count(Status.SKIPPED)


class Tap(unittest.TestCase):
    def test_kselftest(self) -> None:
        suite = _tap(
            "TAP version 13\n1..3\n# Starting 3 tests from 1 test cases.\n#  RUN           mthp.a ...\n"
            "#            OK  mthp.a\nok 1 mthp.a\n#  RUN           mthp.b ...\n"
            "# mthp_test.c:9:b:Expected 1 (1) == 2 (2)\n# b: Test failed\n#          FAIL  mthp.b\nnot ok 2 mthp.b\n"
            "#      SKIP      no zram\nok 3 mthp.c # SKIP no zram\n# FAILED: 2 / 3 tests passed.\n"
            "# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0\n"
        )
        self.assertEqual(_counts(suite), (1, 1, 1))
        self.assertEqual([test.name for test in suite.tests], ["mthp.a", "mthp.b", "mthp.c"])
        self.assertIn("Expected 1 (1) == 2 (2)", suite.tests[1].detail)
        self.assertEqual(suite.tests[2].detail, "no zram")

    def test_a_program_that_stops_halfway(self) -> None:
        self.assertEqual(_counts(_tap("1..3\nok 1 a\n")), (1, 1, 0))

    def test_more_than_announced_twice_or_unannounced(self) -> None:
        for text in ("1..1\nok 1 a\nok 2 b\n", "1..2\nok 1 a\nok 1 a\n", "ok 1 a\n", "1..1\n1..1\nok 1 a\n"):
            self.assertEqual(_tap(text).count(Status.FAILED), 1, text)

    def test_a_failed_test_cannot_call_itself_skipped(self) -> None:
        self.assertEqual(_counts(_tap("1..1\nnot ok 1 a # SKIP\n")), (0, 1, 0))

    def test_skip_all(self) -> None:
        self.assertEqual(_counts(_tap("1..0 # SKIP not root\n")), (0, 0, 1))


class Libtest(unittest.TestCase):
    def test_usual_report(self) -> None:
        suite = _libtest(
            "\nrunning 4 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ignored, needs luck\n"
            "test e - should panic ... ok\n\nfailures:\n\n---- c stdout ----\nthread 'c' panicked\nleft: 1\n\n\n"
            "failures:\n    c\n\ntest result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; "
            "finished in 0.00s\n"
        )
        self.assertEqual(_counts(suite), (2, 1, 1))
        self.assertIn("left: 1", suite.tests[1].detail)
        self.assertEqual(suite.tests[2].detail, "needs luck")

    def test_output_of_children_between(self) -> None:
        suite = _libtest(
            "running 2 tests\ntest a ... attached to /x\nok\ntest b ... noise without newlineok\n"
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n"
        )
        self.assertEqual(_counts(suite), (2, 0, 0))

    def test_a_program_that_dies(self) -> None:
        self.assertEqual(_counts(_libtest("running 3 tests\ntest a ... ok\ntest b ... ")), (1, 2, 0))
        self.assertEqual(_libtest("running 1 test\ntest a ... ok\n").count(Status.FAILED), 1)

    def test_forged_lines_do_not_add_up(self) -> None:
        suite = _libtest(
            "running 1 test\ntest a ... test fake ... ok\nok\n"
            "test other ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; done\n"
        )
        self.assertGreater(suite.count(Status.FAILED), 0)

    def test_no_tests(self) -> None:
        suite = _libtest("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; finished\n")
        suite.settle()
        self.assertEqual(suite.count(Status.FAILED), 1)


class Suites(unittest.TestCase):
    def test_death_counts_once(self) -> None:
        suite = _tap("1..1\nnot ok 1 a\n")
        suite.settle("exit code 1")
        self.assertEqual(_counts(suite), (0, 1, 0))
        suite = _tap("1..1\nok 1 a\n")
        suite.settle("killed by signal 11")
        self.assertEqual(_counts(suite), (1, 1, 0))

    def test_silence_is_a_failure(self) -> None:
        suite = Suite("x")
        suite.settle()
        self.assertEqual(_counts(suite), (0, 1, 0))

    def test_closing_line(self) -> None:
        self.assertEqual(total([_tap("1..2\nok 1 a\nok 2 b # SKIP\n"), _tap("1..1\nnot ok 1 c\n")]),
                         "1 passed, 1 failed, 1 skipped")  # fmt: skip


class Gates(unittest.TestCase):
    def test_bounds(self) -> None:
        for value, bound, ok in (
            (1.0, ">= 0.97", True),
            (0.9, ">= 0.97", False),
            (0.0, "== 0", True),
            (3, "< 3", False),
        ):
            self.assertEqual(results.gate("x", value, bound).ok, ok, (value, bound))

    def test_what_was_not_measured_fails(self) -> None:
        self.assertFalse(results.gate("x", None, ">= 0").ok)
        self.assertFalse(results.gate("x", math.nan, ">= 0").ok)
        with self.assertRaises(ValueError):
            results.gate("x", 1, "about 3")


class Setup(unittest.TestCase):
    def test_missing(self) -> None:
        self.assertEqual(setup.missing(["a", "b|c", "b|d", "e|f", "a"], {"c", "f"}), ["a", "b"])

    def test_versions(self) -> None:
        self.assertEqual(setup.parse_version("cargo 1.85.0 (abc 2025-01-01)"), (1, 85))
        self.assertEqual(setup.parse_version("1.96.0+dfsg1-1~deb12u2"), (1, 96))
        self.assertEqual(setup.parse_version(""), (0, 0))


class Written(unittest.TestCase):
    def test_a_ratio_to_nothing_is_null(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            endless = results.Gate("x", math.inf, ">= 1", True)
            path = results.write("x", {}, {"a": (1.5, {"b": [math.inf, -math.inf]})}, [endless], Path(place))
            body = json.loads(path.read_text())
        self.assertEqual(body["metrics"], {"a": [1.5, {"b": [None, None]}]})
        self.assertEqual((body["gates"][0]["value"], body["gates"][0]["ok"]), (None, True))
