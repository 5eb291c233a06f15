# SPDX-License-Identifier: GPL-2.0-only
"""Unit tests that run on the host: Rust's (tests/decide.rs runs the C tests of the decision) and the lab's own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import proc, programs
from lab.checks import libtest, tap
from lab.checks.result import Suite
from lab.errors import Exit, LabError
from lab.paths import BUILD, REPO

_TIMEOUT_S = 600.0
_LOGS = BUILD / "log" / "test"


def run_program(
    name: str,
    argv: Sequence[str],
    parse: Callable[[str, Suite], None],
    cwd: Path = REPO,
    env: Mapping[str, str] | None = None,
) -> Suite:
    """Runs one test program and reads its report; its death or its silence is a failure."""
    suite = Suite(name)
    begin = time.monotonic()
    log = _LOGS / f"{name.replace('/', '-').replace(' ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    suite.logs.append(log)
    with log.open("wb") as out:
        process = proc.start(argv, stdout=out, stderr=subprocess.STDOUT, cwd=cwd, env=env)
        problem = ""
        try:
            status = process.wait(timeout=_TIMEOUT_S)
            if status != 0:
                problem = f"killed by signal {-status}" if status < 0 else f"exit code {status}"
        except subprocess.TimeoutExpired:
            problem = f"no end after {_TIMEOUT_S:g} s; killed"
        finally:
            proc.stop(process)
    parse(log.read_text(errors="replace"), suite)
    if problem:
        problem += f"; the end of its output:\n{proc.tail(log)}"
    suite.settle(problem)
    suite.seconds = time.monotonic() - begin
    return suite


def python_tests() -> Suite:
    """The unit tests of every `tests` package below lab/."""
    directories = sorted(str(path) for path in (REPO / "lab").rglob("tests") if (path / "__init__.py").exists())
    return run_program("lab", [sys.executable, "-m", "lab.checks.pyrunner", *directories], tap.parse)


@dataclass(frozen=True)
class RustTest:
    """A test program that cargo built."""

    name: str
    """Name of its target: the package for unit tests, the file for integration tests."""
    integration: bool
    program: Path
    package: Path


def build_rust_tests(only: Sequence[str] = ()) -> list[RustTest]:
    """Builds every test program of the workspace, or `only` these of tests/, without running any."""
    words = ["--workspace", *(word for name in only for word in ("--test", name))]
    return sorted(cargo_tests(words, _LOGS / "cargo-test-build.log"), key=lambda test: test.name)


def cargo_tests(
    words: Sequence[str], log: Path, cwd: Path = REPO, env: Mapping[str, str] | None = None
) -> list[RustTest]:
    """Builds the test programs that `words` select, without running any; LabError with the end of `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    artifacts = log.with_suffix(".json")
    argv = [programs.cargo(), "test", "--no-run", "--locked", *words, "--message-format=json-render-diagnostics"]
    with artifacts.open("wb") as out, log.open("wb") as err:
        process = proc.start(argv, stdout=out, stderr=err, cwd=cwd, env=env or programs.environment())
        try:
            status = process.wait()
        finally:
            proc.stop(process)
    if status != 0:
        raise LabError(Exit.BUILD, f"building the Rust tests failed; the end of {log}:\n{proc.tail(log, 40)}")
    messages = [json.loads(line) for line in artifacts.read_text().splitlines()]
    return [
        RustTest(
            name=message["target"]["name"],
            integration="test" in message["target"]["kind"],
            program=Path(message["executable"]),
            package=Path(message["manifest_path"]).parent,
        )
        for message in messages
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]
    ]


def rust_tests(tests: Sequence[RustTest]) -> list[Suite]:
    """Runs those of the built test programs that need no VM."""
    return [_rust_test(test) for test in tests]


def pages(test: RustTest, names: Sequence[str]) -> Suite:
    """The form of these pages, and their commands for the host; `test` is tests/docs.rs."""
    only = ["every_block_of_commands_says_where_it_runs", "blocks_for_the_host_do_what_the_page_shows"]
    return _rust_test(test, {"LAB_ONLY_PAGES": " ".join(names)}, only)


def _rust_test(test: RustTest, env: Mapping[str, str] | None = None, only: Sequence[str] = ()) -> Suite:
    env = {**programs.environment(), "CARGO_MANIFEST_DIR": str(test.package), "RUST_BACKTRACE": "1", **(env or {})}
    # libtest takes the words for parts of names.
    argv = [str(test.program), *only]
    return run_program(f"rust/{test.name}", argv, libtest.parse, cwd=test.package, env=env)
