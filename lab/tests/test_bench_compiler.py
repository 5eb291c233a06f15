# SPDX-License-Identifier: GPL-2.0-only
"""How the guest learns of the kernel's build that it repeats."""

import tempfile
import unittest
from pathlib import Path

from lab.bench import compiler

_HEADER = """savedcmd_mm/gup.o := gcc -Wp,-MMD,mm/.gup.o.d -Iinclude -DNAME='"gup$"' -g -c -o mm/gup.o /src/mm/gup.c

source_mm/gup.o := /src/mm/gup.c

deps_mm/gup.o := \\
    $(wildcard include/config/MMU) \\
  /src/mm/internal.h \\
  include/generated/bounds.h \\

mm/gup.o: $(deps_mm/gup.o)
"""


class RuleTest(unittest.TestCase):
    def rule(self, text: str) -> tuple[str, set[Path]] | None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, ".gup.o.cmd")
            path.write_text(text)
            return compiler.rule(path, Path("/objects"))

    def test_options_stay_and_the_object_goes_to_the_disk(self) -> None:
        found = self.rule(_HEADER)
        assert found
        text, read = found
        self.assertEqual(
            text,
            "/mnt/mm-gup.o:\n\t@cd /build && $(CC) -Iinclude -DNAME='\"gup$$\"' -g -g0 -c -o $@ /src/mm/gup.c\n",
        )
        self.assertEqual(
            {str(path) for path in read},
            {"/src/mm/gup.c", "/src/mm/internal.h", "/objects/include/generated/bounds.h"},
        )

    def test_what_is_no_c_file_of_the_kernel_is_left_out(self) -> None:
        for was, instead in (
            ("/src/mm/gup.c\n", "/src/mm/gup.S\n"),
            ("/src/mm/gup.c\n", "/src/mm/gup.c ; ./tools/objtool/objtool mm/gup.o\n"),
            (":= gcc", ":= ld"),
            ("savedcmd_mm/gup.o", "savedcmd_scripts/gup.o"),
        ):
            self.assertIsNone(self.rule(_HEADER.replace(was, instead, 1)), instead)
        self.assertIsNone(self.rule(""))
