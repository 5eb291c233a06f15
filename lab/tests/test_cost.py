# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of the hook's cost, its gates, and the look into the kernel, on made-up records."""

import json
import struct
import unittest
from pathlib import Path
from typing import Any

from lab.cost import disasm, gates, jumps, plan, symbols, text
from lab.cost.figures import Figures, collect, merge
from lab.errors import LabError

BEGIN = {"type": "begin", "release": "7.3.4", "ticks_per_instruction": 1.0}


def fault(arm: plan.Arm, place: plan.Place, kib: int, p50: int, **more: Any) -> dict[str, Any]:
    """What a guest sends for a run of one cell."""
    whole = {
        "type": "faults",
        "arm": arm.name,
        "place": place.name,
        "kib": kib,
        "repeat": 0,
        "faults": 100,
        "large": 0 if kib == 4 or arm.refuses else 100,
        "calls": None,
        "total": p50 * 100 + 1000,
        "p10": p50 - 1,
        "p50": p50,
        "p90": p50 + 1,
        "middle": p50 + 0.5,
    }
    return whole | more


ASKED = plan.ASKED_KIB


def figures(
    default: int = 7235, empty: int = 7050, calls: int = 100, base: int = 6900, unasked: int = 6905, vain: int = 0
) -> Figures:
    """A run with every figure that the gates want. A refused fault takes 1,000 where an allowed one takes `base`, and
    the default policy refuses with 60 less than it allows."""
    records: list[dict[str, Any]] = [BEGIN]
    for place in plan.PLAIN.values():
        records += [fault(plan.NONE, place, kib, base) for kib in plan.SIZES_KIB]
    plain, small = plan.PLAIN[4], plan.SMALL[4]
    records += [
        fault(plan.EMPTY, plain, ASKED, empty),
        fault(plan.DEFAULT, plain, ASKED, default),
        fault(plan.DEFAULT, plain, 4, unasked),
        fault(plan.REFUSE, small, ASKED, 1000 + empty - base),
        fault(plan.TINY, small, ASKED, 1000 + default - 60 - base),
        fault(plan.COUNT, plain, 4, base, calls=vain),
        fault(plan.COUNT, plain, ASKED, empty + 4, calls=calls),
        fault(plan.COUNT, plain, 64, empty + 4, calls=100),
    ]
    return collect(records)


class Arithmetic(unittest.TestCase):
    """From records to figures."""

    def test_median_spread_and_mean(self) -> None:
        plain = plan.PLAIN[4]
        found = collect([BEGIN, *(fault(plan.NONE, plain, 4, p50) for p50 in (6900, 6904, 6902))])
        figure = found.faults["none", "plain4", 4]
        self.assertEqual((figure.median, figure.spread, figure.each), (6902, 4, (6900, 6904, 6902)))
        self.assertEqual(figure.mean, 6912)

    def test_64_kib_goes_by_the_middle(self) -> None:
        found = collect([BEGIN, fault(plan.NONE, plan.PLAIN[4], 64, 70_000)])
        self.assertEqual(found.faults["none", "plain4", 64].median, 70_000.5)

    def test_a_call_is_the_difference_by_the_calls(self) -> None:
        found = figures(empty=7100, calls=200)
        plain = plan.PLAIN[4]
        self.assertEqual(found.calls[plain.name, ASKED], 2)
        self.assertEqual(found.per_call(plan.EMPTY, plan.NONE, plain, ASKED, 2), 100)
        self.assertIsNone(found.per_call(plan.EMPTY, plan.NONE, plain, ASKED, None))
        self.assertIsNone(found.per_call(plan.EMPTY, plan.NONE, plain, ASKED, 0))
        self.assertIsNone(found.extra(plan.EMPTY, plan.NONE, plan.PLAIN[8], 4))

    def test_a_clock_that_counts_something_else_is_refused(self) -> None:
        for ticks in (2.5, 0.99):
            with self.assertRaisesRegex(LabError, "ticks per instruction"):
                collect([BEGIN | {"ticks_per_instruction": ticks}])
        with self.assertRaisesRegex(LabError, "no records"):
            collect([])

    def test_faults_of_another_size_are_refused(self) -> None:
        plain = plan.PLAIN[4]
        for kib, large in ((4, 1), (ASKED, 99), (64, 99), (2048, 0)):
            with self.subTest(kib), self.assertRaisesRegex(LabError, "got a large folio"):
                collect([BEGIN, fault(plan.NONE, plain, kib, 7000, large=large)])
        with self.assertRaisesRegex(LabError, "got a large folio"):
            collect([BEGIN, fault(plan.TINY, plan.SMALL[4], ASKED, 7000, large=100)])
        with self.assertRaisesRegex(LabError, "there already"):
            collect([BEGIN, fault(plan.NONE, plain, 4, 7000, p10=4)])


