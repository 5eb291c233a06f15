# SPDX-License-Identifier: GPL-2.0-only
"""Runs guests side by side, shows how far they are, and keeps what is done when interrupted."""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lab import proc
from lab.errors import Exit, LabError

C = TypeVar("C")
R = TypeVar("R")


@dataclass
class Progress:
    """What is shown while guests run: live lines on a terminal, a line per event elsewhere."""

    total: int
    live: bool = field(default_factory=lambda: sys.stdout.isatty())
    done: int = 0
    _running: dict[str, str] = field(default_factory=dict)
    _lines: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def show(self, label: str, text: str) -> None:
        """`label` is under way, and this is how far."""
        with self._lock:
            self._running[label] = text
            self._draw()

    def end(self, label: str, text: str) -> None:
        """`label` is done."""
        with self._lock:
            self._running.pop(label, None)
            self.done += 1
            self._clear()
            width = len(str(self.total))
            print(f"[{self.done:{max(2, width)}}/{self.total}] {label}: {text}", flush=True)
            self._draw()

    def close(self) -> None:
        """Leaves the terminal tidy."""
        with self._lock:
            self._running.clear()
            self._clear()

    def _clear(self) -> None:
        if self.live and self._lines:
            sys.stdout.write(f"\x1b[{self._lines}A\x1b[J")
            self._lines = 0

    def _draw(self) -> None:
        if not self.live:
            return
        self._clear()
        width = os.get_terminal_size().columns
        for label, text in self._running.items():
            sys.stdout.write(f"        {label}: {text}"[: width - 1] + "\n")
        self._lines = len(self._running)
        sys.stdout.flush()


@dataclass(frozen=True)
class Finished(Generic[R]):
    """What came out of a plan."""

    runs: list[R]
    errors: list[LabError]
    interrupted: bool


def run_all(
    items: Sequence[C], one: Callable[[C], R], failed: Callable[[C, LabError], None], width: int
) -> Finished[R]:
    """Runs `one` on each item, `width` at a time. An item that fails does not stop the others, also where the host
    fails it (a full disk); an interrupt stops all and keeps what was done."""
    runs: list[R] = []
    errors: list[LabError] = []
    interrupted = False
    pool = ThreadPoolExecutor(width)
    futures: list[tuple[C, Future[R]]] = [(item, pool.submit(one, item)) for item in items]
    try:
        for item, future in futures:
            try:
                runs.append(future.result())
            except (LabError, OSError) as error:
                why = error if isinstance(error, LabError) else LabError(Exit.HOST, str(error))
                errors.append(why)
                failed(item, why)
    except BaseException as stop:
        pool.shutdown(wait=False, cancel_futures=True)
        # The threads wait for their guests; one may be about to start its guest only now.
        while not all(future.done() for _, future in futures):
            proc.stop_all()
            time.sleep(0.1)
        if not isinstance(stop, KeyboardInterrupt):
            raise
        interrupted = True
        seen = {id(run) for run in runs}
        done = [f.result() for _, f in futures if not f.cancelled() and f.exception() is None]
        runs += [run for run in done if id(run) not in seen]
    finally:
        pool.shutdown()
    return Finished(runs, errors, interrupted)
