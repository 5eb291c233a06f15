# SPDX-License-Identifier: GPL-2.0-only
"""The command that ends all of it on a host, as docs/fleet.md has it. `make test-deb` compares the role with it, and
`make test-systemd` runs it."""

import unittest

from lab.checks import ansible
from lab.paths import REPO


class OutTest(unittest.TestCase):
    def test_the_page_has_it(self) -> None:
        page = (REPO / "docs" / "fleet.md").read_text()
        line = ansible.out_in_one_command(page)
        self.assertEqual(
            ansible.commands(line),
            [
                "systemctl stop mthp_ext.service mthp_ext@*",
                "systemctl disable mthp_ext.service mthp_ext@.service",
                "mthp_ext detach --json",
            ],
        )
        # Over all hosts it is the same.
        self.assertIn(f'-a \\\n    "{line}"\n', page)

    def test_another_place_is_none(self) -> None:
        self.assertEqual(ansible.out_in_one_command("# true     # one host\n"), "")
        self.assertEqual(ansible.out_in_one_command("## Out in one command\n\n# true  # a host\n"), "")
