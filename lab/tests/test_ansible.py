# SPDX-License-Identifier: GPL-2.0-only
"""The commands of docs/fleet.md are found there. `make test-deb` runs those of Ansible, and compares the role with that
which ends all of it on a host; `make test-systemd` runs this one."""

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

    def test_commands_of_ansible_are_read_whole(self) -> None:
        page = (REPO / "docs" / "fleet.md").read_text()
        begin = "ansible-playbook -i hosts site.yml --limit canary -e mthp_ext_deb=mthp-ext_...deb"
        dry, force, everywhere = ansible.shown(page)
        self.assertEqual((dry, force), (f"{begin} -e mthp_ext_dry_run=true", begin))
        self.assertRegex(everywhere, r'\Aansible all -i hosts -b [^\n]*\\\n +"systemctl stop [^\n]* detach"\Z')

    def test_changes_are_counted_where_none_failed(self) -> None:
        row = "localhost : ok=3 changed=2 unreachable={} failed={} skipped=0"
        self.assertEqual([ansible.changed(row.format(*one)) for one in ((0, 0), (0, 1), (1, 0))], [2, -1, -1])
        self.assertEqual(ansible.changed(""), -1)

    def test_another_place_is_none(self) -> None:
        self.assertEqual(ansible.out_in_one_command("# true     # one host\n"), "")
        self.assertEqual(ansible.out_in_one_command("## Out in one command\n\n# true  # a host\n"), "")
