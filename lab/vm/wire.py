# SPDX-License-Identifier: GPL-2.0-only
"""A way to QEMU that no path and no port leads to: a pair of sockets, one of which QEMU inherits."""

import socket
from types import TracebackType
from typing import Self


class Wire:
    """Nothing to clean up, whatever becomes of QEMU, and no limit on the length of a name."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ours.close()
        self._theirs.close()

    @property
    def descriptor(self) -> int:
        """QEMU's end, for it to inherit."""
        return self._theirs.fileno()
