# SPDX-License-Identifier: GPL-2.0-only
"""What a guest that does not end was doing: asked of QEMU and of the host before QEMU is killed."""

import time
from contextlib import suppress
from pathlib import Path

from lab.vm.wire import Wire

_ANSWER_S = 3.0
_SAMPLES = 2
"""Two looks, half a second apart, tell a processor that spins from one that stands still."""
_BETWEEN_S = 0.5


class Monitor(Wire):
    """QEMU's monitor: asks it for what it knows."""

    def __init__(self) -> None:
        super().__init__()
        self._ours.settimeout(_ANSWER_S)

    @property
    def options(self) -> list[str]:
        """For QEMU's command line."""
        return ["-chardev", f"socket,id=monitor,fd={self.descriptor}", "-mon", "chardev=monitor,mode=readline"]

    def ask(self, command: str) -> str:
        """The answer, as far as there is one: QEMU itself may be what hangs."""
        text = b""
        with suppress(OSError):
            self._ours.sendall(command.encode() + b"\n")
            while piece := self._ours.recv(1 << 16):
                text += piece
                if text.rstrip().endswith(b"(qemu)") and command.encode() in text:
                    break
        # Its readline draws each key of the command anew.
        lines = [line for line in text.decode(errors="replace").splitlines() if line.strip() and "\x1b" not in line]
        return "\n".join(lines) or "(no answer)"


def state(pid: int, monitor: Monitor) -> str:
    """QEMU's threads as the host sees them and the guest's processors as QEMU does, at two moments."""
    parts = []
    for sample in range(_SAMPLES):
        if sample:
            time.sleep(_BETWEEN_S)
        parts.append(f"== {sample * _BETWEEN_S:g} s: QEMU's threads (name, state, user and system time in ticks)\n")
        parts += [line + "\n" for line in _threads(pid)]
        parts.append(f"== {sample * _BETWEEN_S:g} s: processors\n{monitor.ask('info registers -a')}\n")
    return "".join(parts)


def _threads(pid: int) -> list[str]:
    lines = []
    for path in sorted(Path(f"/proc/{pid}/task").glob("*")):
        with suppress(OSError):
            # The name may hold blanks and brackets; what follows it does not.
            name, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            lines.append(f"{path.name} {name} {fields[0]} {fields[11]} {fields[12]}")
    return lines
