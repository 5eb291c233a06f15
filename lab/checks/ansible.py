# SPDX-License-Identifier: GPL-2.0-only
"""The role of packaging/ansible by Ansible itself: its syntax, and what its stop runs, on stubs in the place of
systemctl and mthp_ext. Part of `make test-deb`, whose package has the role."""

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import setup
from lab.checks.result import Suite
from lab.paths import REPO

ROLE = REPO / "packaging" / "ansible"
_LOCK_FILE = REPO / "lab" / "ansible.lock"
_PLAYBOOK = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": {"name": "mthp_ext", "tasks_from": "stopped"}}],
    }
]
_STUB = """#!/bin/sh
# Says what a host with all of it says at the first time, and then what one without says.
echo "${0##*/} $*" >>"$STUBS/ran"
case "${0##*/} $1" in
'systemctl is-active') [ -e "$STUBS/stopped" ] && { echo inactive; exit 3; }; printf 'active\\nactivating\\n' ;;
'systemctl disable') [ -e "$STUBS/stopped" ] || echo 'Removed "/etc/systemd/system/x".' >&2 ;;
'mthp_ext detach')
	[ -e "$STUBS/stopped" ] && { echo '{"version":1,"detached":[]}'; exit; }
	touch "$STUBS/stopped"
	echo '{"version":1,"detached":[{"root":"/","cgroup_id":1,"link_id":2}]}'
	[ ! -e "$STUBS/by-hand" ] || { echo "a daemon runs it" >&2; exit 8; } ;;
esac
"""


def out_in_one_command(page: str) -> str:
    """That of docs/fleet.md, for one host."""
    found = re.search(r"^## Out in one command$.*?^# (.*?) +# one host$", page, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def _run(argv: Sequence[str], home: Path, stubs: Path) -> subprocess.CompletedProcess[str]:
    python = setup.python_with(_LOCK_FILE)
    env = {
        **os.environ,
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PYTHON_INTERPRETER": str(python),
        "ANSIBLE_ROLES_PATH": str(ROLE / "roles"),
        "LC_ALL": "C.UTF-8",
        "PATH": f"{stubs}:{os.environ['PATH']}",
        "STUBS": str(home),
    }
    words = [str(python.with_name("ansible-playbook")), "-i", "localhost,", *argv]
    return subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _changed(said: str) -> int:
    found = re.search(r"^localhost +: .*changed=(\d+).*failed=0", said, re.MULTILINE)
    return int(found[1]) if found else -1


def _stop(suite: Suite, home: Path) -> None:
    stubs = home / "stubs"
    stubs.mkdir()
    for name in ("systemctl", "mthp_ext"):
        (stubs / name).write_text(_STUB)
        (stubs / name).chmod(0o755)
    book = home / "stop.yml"
    book.write_text(json.dumps(_PLAYBOOK))
    ran = home / "ran"
    first, again = _run([str(book)], home, stubs), _run([str(book)], home, stubs)
    said = first.stdout + first.stderr + again.stdout + again.stderr
    page = out_in_one_command((REPO / "docs" / "fleet.md").read_text())
    wanted = ["systemctl is-active mthp_ext.service mthp_ext@*", *commands(page)]
    lines = ran.read_text().splitlines() if ran.exists() else []
    suite.check("its stop runs what docs/fleet.md says", lines == wanted * 2, f"{lines}\n{wanted}\n{said}")
    changes = _changed(first.stdout), _changed(again.stdout)
    suite.check("a second stop changes nothing", changes == (3, 0), f"{changes}\n{said}")
    (home / "stopped").unlink(missing_ok=True)
    (home / "by-hand").touch()
    by_hand = _run([str(book)], home, stubs)
    goes_on = _changed(by_hand.stdout) == 3 and '"msg": "a daemon runs it"' in by_hand.stdout
    suite.check("what somebody runs by hand is named, and fails nothing", goes_on, by_hand.stdout + by_hand.stderr)


def commands(line: str) -> list[str]:
    """A line of the shell as the role has it: units with their endings, and answers that can be read."""
    parts = [shlex.split(part) for part in line.split(";")]
    named = [[f"{word}.service" if word == "mthp_ext" and at else word for at, word in enumerate(one)] for one in parts]
    return [" ".join([*one, "--json"] if one[0] == "mthp_ext" else one) for one in named]


def host() -> Suite:
    """What can be said of the role without hosts."""
    suite = Suite("ansible")
    with tempfile.TemporaryDirectory() as scratch:
        # What is included is read when its turn comes, what is imported at once.
        names = sorted(path.name for path in (ROLE / "roles" / "mthp_ext" / "tasks").iterdir())
        tasks = [{"ansible.builtin.import_role": {"name": "mthp_ext", "tasks_from": name}} for name in names]
        book = Path(scratch) / "each.yml"
        book.write_text(json.dumps([{"hosts": "localhost", "tasks": tasks}]))
        argv = ["--syntax-check", str(ROLE / "site.yml"), str(book)]
        done = _run(argv, Path(scratch), Path(scratch))
        suite.check("Ansible takes the playbook and each file of its role", done.returncode == 0, done.stderr)
        _stop(suite, Path(scratch))
    suite.settle()
    return suite
