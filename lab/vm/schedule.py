# SPDX-License-Identifier: GPL-2.0-only
"""Runs guests side by side, shows how far they are, and keeps what is done when interrupted. When the first runs fail
for the same cause, the others are not tried."""

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from lab import proc, terminal
from lab.errors import Exit, LabError, of_host

C = TypeVar("C")
R = TypeVar("R")


@dataclass
class Progress:
    """What is shown while guests run: live lines on a terminal, a line per event elsewhere."""

    total: int
    live: bool = field(default_factory=terminal.is_live)
    done: int = 0
    _running: dict[str, str] = field(default_factory=dict)
    _lines: int = 0
    _causes: set[str] = field(default_factory=set)
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

    def fail(self, label: str, error: LabError) -> None:
        """`label` is done, and failed. A cause is shown once."""
        cause = alike(error.cause, [label])
        with self._lock:
            known = cause in self._causes
            self._causes.add(cause)
        self.end(label, "failed for the same cause" if known else f"failed: {_without(error.cause, [label])}")

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
        width = terminal.columns()
        for label, text in self._running.items():
            sys.stdout.write(f"        {label}: {text}"[: width - 1] + "\n")
        self._lines = len(self._running)
        sys.stdout.flush()


@dataclass(frozen=True)
class Failed:
    """A run that failed."""

    name: str
    error: LabError
    cause: str
    """Its cause as far as it is that of other runs, too: see `alike`."""


@dataclass(frozen=True)
class Finished(Generic[R]):
    """What came out of a plan."""

    runs: list[R]
    """In the order of the plan."""
    failures: list[Failed]
    """In the order of their ends."""
    interrupted: bool = False
    not_run: int = 0
    """Given up because the first runs failed for the same cause."""

    @property
    def errors(self) -> list[LabError]:
        """What failed."""
        return [one.error for one in self.failures]

    @property
    def complaints(self) -> list[str]:
        """A text for each cause."""
        causes = list(dict.fromkeys(one.cause for one in self.failures))
        return [self._complaint([one for one in self.failures if one.cause == cause]) for cause in causes]

    def _complaint(self, failures: Sequence[Failed]) -> str:
        first = failures[0]
        cause = _without(first.error.cause, [first.name])
        alone = len(failures) == 1
        head = f"{first.name} failed" if alone else f"{len(failures)} runs failed for the same cause"
        if self.not_run:
            more = "1 more run was" if self.not_run == 1 else f"{self.not_run} more runs were"
            head = f"the first {head}; {more} given up"
        log = f"\n  log{'' if alone else f' of {first.name}'}: {first.error.log}" if first.error.log else ""
        return f"{head}:\n  {cause}{log}"

    def then(self, later: "Finished[R]") -> "Finished[R]":
        """What came out of this plan and one after it."""
        return Finished(
            [*self.runs, *later.runs],
            [*self.failures, *later.failures],
            self.interrupted or later.interrupted,
            self.not_run + later.not_run,
        )

    def raise_if_nothing_was_run(self) -> None:
        """LabError without any run to report."""
        if self.runs:
            return
        if not self.failures:
            raise LabError(Exit.INTERRUPTED, "interrupted, nothing measured yet")
        raise LabError(self.errors[0].code, "\n".join(self.complaints))


_PATH = re.compile(r"(?<![\w/])/[\w.+/-]+")
_NUMBER = re.compile(r"\b(?:0x[0-9a-f]+|\d+(?:[.,]\d+)*)", re.IGNORECASE)


def _without(cause: str, names: Iterable[str]) -> str:
    for name in names:
        cause = cause.removeprefix(f"{name}: ")
    return cause


def alike(cause: str, names: Iterable[str] = ()) -> str:
    """A cause without what differs from run to run: the run's own `names`, paths, numbers."""
    for name in names:
        cause = cause.replace(name, "RUN")
    return _NUMBER.sub("N", _PATH.sub("PATH", cause)).removeprefix("RUN: ")


def error_of(name: str, cause: str, log: Path, code: Exit = Exit.GUEST_FAILED) -> LabError:
    """The error of a run that came to its end and is none all the same."""
    return LabError(code, f"{name}: {cause}; log: {log}", cause=cause, log=log)


