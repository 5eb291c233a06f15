# SPDX-License-Identifier: GPL-2.0-only
"""What can go wrong in the lab, each with the exit code of `python3 -m lab` (docs/internals/lab.md lists them)."""

import errno
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit codes of `python3 -m lab`. `make` itself always answers 2 and prints the code it saw."""

    OK = 0
    TESTS = 1
    USAGE = 2
    HOST = 10
    PRIVILEGE = 11
    INSTALL = 12
    SPACE = 13
    DIRECTORY = 14
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
    """A failure that ends in one message to the user: what failed, the likely reason, what to do."""

    def __init__(self, code: Exit, message: str, *, cause: str = "", log: Path | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.cause = cause or message.partition("\n")[0]
        """In one line, without what it happened to: two runs that fail for the same cause have the same."""
        self.log = log
        """Where more is to be read, if anywhere."""


_REMEDIES = {
    errno.ENOSPC: (Exit.SPACE, "make room there"),
    errno.EDQUOT: (Exit.SPACE, "this user's quota is used up; make room there"),
    errno.EACCES: (Exit.DIRECTORY, "likely an earlier run of another user made it; change its owner, or remove it"),
    errno.EPERM: (Exit.DIRECTORY, "likely an earlier run of another user made it; change its owner, or remove it"),
    errno.EROFS: (Exit.DIRECTORY, "use a checkout, and a cache (MTHP_CACHE), that can be written"),
}


def of_host(error: OSError) -> LabError:
    """What a call to the host's system failed with, and what helps where that is known."""
    code, remedy = _REMEDIES.get(error.errno or 0, (Exit.HOST, ""))
    what = f"{error.filename}: " if error.filename else ""
    return LabError(code, f"{what}{error.strerror or error}{f'; {remedy}' if remedy else ''}")