class Gates(unittest.TestCase):
    """Each gate holds for good figures and fails for bad ones, or missing ones."""

    def failing(self, found: Figures) -> list[str]:
        """Names of the failing gates of a call."""
        return [one.name for one in gates.calls(found) if not one.ok]

    def test_calls(self) -> None:
        self.assertEqual(self.failing(figures()), [])
        self.assertEqual(len(self.failing(figures(default=7236))), 1)
        self.assertEqual(len(self.failing(figures(default=7270))), 1)
        self.assertEqual(len(self.failing(figures(default=7271))), 2)
        self.assertEqual(len(self.failing(figures(empty=7051))), 1)
        self.assertEqual(len(self.failing(figures(calls=101))), 1)
        self.assertEqual(self.failing(figures(vain=1)), ["calls per fault of 4 KiB that no folio fits, depth 4"])
        self.assertEqual(len(self.failing(figures(unasked=6906))), 1)
        self.assertEqual(len(self.failing(collect([BEGIN]))), 7)

    def test_limits(self) -> None:
        where = plan.LIMITED[4]

        def ok(instructions: int) -> bool:
            records = [fault(plan.NONE, where, ASKED, 7000), fault(plan.LIMITS, where, ASKED, instructions)]
            return all(one.ok for one in gates.limits(collect([BEGIN, *records])))

        self.assertTrue(ok(7850))
        self.assertFalse(ok(7851))
        self.assertFalse(any(one.ok for one in gates.limits(collect([BEGIN]))))

    def test_a_refusal_costs_the_empty_program_and_what_is_above_it(self) -> None:
        found = {one.name: one.value for one in gates.calls(figures(default=7300, empty=7050))}
        self.assertEqual(found["default policy, small cgroup, depth 4: instructions per call"], 340)

    def test_reclaims(self) -> None:
        def of(patched: bool, one: int = 1000, **more: int) -> Figures:
            arms = (plan.NONE, plan.EMPTY, plan.COUNT, plan.KEEPS) if patched else (plan.NONE,)
            added = {plan.EMPTY.name: 400, plan.COUNT.name: 410, plan.KEEPS.name: 1000}
            records: list[dict[str, Any]] = [BEGIN]
            for arm in arms:
                for kib in plan.SIZES_KIB:
                    folios = 0 if kib == 4 else 10
                    calls = more.get("calls", folios) if arm is plan.COUNT else 0
                    extra = folios * added.get(arm.name, 0)
                    records.append(
                        {"type": "reclaim", "arm": arm.name, "kib": kib, "repeat": 0, "folios": folios,
                         "instructions": one * 1000 + extra, "scanned": 10 * kib // 4, "swapped": 1, "split": 0,
                         "calls": calls}
                    )  # fmt: skip
            return collect(records)

        def missed(patched: Figures, stock: Figures) -> list[str]:
            return [
                gate.name for gate in [*gates.idle_reclaims(patched, stock), *gates.reclaims(patched)] if not gate.ok
            ]

        self.assertEqual(missed(of(True), of(False)), [])
        self.assertEqual(of(True).per_question(plan.KEEPS, ASKED), 1000)
        self.assertEqual(len(missed(of(True, 1011), of(False))), 4)
        self.assertEqual(len(missed(of(True, calls=11), of(False))), 4)
        # Fewer questions, and each took more.
        self.assertEqual(len(missed(of(True, calls=9), of(False))), 6)
        self.assertIn("10,000", text.reclaims(merge([figures(), of(True, 10)]), of(True), of(False)))
        for odd in ({"scanned": 9}, {"swapped": 0}, {"split": 1}):
            record = {
                "type": "reclaim",
                "arm": "none",
                "kib": 16,
                "folios": 10,
                "scanned": 40,
                "swapped": 1,
                "split": 0,
            }
            with self.assertRaises(LabError):
                collect([BEGIN, record | odd])

    def test_lives(self) -> None:
        def lives(instructions: int, what: tuple[str, ...] = plan.LIVES) -> Figures:
            records = [
                {"type": "life", "kib": kib, "what": one, "instructions": instructions, "scans": None}
                for kib in plan.SETTINGS_KIB
                for one in what
            ]
            scan = {"type": "life", "kib": 64, "what": plan.KHUGEPAGED, "instructions": 600, "scans": 3}
            return collect([BEGIN, *records, scan])

        def ok(patched: Figures) -> list[bool]:
            return [one.ok for one in gates.lives(patched, lives(1000))]

        self.assertEqual(ok(lives(1020)), [True, True, True])
        self.assertEqual(ok(lives(1021)), [False, False, False])
        self.assertEqual(ok(merge([figures(), lives(1000, plan.LIVES[:1])])), [True, False, False])
        shown = text.lives(lives(1000), collect([BEGIN]))
        self.assertRegex(shown, r"(?m)^\| fork and exit .* \| +- \| +1,000 \|")
        self.assertRegex(shown, r"(?m)^\| khugepaged, one round +\| +- \| +- \| +- \| +200 \| +- \| +- \|$")

    def test_unattached(self) -> None:
        stock = figures()
        self.assertTrue(all(one.ok for one in gates.unattached(figures(base=6910), stock)))
        found = gates.unattached(figures(base=6911), stock)
        self.assertTrue(all(one.ok is one.name.startswith("2048 KiB") for one in found))
        self.assertTrue(any(one.ok for one in gates.unattached(figures(base=7050), stock)))
        self.assertFalse(any(one.ok for one in gates.unattached(figures(base=7051), stock)))
        self.assertFalse(any(one.ok for one in gates.unattached(collect([BEGIN]), stock)))

    def test_repeats(self) -> None:
        plain = plan.PLAIN[4]

        def runs(*instructions: int, kib: int = 4) -> Figures:
            return collect([BEGIN, *(fault(plan.NONE, plain, kib, p50) for p50 in instructions)])

        def ok(*kernels: Figures) -> list[bool]:
            return [one.ok for one in gates.repeats(*kernels)]

        asked = runs(7138, 7180, kib=ASKED)
        self.assertEqual(ok(runs(6900, 6902), asked), [True, True])
        self.assertEqual(ok(runs(6900, 6902), runs(6900, 6908), asked), [False, True])
        self.assertEqual(ok(runs(6900, 6902), runs(7138, 7181, kib=ASKED)), [True, False])
        self.assertEqual(ok(runs(6900)), [False, False], "nothing was repeated")

    def scaled(self, attach: int, mkdir: int, scan: int = 100_000_000) -> Figures:
        """Figures above few and many cgroups."""
        few, many = plan.CGROUPS[0], plan.CGROUPS[-1]
        steady = {"type": "scale", "p99": 1, "max": 1}
        records: list[dict[str, Any]] = [BEGIN]
        for cgroups, cost in ((few, 5000), (many, attach)):
            records += [steady | {"cgroups": cgroups, "what": what, "p50": cost} for what in ("attach", "detach")]
        records.append(steady | {"cgroups": many, "what": gates.MKDIR_ALONE, "p50": 100_000})
        records += [steady | {"cgroups": many, "what": what, "p50": mkdir} for what in gates.MKDIRS]
        records.append(steady | {"cgroups": many, "what": gates.SCAN, "p50": 1, "max": scan})
        return collect(records)

    def test_scale(self) -> None:
        self.assertTrue(all(one.ok for one in gates.scale(self.scaled(6000, 105_000))))
        self.assertEqual([one.ok for one in gates.scale(self.scaled(8000, 105_000))], [False] * 2 + [True] * 4)
        self.assertEqual([one.ok for one in gates.scale(self.scaled(6000, 120_000))], [True] * 2 + [False] * 3 + [True])
        slow = gates.scale(self.scaled(6000, 105_000, 100_000_001))
        self.assertEqual([one.ok for one in slow], [True] * 5 + [False])
        self.assertFalse(any(one.ok for one in gates.scale(collect([BEGIN]))))


