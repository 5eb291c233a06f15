# SPDX-License-Identifier: GPL-2.0-only
"""What can go wrong in the lab, each with the exit code of `python3 -m lab` (docs/internals/lab.md lists them)."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `python3 -m lab`. `make` itself always answers 2 and prints the code it saw."""

    OK = 0
    TESTS = 1
    USAGE = 2
    HOST = 10
    PRIVILEGE = 11
    INSTALL = 12
    SOURCE = 20
    PATCH = 21
    CONFIG = 22
    BUILD = 23
    TREE = 24
    QEMU = 30
    GUEST_FAILED = 31
    GUEST_PANIC = 32
    GUEST_TIMEOUT = 33
    GUEST_DIED = 34
    INTERRUPTED = 130


class LabError(Exception):
    """A failure the user is told about in one message: what failed, the likely reason, what to do."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code
