# SPDX-License-Identifier: GPL-2.0-only
"""Plans of guests: what fails once, what fails as a whole, and what is shown of it."""

import errno
import io
import os
import threading
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from lab import proc, terminal
from lab.errors import Exit, LabError
from lab.vm import schedule
from lab.vm.schedule import Finished, Progress, Shared, alike, run_all

_LOCALE = "redis-server: Failed to configure LOCALE for invalid locale name."


def _fails(cause: str = _LOCALE) -> LabError:
    return LabError(Exit.GUEST_FAILED, f"a run: {cause}; console log: x", cause=cause, log=Path("/logs/output.log"))


class _Plan:
    """Items of which some fail; those that wait end when everything is stopped."""

    def __init__(self, fate: dict[int, LabError | OSError | str]) -> None:
        self.fate = fate
        self.begun: list[int] = []
        self.stopped = threading.Event()

    def one(self, item: int) -> int:
        self.begun.append(item)
        fate = self.fate.get(item)
        if isinstance(fate, Exception):
            raise fate
        if fate == "waits":
            self.stopped.wait(3)
            raise LabError(Exit.GUEST_DIED, "killed")
        return item

    def run(self, count: int, width: int, kept: tuple[int, ...] = (), known_to_work: bool = False) -> Finished[int]:
        with mock.patch.object(proc, "stop_all", self.stopped.set):
            return run_all(
                range(count), self.one, lambda *_: None, width,
                names=lambda item: [f"cell {item}"], tried=lambda item: item not in kept,
                known_to_work=known_to_work,
            )  # fmt: skip


class SharedTest(unittest.TestCase):
    def run_in(self, plan: _Plan, order: list[int]) -> list[Finished[int] | None]:
        shared = Shared(range(len(order)), plan.one, lambda *_: None, lambda item: [f"cell {item}"])
        return [shared.run(index) for index in order]

    def test_the_last_one_has_all_in_the_order_of_the_plan(self) -> None:
        *before, last = self.run_in(_Plan({1: _fails(), 3: OSError(errno.ENOSPC, "full")}), [4, 1, 3, 2, 0])
        self.assertEqual(before, [None] * 4)
        assert last
        self.assertEqual((last.runs, [one.name for one in last.failures]), ([0, 2, 4], ["cell 1", "cell 3"]))
        self.assertEqual((last.not_run, last.interrupted), (0, False))

    def test_the_same_cause_from_the_start_gives_up_the_others(self) -> None:
        plan = _Plan({0: _fails(), 1: _fails()})
        last = self.run_in(plan, [0, 1, 2, 3])[-1]
        assert last
        self.assertEqual((plan.begun, last.not_run), ([0, 1], 2))
        self.assertIn("2 more runs were given up", last.complaints[0])

    def test_a_success_lets_the_others_go_on(self) -> None:
        plan = _Plan({0: _fails(), 2: _fails()})
        self.run_in(plan, [1, 0, 2, 3])
        self.assertEqual(plan.begun, [1, 0, 2, 3])