class Plans(unittest.TestCase):
    """The guest's job."""

    def test_every_place_of_an_arm_is_in_the_plan(self) -> None:
        for whole in (*plan.plans(), plan.smoke(), plan.unpatched(), plan.holds()):
            self.assertLess(len(whole.places), 7, "see plan.plans()")
            document = json.loads(whole.document(Path("/bin/x")))
            names = {place["name"] for place in document["places"]}
            for arm in document["arms"]:
                self.assertLessEqual(set(arm["places"]), names)
        measured = [(arm.name, place) for whole in plan.plans() for arm in whole.arms for place in arm.places]
        self.assertEqual(len(measured), len(set(measured)))
        self.assertEqual(set(measured), {(arm.name, place) for arm in plan.ARMS for place in arm.places})

    def test_guests_of_one_kernel_make_one_table(self) -> None:
        plain, small = plan.PLAIN[4], plan.SMALL[4]
        parts = [collect([BEGIN, fault(plan.NONE, place, 4, 6900)]) for place in (plain, small)]
        self.assertEqual(set(merge(parts).faults), {("none", "plain4", 4), ("none", "small4", 4)})

    def test_the_scan_holds_no_lock_that_others_wait_for(self) -> None:
        def judged(most: int, of_scan: int, used: int = 40_000_000) -> list[bool]:
            record = {"type": "holds", "cgroups": 20_000, "count": 900, "p50": 90_000, "p99": 200_000,
                      "max": most, "longest": "lab-hook-71", "of_scan": of_scan, "used": used, "scans": 4}  # fmt: skip
            return [one.ok for one in gates.holds(collect([BEGIN, record]))]

        self.assertEqual(judged(5_000_000, 0), [True, True, True])
        self.assertEqual(judged(5_001_000, 0), [False, True, True])
        self.assertEqual(judged(1_000_000, 1), [True, False, True])
        self.assertEqual(judged(1_000_000, 0, used=1_000_000), [True, True, False], "it has not scanned")
        nothing = collect([BEGIN, {"type": "holds", "cgroups": 20_000, "count": 0}])
        self.assertEqual([one.ok for one in gates.holds(nothing)], [False, False, False])

    def test_tables_have_a_row_for_every_arm(self) -> None:
        shown = text.faults(figures(), None)
        for arm in plan.ARMS:
            self.assertEqual(arm.label in shown, arm not in plan.YARDSTICKS, arm.name)
        self.assertIn("+335", shown)
        self.assertIn("FAIL", text.judged(gates.scale(figures())))


