# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts: what passes, and that nothing a job can write makes it pass."""

import unittest

from lab.errors import Exit
from lab.vm.verdict import Evidence, Verdict, judge, parse_record, splats, stalls

_NONCE = "5f2d"


def _judge(verdict: str = "", console: str = "", status: int = 0, over: str = "", bad: int = 0) -> Verdict:
    return judge(Evidence(_NONCE, verdict, console, status, over, bad))[0]


class Judge(unittest.TestCase):
    def test_the_only_way_to_pass(self) -> None:
        self.assertEqual(_judge(f"{_NONCE} exit 0\n", "[    1.0] Run /init\n"), Verdict.PASSED)

    def test_no_verdict_is_no_pass(self) -> None:
        for text in (
            "",
            "exit 0\n",
            "0000 exit 0\n",
            f"x{_NONCE} exit 0\n",
            f"{_NONCE}x exit 0\n",
            f" {_NONCE} exit 0\n",
        ):
            self.assertEqual(_judge(text), Verdict.DIED, text)

    def test_words_that_only_look_like_success(self) -> None:
        for text in ("exit", "exit 0 ", "exit -0", "exit 0x0", "exit \u0966", "exit 0000", "exit 1"):
            self.assertEqual(_judge(f"{_NONCE} {text}\n"), Verdict.FAILED, text)

    def test_a_panic_counts_even_after_the_verdict(self) -> None:
        console = "[    2.1] Kernel panic - not syncing: sysrq triggered crash\r\n"
        self.assertEqual(_judge(f"{_NONCE} exit 0\n", console), Verdict.PANIC)
        self.assertEqual(_judge("", console, over="no end after 5 s", status=-9), Verdict.PANIC)
        caller = "[    2.1][  T120] Kernel panic - not syncing: Fatal exception\n"
        self.assertEqual(_judge("", caller), Verdict.PANIC)

    def test_text_about_panics_is_none(self) -> None:
        self.assertEqual(_judge(f"{_NONCE} exit 0\n", "[ 1.0] test: no Kernel panic - not syncing\n"), Verdict.PASSED)

    def test_a_killed_qemu(self) -> None:
        self.assertEqual(_judge(f"{_NONCE} exit 0\n", status=-9), Verdict.DIED)
        self.assertEqual(_judge(f"{_NONCE} exit 0\n", status=1), Verdict.DIED)
        self.assertEqual(_judge(f"{_NONCE} exit 0\n", status=-9, over="no end after 5 s"), Verdict.TIMEOUT)

    def test_failures_tell_why(self) -> None:
        for text, code, word in (
            ("exit 7", 7, "exit code 7"),
            ("signal 11", None, "signal 11"),
            ("error mount cgroup2: denied", None, "mount cgroup2: denied"),
        ):
            verdict, got, reason = judge(Evidence(_NONCE, f"{_NONCE} {text}\n", "", 0))
            self.assertEqual((verdict, got), (Verdict.FAILED, code))
            self.assertIn(word, reason)

    def test_damaged_results_are_no_pass(self) -> None:
        self.assertEqual(_judge(f"{_NONCE} exit 0\n", bad=1), Verdict.FAILED)

    def test_each_has_an_exit_code_of_its_own(self) -> None:
        codes = {verdict.exit_code for verdict in Verdict}
        self.assertEqual(len(codes), len(Verdict))
        self.assertEqual([verdict for verdict in Verdict if verdict.exit_code == Exit.OK], [Verdict.PASSED])


class Records(unittest.TestCase):
    def test_only_objects(self) -> None:
        self.assertEqual(parse_record(b'{"a": 1}'), {"a": 1})
        for line in (b"", b"[]", b"1", b'"x"', b"{", b'{"a": NaN}', b'{"a": 1} x', b"\xff", b"[" * 100_000, b"null"):
            self.assertIsNone(parse_record(line), line[:20])
        self.assertIsNone(parse_record(b'{"a": ' + b"9" * 10_000 + b"}"))


class Splats(unittest.TestCase):
    def test_found_at_the_start_of_kernel_lines(self) -> None:
        console = (
            "[    1.0] WARNING: CPU: 0 PID: 1 at mm/memcontrol.c:1 f+0x1/0x2\r\n"
            "[    1.1] BUG: unable to handle page fault\r\n"
            "[    1.2] watchdog: BUG: soft lockup - CPU#0 stuck\r\n"
            "[    1.3] test prints WARNING: nothing\r\n"
        )
        found = splats(console)
        self.assertEqual(len(found), 2)
        self.assertTrue(found[0].startswith("WARNING: CPU: 0"))

    def test_what_a_debug_kernel_says(self) -> None:
        for text in (
            "BUG: KASAN: slab-use-after-free in bpf_struct_ops_cgroup_notify+0xa5/0x180",
            "UBSAN: array-index-out-of-bounds in mm/bpf_mthp.c:40:9",
            "UBSAN: shift-out-of-bounds in mm/huge_memory.c:101:3",
            "WARNING: possible circular locking dependency detected",
            "WARNING: possible recursive locking detected",
            "WARNING: inconsistent lock state",
            "WARNING: bad unlock balance detected!",
            "WARNING: suspicious RCU usage",
            "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:591",
            "BUG: scheduling while atomic: mthp_soak/123/0x00000002",
            "BUG: Bad page state in process mthp_soak  pfn:12345",
            "BUG: MAX_LOCKDEP_CHAINS too low!",
            "turning off the locking correctness validator.",
            "INFO: trying to register non-static key.",
            "ODEBUG: activate active (active state 1) object: ffff888 object type: rcu_head hint: 0x0",
            "kernel BUG at lib/list_debug.c:32!",
            "list_del corruption. prev->next should be ffff888, but was dead000000000122",
            "Oops: general protection fault, probably for non-canonical address 0xdffffc0000000000: 0000 [#1]",
            "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
            "kmemleak: Kernel memory leak detector disabled",
            "INFO: task mthp_soak:77 blocked for more than 120 seconds.",
        ):
            self.assertEqual(splats(f"[   12.345678] {text}\r\n"), (text,))
            self.assertEqual(splats(f"[   12.345678][  T99] {text}\n"), (text,))
            self.assertEqual(splats(f"{text}\n"), (), "printed by a program")

    def test_a_debug_kernel_that_is_content(self) -> None:
        console = (
            "[    0.0] kmemleak: Kernel memory leak detector initialized (mem pool available: 15000)\n"
            "[    0.1] kasan: KernelAddressSanitizer initialized (generic)\n"
            "[    0.2] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar\n"
            "[    9.9] FAULT_INJECTION: forcing a failure.\n"
        )
        self.assertEqual(splats(console) + stalls(console), ())

    def test_stalls_are_told_apart(self) -> None:
        for text in (
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
            "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 1-... }",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [storm:99]",
        ):
            console = f"[    2.5] {text}\n"
            self.assertEqual((splats(console), stalls(console)), ((), (text,)))
