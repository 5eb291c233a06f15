# SPDX-License-Identifier: GPL-2.0-only
"""What the TLB model reads of a kernel's types, on the output of pahole."""

import re
import unittest
from pathlib import Path
from unittest import mock

from lab.errors import Exit, LabError
from lab.tlb import layout

SYMBOLS = "ffffffff81000000 T _text\nffffffff8250d018 D current_task\n"
TYPES = {
    "task_struct": """struct task_struct {
\tstruct thread_info         thread_info __attribute__((__aligned__(8))); /*     0    24 */
\tstruct mm_struct *         mm;                   /*  1048     8 */
\tstruct mm_struct *         active_mm;            /*  1056     8 */
\tstruct {
\t\tunsigned int       sched_task_hot:1;     /*  1100: 0  4 */
\t};                                               /*  1100     4 */
\tstruct task_struct *       group_leader;         /*  1232     8 */
\tchar                       comm[16];             /*  1648    16 */
\tstruct signal_struct *     signal;               /*  1744     8 */

\t/* size: 4096, cachelines: 64, members: 7 */
} __attribute__((__aligned__(64)));
""",
    "signal_struct": """struct signal_struct {
\tstruct pid *               pids[4];              /*   376    32 */
};
""",
    "pid": """struct pid {
\tstruct upid                numbers[];            /*   128     0 */
};
""",
    "mm_struct": """struct mm_struct {
\tstruct {
\t\tpgd_t *            pgd;                  /*   104     8 */
\t\tmm_context_t       context __attribute__((__aligned__(8))); /*  1064    88 */
\t};                                               /*     0  1152 */
};
""",
    "upid": """struct upid {
\tint                        nr;                   /*     0     4 */
};
""",
    "mm_context_t": """typedef struct {
\tu64                        ctx_id;               /*     0     8 */
\tatomic64_t                 tlb_gen;              /*     8     8 */
} mm_context_t;
""",
}
"""As pahole 1.24 writes them, without most members."""


class LayoutTest(unittest.TestCase):
    def words(self, types: dict[str, str], symbols: str = SYMBOLS) -> tuple[str, ...]:
        """The words, of one call of nm and one of pahole, which stops at the first type that is not there."""
        self.calls: list[list[str]] = []

        def output(argv: list[str], **_: object) -> str:
            self.calls.append(argv)
            if argv[0] == "nm":
                return symbols
            self.assertEqual(argv[:4], ["pahole", "-F", "btf", "-C"])
            shown = ""
            for name in argv[4].split(","):
                if name not in types:
                    break
                shown += types[name]
            return shown

        layout.words.cache_clear()
        self.addCleanup(layout.words.cache_clear)
        with mock.patch("lab.proc.output", output):
            return layout.words(Path("/vmlinux"))

    def test_one_call_has_every_offset(self) -> None:
        self.assertEqual(
            self.words(TYPES),
            ("current=0xffffffff8250d018", "leader=0x4d0", "comm=0x670", "signal=0x6d0", "mm=0x420", "pgrp=0x188",
             "nr=0x80", "pgd=0x68", "context=0x428"),
        )  # fmt: skip
        self.assertEqual([argv[0] for argv in self.calls], ["nm", "pahole"])

    def refusal(self, types: dict[str, str], symbols: str = SYMBOLS) -> str:
        with self.assertRaises(LabError) as caught:
            self.words(types, symbols)
        self.assertEqual(caught.exception.code, Exit.CONFIG)
        return str(caught.exception)

    def test_a_type_that_is_missing_is_named_alone(self) -> None:
        for lost in TYPES:
            said = self.refusal({name: text for name, text in TYPES.items() if name != lost})
            self.assertIn(f"does not find {lost} in /vmlinux", said)

    def test_a_member_that_is_missing_is_named_alone(self) -> None:
        for struct, member in (*layout._MEMBERS.values(), *layout._PLACES):
            renamed, times = re.subn(rf" {re.escape(member)}(?=;| __)", " other", TYPES[struct])
            self.assertEqual(times, 1, member)
            said = self.refusal({**TYPES, struct: renamed})
            self.assertIn(f"does not find {struct}.{member} in /vmlinux", said)

    def test_what_the_plugin_takes_for_granted_is_checked(self) -> None:
        for struct, member, old, new in (
            ("upid", "nr", "    0     4", "    4     4"),
            ("mm_context_t", "ctx_id", "    0     8", "   64     8"),
            ("mm_context_t", "tlb_gen", "    8     8", "   16     8"),
            ("task_struct", "comm[16]", "comm[16]", "comm[32]"),
            ("signal_struct", "pids[4]", "pids[4]", "pids[5]"),
        ):
            said = self.refusal({**TYPES, struct: TYPES[struct].replace(old, new)})
            self.assertIn(f"does not find {struct}.{member} in /vmlinux", said)

    def test_a_symbol_that_is_missing_is_named(self) -> None:
        self.assertIn("does not find current_task in", self.refusal(TYPES, "ffffffff81000000 T _text\n"))
