# SPDX-License-Identifier: GPL-2.0-only
"""What was measured, kept run by run, so that an interrupted suite goes on where it stopped and a changed policy
repeats only its own arms."""

import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import Exit, LabError
from lab.paths import RESULTS


@dataclass(frozen=True)
class Entry:
    """A kept run."""

    records: list[dict[str, Any]]
    wall_s: float


class Journal:
    """One file for each run, named by the hash of all that decides what it measures."""

    def __init__(self, directory: Path = RESULTS / "bench.journal") -> None:
        self._directory = directory

    def get(self, digest: str) -> Entry | None:
        """The run of this hash; None if there is none, or if its file is damaged."""
        try:
            with gzip.open(self._path(digest), "rt", encoding="utf-8") as file:
                body = json.load(file)
            return Entry(list(body["records"]), float(body["wall_s"]))
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
            return None

    def put(self, digest: str, label: str, records: Sequence[Mapping[str, Any]], wall_s: float) -> None:
        """Keeps a run, whole or not at all; LabError if there is no room for it."""
        path = self._path(digest)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with gzip.open(temporary, "wt", encoding="utf-8", compresslevel=5) as file:
                json.dump({"label": label, "wall_s": wall_s, "records": list(records)}, file)
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise LabError(Exit.HOST, f"{label}: cannot keep the run in {path}: {error.strerror}") from error

    def _path(self, digest: str) -> Path:
        return self._directory / f"{digest}.json.gz"
