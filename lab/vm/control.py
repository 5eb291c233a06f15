# SPDX-License-Identifier: GPL-2.0-only
"""The way to a running guest: a port on which it can be asked to stop and to report what it has."""

from contextlib import suppress

from lab.vm.wire import Wire

PORT = "control"
"""Of virtio-serial; lab/guest/src/stop.rs listens on it."""


class Control(Wire):
    """Sends one word, once."""

    def __init__(self, stop_s: float | None) -> None:
        self._stop_s = stop_s
        super().__init__()

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
