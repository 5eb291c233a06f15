# SPDX-License-Identifier: GPL-2.0-only
"""Runs the lab's own unit tests and prints TAP: `python3 -m lab.checks.pyrunner DIRECTORY...`."""

import sys
import traceback
import unittest
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

_Info: TypeAlias = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class _Tap(unittest.TestResult):
    number = 0

    def _say(self, test: unittest.TestCase, ok: bool, note: str = "", error: _Info | None = None) -> None:
        if error is not None and error[0] is not None:
            for line in "".join(traceback.format_exception(*error)).splitlines():
                print(f"# {line}")
        self.number += 1
        print(f"{'ok' if ok else 'not ok'} {self.number} {test.id()}{note}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        self._say(test, True)

    def addFailure(self, test: unittest.TestCase, err: _Info) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._say(test, False, error=err)

    def addError(self, test: unittest.TestCase, err: _Info) -> None:  # noqa: N802
        super().addError(test, err)
        self._say(test, False, error=err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._say(test, True, f" # SKIP {reason}")

    def addSubTest(  # noqa: N802
        self, test: unittest.TestCase, subtest: unittest.TestCase, err: _Info | None
    ) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._say(subtest, False, error=err)


def main(directories: list[str]) -> int:
    """Discovers and runs; 1 when a test failed."""
    top = str(Path(__file__).resolve().parent.parent.parent)
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.discover(directory, top_level_dir=top) for directory in directories
    )
    result = _Tap()
    print("TAP version 13")
    suite.run(result)
    print(f"1..{result.number}")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
