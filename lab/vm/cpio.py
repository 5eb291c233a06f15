# SPDX-License-Identifier: GPL-2.0-only
"""Writer of cpio archives in the "newc" form the kernel unpacks as an initramfs."""

import stat
from pathlib import PurePosixPath
from typing import BinaryIO


class CpioWriter:
    """Writes entries to `out`; parent directories appear by themselves. All belong to root, at time 0."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._offset = 0
        self._inode = 0
        self._seen: set[str] = set()

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Adds a directory, once; a later call for the same path changes nothing."""
        name = self._name(path)
        if name and name not in self._seen:
            self._entry(name, stat.S_IFDIR | mode, b"", links=2)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Adds a regular file; ValueError when the path is taken."""
        self._entry(self._new(path), stat.S_IFREG | mode, content)

    def symlink(self, path: str, target: str) -> None:
        """Adds a symbolic link; ValueError when the path is taken."""
        self._entry(self._new(path), stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, path: str, major: int, minor: int) -> None:
        """Adds a device node; ValueError when the path is taken."""
        self._entry(self._new(path), stat.S_IFCHR | 0o600, b"", device=(major, minor))

    def finish(self) -> None:
        """Writes the trailer; nothing may follow."""
        self._entry("TRAILER!!!", 0, b"")

    def __contains__(self, path: str) -> bool:
        return self._name(path) in self._seen

    @staticmethod
    def _name(path: str) -> str:
        parts = PurePosixPath("/", path).parts[1:]
        if ".." in parts:
            raise ValueError(f"path leaves the archive: {path}")
        return "/".join(parts)

    def _new(self, path: str) -> str:
        name = self._name(path)
        if not name or name in self._seen:
            raise ValueError(f"already in the archive: /{name}")
        parent = PurePosixPath(name).parent
        for one in [*reversed(parent.parents), parent]:
            self.directory(str(one))
        return name

    def _entry(self, name: str, mode: int, content: bytes, links: int = 1, device: tuple[int, int] = (0, 0)) -> None:
        self._seen.add(name)
        self._inode += 1
        encoded = name.encode() + b"\0"
        fields = (
            self._inode, mode, 0, 0, links, 0, len(content), 0, 0, device[0], device[1], len(encoded), 0,
        )  # fmt: skip
        self._write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        self._write(content)

    def _write(self, data: bytes) -> None:
        padding = -(self._offset + len(data)) % 4
        self._out.write(data + bytes(padding))
        self._offset += len(data) + padding
