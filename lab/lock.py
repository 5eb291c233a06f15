# SPDX-License-Identifier: GPL-2.0-only
"""One user of the shared cache at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from lab.paths import cache


@contextmanager
def locked(name: str) -> Iterator[int]:
    """Holds the cache's lock `name`, waiting for it if need be; yields its descriptor.

    A child that inherits the descriptor keeps the lock when the lab is killed: nobody starts on a directory
    in which orphans still write.
    """
    with (cache() / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"lab: waiting for another run that uses {cache()} ({name})", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