class HopelessTest(unittest.TestCase):
    def test_the_same_cause_from_the_start_ends_the_plan(self) -> None:
        plan = _Plan({0: _fails(), 1: _fails(), 2: "waits", 3: "waits"})
        finished = plan.run(23, 2)
        self.assertEqual((finished.runs, finished.interrupted), ([], False))
        self.assertEqual((len(finished.failures), finished.not_run), (2, 21))
        self.assertLess(len(plan.begun), 6)
        self.assertEqual(len(finished.complaints), 1)
        text = finished.complaints[0]
        self.assertEqual(text.count("LOCALE"), 1)
        for part in ("first 2 runs", "21 more runs were given up", "/logs/output.log"):
            self.assertIn(part, text)
        with self.assertRaises(LabError) as caught:
            finished.raise_if_nothing_was_run()
        self.assertEqual((caught.exception.code, str(caught.exception)), (Exit.GUEST_FAILED, text))

    def test_what_is_ended_then_has_not_failed(self) -> None:
        finished = _Plan({0: "waits", 1: _fails(), 2: _fails()}).run(4, 2)
        self.assertEqual((len(finished.failures), finished.not_run), (2, 2))

    def test_as_many_as_run_at_a_time(self) -> None:
        fate: dict[int, LabError | OSError | str] = {0: _fails(), 1: _fails(), 2: _fails()}
        waiting: dict[int, LabError | OSError | str] = dict.fromkeys(range(9), "waits")
        self.assertEqual(_Plan(fate).run(9, 4).not_run, 0)
        self.assertEqual(_Plan({**waiting, **fate, 3: _fails()}).run(9, 4).not_run, 5)
        # One at a time: two of the same kind, not the first one alone.
        self.assertEqual(_Plan({0: _fails()}).run(3, 1).not_run, 0)
        finished = _Plan({**waiting, 0: _fails(), 1: _fails()}).run(3, 1)
        self.assertEqual(finished.not_run, 1)
        self.assertIn("; 1 more run was given up", finished.complaints[0])

    def test_a_success_or_another_cause_lets_the_others_go_on(self) -> None:
        self.assertEqual(_Plan({1: _fails(), 2: _fails(), 3: _fails()}).run(9, 1).runs, [0, 4, 5, 6, 7, 8])
        finished = _Plan({0: _fails(), 1: _fails("mthp_ext: no BTF"), 2: _fails()}).run(9, 1)
        self.assertEqual((len(finished.runs), finished.not_run), (6, 0))
        self.assertEqual([text.splitlines()[0] for text in finished.complaints],
                         ["2 runs failed for the same cause:", "cell 1 failed:"])  # fmt: skip

    def test_two_causes_are_none(self) -> None:
        one, other = (schedule.Failed("cell", _fails(cause), alike(cause)) for cause in (_LOCALE, "mthp_ext: no BTF"))
        self.assertTrue(schedule.hopeless([one, one], 2))
        self.assertFalse(schedule.hopeless([one, other], 2) or schedule.hopeless([one, one, other], 2))

    def test_what_was_kept_from_another_day_is_no_success(self) -> None:
        fate: dict[int, LabError | OSError | str] = dict.fromkeys(range(3, 9), "waits")
        self.assertEqual(_Plan({**fate, 1: _fails(), 2: _fails()}).run(9, 1, kept=(0,)).not_run, 6)

    def test_what_is_known_to_work_is_not_given_up(self) -> None:
        fates: dict[int, LabError | OSError | str] = {0: _fails(), 1: _fails()}
        self.assertEqual(_Plan(fates).run(6, 1).not_run, 4)
        self.assertEqual(_Plan(fates).run(6, 1, known_to_work=True).runs, [2, 3, 4, 5])

    def test_one_plan_after_another(self) -> None:
        first = Finished([1], [schedule.Failed("cell", _fails(), "a")], not_run=1)
        later = Finished([2], [schedule.Failed("other", _fails(), "b")], interrupted=True, not_run=2)
        both = first.then(later)
        self.assertEqual((both.runs, [one.name for one in both.failures]), ([1, 2], ["cell", "other"]))
        self.assertEqual((both.interrupted, both.not_run), (True, 3))

    def test_a_plan_of_one(self) -> None:
        finished = _Plan({0: _fails()}).run(1, 2)
        self.assertEqual(finished.complaints, [f"cell 0 failed:\n  {_LOCALE}\n  log: /logs/output.log"])

    def test_all_of_a_plan_that_is_no_longer_than_that(self) -> None:
        finished = _Plan({0: _fails(), 1: _fails()}).run(2, 2)
        self.assertEqual(finished.not_run, 0)
        self.assertIn("2 runs failed for the same cause", finished.complaints[0])

    def test_what_the_host_refuses_every_run(self) -> None:
        full = [OSError(errno.ENOSPC, "No space left on device", f"/build/vm/cell-{i}/initramfs.cpio") for i in (0, 1)]
        finished = _Plan({**dict.fromkeys(range(9), "waits"), 0: full[0], 1: full[1]}).run(9, 2)
        self.assertEqual((finished.not_run, finished.errors[0].code), (7, Exit.SPACE))
        self.assertIn("No space left on device", finished.complaints[0])

    def test_runs_are_in_the_order_of_the_plan(self) -> None:
        first = threading.Event()

        def one(item: int) -> int:
            if item == 0:
                first.wait(60)
            if item == 3:
                first.set()
            return item

        self.assertEqual(run_all(range(4), one, lambda *_: None, 2).runs, [0, 1, 2, 3])


class CauseTest(unittest.TestCase):
    def test_numbers_paths_and_names_do_not_count(self) -> None:
        one = alike("no limit, always, run 1: exit code 1: cannot open '/build/vm/a-1/x.log' at 0x7f3a, 2.5 s",
                    ["no limit, always, run 1", "none-always-1"])  # fmt: skip
        other = alike("memory.max, never, run 2: exit code 31: cannot open '/build/vm/b-2/x.log' at 0x99, 17 s",
                      ["memory.max, never, run 2"])  # fmt: skip
        self.assertEqual(one, other)

    def test_words_do(self) -> None:
        self.assertNotEqual(alike("redis-server: no locale"), alike("redis-server: no memory"))
        self.assertNotEqual(alike("a: b"), alike("b: b"))


class ProgressTest(unittest.TestCase):
    def test_a_cause_is_shown_once(self) -> None:
        out = io.StringIO()
        with redirect_stdout(out):
            progress = Progress(3, live=False)
            progress.fail("cell 1", _fails())
            progress.fail("cell 2", _fails())
            progress.fail("cell 3", LabError(Exit.GUEST_DIED, "cell 3: QEMU ended by signal 9"))
        lines = out.getvalue().splitlines()
        self.assertEqual(lines[0], f"[ 1/3] cell 1: failed: {_LOCALE}")
        self.assertEqual(lines[1], "[ 2/3] cell 2: failed for the same cause")
        self.assertEqual(lines[2], "[ 3/3] cell 3: failed: QEMU ended by signal 9")

    def test_a_terminal_that_does_not_know_its_width(self) -> None:
        for columns in ("0", ""):
            with mock.patch.dict(os.environ, {"COLUMNS": columns}), redirect_stdout(io.StringIO()) as out:
                progress = Progress(1, live=True)
                progress.show("cell", "x" * 200)
            longest = max(len(line) for line in out.getvalue().splitlines())
            self.assertTrue(40 < longest < 200, longest)

    def test_only_a_terminal_that_can_is_drawn_over(self) -> None:
        def live(terminal_type: str | None, stdout: object) -> bool:
            env = {} if terminal_type is None else {"TERM": terminal_type}
            with mock.patch.dict(os.environ, env, clear=True), mock.patch("sys.stdout", stdout):
                return terminal.is_live()

        there = mock.Mock(isatty=lambda: True)
        self.assertTrue(live("xterm", there))
        self.assertFalse(live("dumb", there) or live(None, there))
        self.assertFalse(live("xterm", io.StringIO()))
        self.assertFalse(live("xterm", None), "stdout was closed before the start")
        self.assertFalse(terminal.is_terminal(None))


class InterruptedTest(unittest.TestCase):
    def test_nothing_measured(self) -> None:
        with self.assertRaises(LabError) as caught:
            schedule.Finished[int]([], [], interrupted=True).raise_if_nothing_was_run()
        self.assertEqual(caught.exception.code, Exit.INTERRUPTED)