HOOK = """\
ffffffff813364d4:\tcall   ffffffff81055850 <__fentry__>
ffffffff81336503:\tincq   %gs:0x11ceb15(%rip)        # ffffffff82505020 <__preempt_count>
ffffffff8133650f:\tmov    0x498(%rax),%rax
ffffffff8133654b:\tje     ffffffff81336592 <__bpf_mthp_choose+0xc2>
ffffffff81336559:\tcall   *(%rax)
ffffffff8133657a:\tdecq   %gs:0x11cea9e(%rip)        # ffffffff82505020 <__preempt_count>
ffffffff813365a0:\tincq   %gs:0x11e1098(%rip)        # ffffffff82517640 <vm_event_states+0x240>
ffffffff813365a8:\tjmp    ffffffff81336566 <__bpf_mthp_choose+0x96>
ffffffff813365b2:\tincq   %gs:-0x7dae6470(%rdx)
ffffffff813365bc:\tmov    0xfa3514(%rip),%rbp        # ffffffff822d9ae0 <tracepoint_srcu>
ffffffff813365c3:\tincq   %gs:0x0(%rbp)
ffffffff813365c8:\tcall   ffffffff81c01230 <__SCT__tp_func_bpf_mthp_choose>
ffffffff813365cd:\tincq   %gs:0x8(%rbp)
"""
STATISTICS = range(0xFFFFFFFF82519B80, 0xFFFFFFFF82519B80 + 0x6E0)


