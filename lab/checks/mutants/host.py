# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of the program: built in a copy of the repository, run with the unit tests that they name."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lab import proc, programs
from lab.checks import libtest
from lab.checks.host import cargo_tests
from lab.checks.mutants.judge import Seen
from lab.checks.mutants.patches import Catch, How, Mutant
from lab.checks.result import Suite
from lab.errors import Exit, LabError
from lab.kernel import series
from lab.paths import BUILD, REPO

_PLACE = BUILD / "mutants"
_TREE = _PLACE / "tree"
_LOGS = BUILD / "log" / "mutants"
_TIMEOUT_S = 60.0
"""For one test program with the named tests only; they take a second or two."""


def _files() -> list[str]:
    """What the repository consists of, also what is not committed yet."""
    argv = [*proc.GIT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    text = proc.output(argv, what="listing the repository", code=Exit.TREE, cwd=REPO)
    return [name for name in text.split("\0") if name and (REPO / name).is_file()]


def _put(target: Path, content: bytes) -> None:
    # cargo goes by times as well: only what differs is written.
    if target.is_file() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def prepare(mutant: Mutant | None) -> None:
    """Brings the copy to the repository's content, with the mutant if there is one."""
    names = _files()
    scratch = _PLACE / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    touched: set[str] = set()
    if mutant:

        def pristine(path: str) -> Path | None:
            return REPO / path if (REPO / path).is_file() else None

        touched = series.compose([mutant.patch], pristine, scratch, "(this repository)")
    for name in names:
        source = (scratch if name in touched else REPO) / name
        _put(_TREE / name, source.read_bytes())
        shutil.copymode(REPO / name, _TREE / name)


def _environment() -> dict[str, str]:
    # Results of its own: the binary in the usual place must never be that of a mutant.
    return programs.environment() | {"CARGO_TARGET_DIR": str(_PLACE / "cargo"), "RUST_BACKTRACE": "0"}


def build(names: set[str]) -> dict[str, Path]:
    """Builds the test programs of these names in the copy; LabError where one does not build."""
    targets = [word for name in sorted(names) for word in (["--lib"] if name == "mthp_ext" else ["--test", name])]
    tests = cargo_tests(["--package", "mthp_ext", *targets], _LOGS / "cargo.log", _TREE, _environment())
    found = {test.name: test.program for test in tests}
    if missing := sorted(names - set(found)):
        raise LabError(Exit.BUILD, f"cargo built no test program {missing[0]}")
    return found


def run(catches: Iterable[Catch]) -> list[Seen]:
    """Builds and runs the tests of `catches`, one process for each program."""
    wanted: dict[str, list[str]] = {}
    for catch in catches:
        if catch.how is How.TEST:
            wanted.setdefault(catch.program, []).append(catch.test)
    built = build(set(wanted))
    return [_run(program, built[program], sorted(set(tests))) for program, tests in wanted.items()]


def _run(program: str, path: Path, tests: list[str]) -> Seen:
    log = _LOGS / f"{program}.log"
    suite = Suite(program)
    ended = True
    with log.open("wb") as out:
        env = _environment() | {"CARGO_MANIFEST_DIR": str(_TREE)}
        argv = [str(path), "--exact", "--test-threads=1", *tests]
        process = proc.start(argv, stdout=out, stderr=subprocess.STDOUT, cwd=_TREE, env=env)
        try:
            # 101: a test failed. Any other end is not a test's verdict.
            ended = process.wait(timeout=_TIMEOUT_S) in (0, 101)
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            proc.stop(process)
    # A test that never ends is reported as one that failed.
    libtest.parse(log.read_text(errors="replace"), suite)
    return Seen(program, {test.name: test.status for test in suite.tests}, ended=ended)