class Shared(Generic[C, R]):
    """Items that run in a pool of somebody else's, beside other things: call `run` once for each of `items`.

    One that fails does not stop the others, also where the host fails it (a full disk). When the first to end, `width`
    and at least two, all failed for the same cause, the others would fail for it, too, and are given up. `names` are an
    item's, the first one for people; a result that was not `tried` just now (it was kept from another day) does not
    count as a success, but one before them does, where it is `known_to_work`.
    """

    def __init__(
        self,
        items: Sequence[C],
        one: Callable[[C], R],
        failed: Callable[[C, LabError], None],
        names: Callable[[C], Sequence[str]] = lambda item: [str(item)],
        *,
        width: int = 2,
        tried: Callable[[R], bool] = lambda _: True,
        known_to_work: bool = False,
    ) -> None:
        self._items, self._one, self._failed, self._names = items, one, failed, names
        self._width, self._tried = width, tried
        self._runs: dict[int, R] = {}
        self._failures: list[Failed] = []
        self._succeeded, self._over = known_to_work, False
        self._left = len(items)
        self._lock = threading.Lock()

    @property
    def hopeless(self) -> bool:
        """Whether the others are given up."""
        return hopeless(self._failures, self._width) and not self._succeeded

    def run(self, index: int) -> Finished[R] | None:
        """Runs one; what came out of all of them, if it was the last to end."""
        try:
            with self._lock:
                begins = not (self._over or self.hopeless)
            if begins:
                self._try(index)
        finally:
            with self._lock:
                self._left -= 1
                last = not self._left
        return self.finished() if last else None

    def _try(self, index: int) -> None:
        item = self._items[index]
        try:
            run = self._one(item)
        except (LabError, OSError) as error:
            why = error if isinstance(error, LabError) else of_host(error)
            known = self._names(item)
            with self._lock:
                # Killed because all are stopped: that says nothing about it.
                if self._over:
                    return
                self._failures.append(Failed(known[0], why, alike(why.cause, known)))
            self._failed(item, why)
        else:
            with self._lock:
                self._runs[index] = run
                self._succeeded |= self._tried(run)

    def stop(self) -> None:
        """None begins any more, and what fails from now on was ended by whoever stops them."""
        with self._lock:
            self._over = True

    def finished(self, interrupted: bool = False) -> Finished[R]:
        """What came out so far."""
        runs = [self._runs[index] for index in sorted(self._runs)]
        not_run = 0 if interrupted else len(self._items) - len(runs) - len(self._failures)
        return Finished(runs, self._failures, interrupted, not_run)


def run_all(
    items: Sequence[C],
    one: Callable[[C], R],
    failed: Callable[[C, LabError], None],
    width: int,
    *,
    names: Callable[[C], Sequence[str]] = lambda item: [str(item)],
    tried: Callable[[R], bool] = lambda _: True,
    known_to_work: bool = False,
) -> Finished[R]:
    """Runs `one` on each item as `Shared` does, `width` at a time. What runs is ended when the others are given up; an
    interrupt stops all and keeps what was done."""
    shared = Shared(items, one, failed, names, width=width, tried=tried, known_to_work=known_to_work)
    pool = ThreadPoolExecutor(width)
    futures = [pool.submit(shared.run, index) for index in range(len(items))]
    interrupted = False
    try:
        for future in as_completed(futures):
            future.result()
            if shared.hopeless:
                _abandon(shared, pool, futures)
                break
    except BaseException as stop:
        _abandon(shared, pool, futures)
        if not isinstance(stop, KeyboardInterrupt):
            raise
        interrupted = True
    finally:
        pool.shutdown()
    return shared.finished(interrupted)


def hopeless(failures: Sequence[Failed], width: int) -> bool:
    """Whether so many runs failed for one cause that it is not theirs."""
    return len(failures) >= max(2, width) and len({one.cause for one in failures}) == 1


def _abandon(shared: Shared[C, R], pool: ThreadPoolExecutor, futures: Sequence[Future[Finished[R] | None]]) -> None:
    """Ends what runs and forgets what waits."""
    shared.stop()
    pool.shutdown(wait=False, cancel_futures=True)
    # The threads wait for their guests; one may be about to start its guest only now.
    while not all(future.done() for future in futures):
        proc.stop_all()
        time.sleep(0.1)