class Symbols(unittest.TestCase):
    """What nm says of a kernel."""

    def test_lines_with_and_without_address_and_size(self) -> None:
        text = "                 U missing\n00000010 T start\n00000020 00000008 d array\n"
        self.assertEqual(
            symbols.parse(text), [symbols.Symbol("start", "T", 16, 0), symbols.Symbol("array", "d", 32, 8)]
        )


class Places(unittest.TestCase):
    """What stands where a static key is asked."""

    def test_entries_are_relative_to_themselves(self) -> None:
        # The second key has both flags set.
        table = struct.pack("<iiq", 0x100, 0x140, 0x1000) + struct.pack("<iiq", -0x10, 0, (-0x20) | 3)
        self.assertEqual(jumps.entries(table, 0x8000), [(0x8100, 0x9008), (0x8000, 0x7FF8)])

    def test_sections_are_those_in_memory(self) -> None:
        names = b"\0__jump_table\0.bss\0"
        headers = [(0, 0, 0, 0, 0, 0), (1, 1, 2, 0x9000, 0x300, 32), (14, 8, 3, 0xA000, 0x400, 8), (0, 3, 0, 0, 64, 0)]
        table = b"".join(struct.pack("<IIQQQQIIQQ", *one, 0, 0, 0, 0) for one in headers)
        start = 64 + len(names)
        image = b"\x7fELF\x02".ljust(40, b"\0") + struct.pack("<Q", start)
        image = image.ljust(58, b"\0") + struct.pack("<HHH", 64, len(headers), 3) + names + table
        found = jumps.sections(image)
        self.assertEqual(list(found), ["__jump_table"])
        self.assertEqual((found["__jump_table"].address, found["__jump_table"].offset), (0x9000, 0x300))
        with self.assertRaisesRegex(LabError, "ELF"):
            jumps.sections(b"#!/bin/sh")

    def test_a_jump_fails_the_gate(self) -> None:
        nop, jump = jumps.Site("f", b"\x0f\x1f\x44\0\0"), jumps.Site("g", b"\xe9\x01\x02\0\0")
        self.assertEqual([one.ok for one in gates.places([*[nop] * 5, jumps.Site("h", b"\x66\x90abc")])], [True, True])
        self.assertEqual([one.ok for one in gates.places([*[nop] * 5, jump])], [True, False])
        self.assertEqual([one.ok for one in gates.places([nop] * 5)], [False, True])
        self.assertEqual([one.ok for one in gates.places([])], [False, True])
        self.assertEqual(str(jump), "g: e9 01 02 00 00")


class References(unittest.TestCase):
    """What counts as taking a reference."""

    def test_the_hook_as_it_is(self) -> None:
        self.assertEqual(disasm.strangers(HOOK, STATISTICS), [])

    def test_an_array_that_is_not_the_statistics(self) -> None:
        self.assertEqual(len(disasm.strangers(HOOK)), 1)
        other = HOOK.replace("0x7dae6470", "0x7dae5000")
        self.assertEqual(disasm.strangers(other, STATISTICS), ["incq   %gs:-0x7dae5000(%rdx)"])

    def test_what_css_get_would_leave(self) -> None:
        for line in (
            "ffffffff81336600:\tincq   %gs:(%rax)",
            "ffffffff81336600:\tadd    $0x1,%gs:0x10(%rax)",
            "ffffffff81336600:\tincq   %gs:0x10(%rbp)",
            "ffffffff81336600:\tadd    %rdx,%gs:0x0(%rbp)",
            "ffffffff81336600:\tincq   %gs:0x11e1098(%rip)        # ffffffff82517640 <some_refs>",
            "ffffffff81336600:\tlock incq (%rax)",
            "ffffffff81336600:\tlock cmpxchg %rdx,(%rcx)",
            "ffffffff81336600:\tlock xadd %rdx,0x18(%rcx)",
            "ffffffff81336600:\tcall   ffffffff81234567 <css_get>",
            "ffffffff81336600:\tjmp    ffffffff81234567 <cgroup_get_e_css>",
        ):
            with self.subTest(line):
                self.assertEqual(len(disasm.strangers(f"{HOOK}{line}\n", STATISTICS)), 1)
