# SPDX-License-Identifier: GPL-2.0-only
"""The way to a running guest: a port on which it can be asked to stop and to report what it has."""

import socket
from contextlib import suppress
from types import TracebackType
from typing import Self

PORT = "control"
"""Of virtio-serial; lab/guest/src/stop.rs listens on it."""


class Control:
    """Over a pair of sockets, like the monitor: nothing to clean up, whatever becomes of QEMU."""

    def __init__(self, stop_s: float | None) -> None:
        self._stop_s = stop_s
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
        """QEMU inherits it."""
        return self._theirs.fileno()

    @property
    def options(self) -> list[str]:
        """For QEMU's command line; none for a job that is never asked."""
        if self._stop_s is None:
            return []
        port = ["-device", f"virtserialport,chardev={PORT},name={PORT}"]
        return ["-chardev", f"socket,id={PORT},fd={self.descriptor}", *port]

    def ask(self, seconds: float) -> None:
        """Asks the guest to stop, once, if it has run for so many seconds."""
        if self._stop_s is None or seconds < self._stop_s:
            return
        self._stop_s = None
        # A QEMU that is gone has stopped already.
        with suppress(OSError):
            self._ours.sendall(b"stop\n")
