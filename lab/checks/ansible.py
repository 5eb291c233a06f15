# SPDX-License-Identifier: GPL-2.0-only
"""The role of packaging/ansible by Ansible itself, and the commands of docs/fleet.md. This machine is the host, with
/etc, the databases of dpkg and apt, systemctl and mthp_ext of its own. Part of `make test-deb`, whose package has the
role."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
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
_OWN = ("etc", "var/lib/apt", "var/lib/dpkg", "var/cache/apt")
_DIRECTORIES = (
    "etc/systemd/system",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg/info",
    "var/lib/dpkg/updates",
    "var/cache/apt/archives/partial",
)
_APART = 'for one in $OWN; do mount --bind "$STUBS/root/$one" "/$one" || exit; done; exec "$@"'
_STUB = """#!/bin/sh
# What is asked is a line of $STUBS/ran; what there is on the host is a file of $STUBS.
name=${0##*/}
if [ "$name" = sudo ]; then
	touch "$STUBS/became"
	while [ "${1#-}" != "$1" ]; do
		[ "$1" != -u ] || shift
		shift
	done
	exec "$@"
fi
echo "$name $*" >>"$STUBS/ran"
is() { [ -e "$STUBS/$1" ]; }
case "$name $1" in
'dpkg '*) exec /usr/bin/dpkg "$@" ;;
'systemctl show') echo LoadState=loaded; is active && echo ActiveState=active || echo ActiveState=inactive ;;
'systemctl is-active') is active || { echo inactive; exit 3; }; printf 'active\\nactivating\\n' ;;
'systemctl is-enabled') is enabled || { echo disabled; exit 1; }; echo enabled ;;
'systemctl start' | 'systemctl restart') touch "$STUBS/active" ;;
'systemctl stop') rm -f "$STUBS/active" ;;
'systemctl enable') touch "$STUBS/enabled" ;;
'systemctl disable') is enabled || exit 0; rm "$STUBS/enabled"; echo 'Removed "/etc/systemd/system/x".' >&2 ;;
'mthp_ext support') is no-hook || exit 0; echo "the kernel has no hook" >&2; exit 4 ;;
'mthp_ext check-config') ! grep mistake "$2" ;;
'mthp_ext detach')
	is kept || { echo '{"version":1,"detached":[]}'; exit; }
	rm "$STUBS/kept"
	echo '{"version":1,"detached":[{"root":"/","cgroup_id":1,"link_id":2}]}'
	! is by-hand || { echo "a daemon runs it" >&2; exit 8; } ;;
esac
"""
_FIRST, _SECOND, _MISTAKE = 'policy = "default"\n', 'policy = "headroom"\n', "mistake\n"
_DROP_IN = """# Written by Ansible.
# Made by mthp_ext; goes when mthp-ext is purged.
[Service]
ExecStart=
ExecStart=/usr/sbin/mthp_ext run --on-exit hand-over{}
"""
_NETWORK = """PrivateNetwork=no
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
IPAddressDeny=
"""


def out_in_one_command(page: str) -> str:
    """That of docs/fleet.md, for one host."""
    found = re.search(r"^## Out in one command$.*?^# (.*?) +# one host$", page, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def shown(page: str) -> list[str]:
    """The commands of Ansible on a page, with the lines that they go on in."""
    return re.findall(r"^\$ (ansible(?:.*\\\n)*.*)", page, re.MULTILINE)


def commands(line: str) -> list[str]:
    """A line of the shell as the role has it: units with their endings, and answers that can be read."""
    parts = [shlex.split(part) for part in line.split(";")]
    named = [[f"{word}.service" if word == "mthp_ext" and at else word for at, word in enumerate(one)] for one in parts]
    return [" ".join([*one, "--json"] if one[0] == "mthp_ext" else one) for one in named]


def changed(said: str) -> int:
    """How many tasks of a run changed something; -1 where one failed, or none ran."""
    found = re.search(r"^localhost +: .*changed=(\d+).*unreachable=0 .*failed=0", said, re.MULTILINE)
    return int(found[1]) if found else -1


def _page() -> str:
    return (REPO / "docs" / "fleet.md").read_text()


class _Host:
    """This machine as a host of a fleet, in a directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "root"
        self.config = self.root / "etc" / "mthp_ext" / "config.toml"
        self.drop_in = self.root / "etc" / "systemd" / "system" / "mthp_ext.service.d" / "ansible.conf"
        self.stubs = home / "stubs"
        self.stubs.mkdir(parents=True)
        for name in ("systemctl", "mthp_ext", "dpkg", "sudo"):
            (self.stubs / name).write_text(_STUB)
            (self.stubs / name).chmod(0o755)
        for name in _DIRECTORIES:
            (self.root / name).mkdir(parents=True)
        for name in ("passwd", "group", "ld.so.cache"):
            shutil.copyfile(Path("/etc") / name, self.root / "etc" / name)
        (self.root / "var/lib/dpkg/status").touch()
        shutil.copytree(ROLE, home / "ansible")

    def set(self, *what: str) -> None:
        """Makes this so, and nothing else, and forgets what ran."""
        for name in ("active", "enabled", "kept", "by-hand", "no-hook", "became", "ran"):
            (self.home / name).unlink(missing_ok=True)
        for name in what:
            (self.home / name).touch()

    def has(self, name: str) -> bool:
        """Whether this is so."""
        return (self.home / name).exists()

    def deb(self, version: str) -> str:
        """A package of this version beside the playbook; its name."""
        tree = self.home / f"tree-{version}"
        files = {
            "DEBIAN/control": f"Package: mthp-ext\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@x.x>\n"
            "Description: x\n",
            "DEBIAN/conffiles": "/etc/mthp_ext/config.toml\n",
            "etc/mthp_ext/config.toml": "# That of the package.\n",
        }
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        (tree / "DEBIAN").chmod(0o755)
        name = f"mthp-ext_{version}_all.deb"
        argv = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(self.home / "ansible" / name)]
        subprocess.run(argv, capture_output=True, check=True)
        return name

    def version(self) -> str:
        """That of the package that is installed."""
        status = (self.root / "var/lib/dpkg/status").read_text()
        found = re.search(r"Status: install ok installed\n(?:.+\n)*Version: (.*)", status)
        return found[1] if found else ""

    def variables(self, **values: object) -> None:
        """Those of the group, and no others."""
        directory = self.home / "ansible" / "group_vars"
        directory.mkdir(exist_ok=True)
        (directory / "canary.json").write_text(json.dumps(values))

    def hosts(self, *names: str) -> None:
        """The inventory: each is this machine."""
        rows = [f"{name} ansible_connection=local" for name in names]
        (self.home / "ansible" / "hosts").write_text("\n".join(["[canary]", *rows, ""]))

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Runs a line of the shell beside the playbook, with both outputs in one."""
        python = setup.python_with(_LOCK_FILE)
        env = {
            **os.environ,
            "ANSIBLE_HOME": str(self.home / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PYTHON_INTERPRETER": str(python),
            "ANSIBLE_REMOTE_TMP": str(self.home / "tmp"),
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            # Not root, as the machine that runs Ansible has it.
            "LOGNAME": "operator",
            "OWN": " ".join(_OWN),
            "PATH": f"{self.stubs}:{python.parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "STUBS": str(self.home),
        }
        apart = ["unshare", "--mount", "--propagation", "private", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        return subprocess.run(
            [*apart, "/bin/sh", "-c", _APART, "sh", "/bin/sh", "-c", line],
            cwd=self.home / "ansible",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def ran(self) -> list[str]:
        """What ran since this was asked last; of paths the name."""
        path = self.home / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [re.sub(r"/\S*/", "", line) for line in lines]

    def did(self) -> list[str]:
        """The same without questions to systemctl and of packages, and without what differs between runs."""
        words = (("dpkg --force-confdef --force-confold", "dpkg"), (r"(check-config) .*", r"\1"))
        lines = [line for line in self.ran() if not re.match("systemctl (show|is-)|dpkg --field", line)]
        for pattern, text in words:
            lines = [re.sub(pattern, text, line) for line in lines]
        return lines


def _syntax(suite: Suite, host: _Host) -> None:
    # What is included is read when its turn comes, what is imported at once.
    names = sorted(path.name for path in (ROLE / "roles" / "mthp_ext" / "tasks").iterdir())
    tasks = [{"ansible.builtin.import_role": {"name": "mthp_ext", "tasks_from": name}} for name in names]
    (host.home / "ansible" / "each.yml").write_text(json.dumps([{"hosts": "localhost", "tasks": tasks}]))
    done = host.shell("ansible-playbook -i localhost, --syntax-check site.yml each.yml")
    suite.check("Ansible takes the playbook and each file of its role", done.returncode == 0, done.stdout)


def _stop(suite: Suite, host: _Host) -> None:
    (host.home / "ansible" / "stop.yml").write_text(json.dumps(_PLAYBOOK))
    stop = "ansible-playbook -i localhost, stop.yml"
    host.set("active", "enabled", "kept")
    first, again = host.shell(stop).stdout, host.shell(stop).stdout
    page = out_in_one_command(_page())
    wanted = ["systemctl is-active mthp_ext.service mthp_ext@*", *commands(page)]
    lines = host.ran()
    suite.check("its stop runs what docs/fleet.md says", lines == wanted * 2, f"{lines}\n{wanted}\n{first}{again}")
    changes = changed(first), changed(again)
    suite.check("a second stop changes nothing", changes == (3, 0), f"{changes}\n{first}{again}")
    host.set("active", "enabled", "kept", "by-hand")
    by_hand = host.shell(stop).stdout
    goes_on = changed(by_hand) == 3 and '"msg": "a daemon runs it"' in by_hand
    suite.check("what somebody runs by hand is named, and fails nothing", goes_on, by_hand)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _is(path: Path, text: str) -> bool:
    return _read(path) == text and path.stat().st_mode & 0o777 == 0o644


def _present(suite: Suite, host: _Host) -> None:
    """What the commands of docs/fleet.md do, one after the other, on one host."""
    host.set()
    host.hosts("localhost")
    host.variables(mthp_ext_config=_FIRST)
    old, new = host.deb("0.1-1"), host.deb("0.2-1")
    dry, force = (line.replace("mthp-ext_...deb", old) for line in shown(_page())[:2])

    said = host.shell(dry).stdout
    did = host.did()
    suite.check("it installs the package that it is given", host.version() == "0.1-1", f"{did}\n{said}")
    begin = [f"dpkg -i {old}", "mthp_ext support", "mthp_ext check-config"]
    run = ["systemctl daemon-reload", "systemctl enable mthp_ext", "systemctl start mthp_ext"]
    in_order = did[:6] == [*begin, *run] and changed(said) > 0
    suite.check("it installs, asks, configures, enables and starts, in this order", in_order, f"{did}\n{said}")
    suite.check("it becomes root", host.has("became"), said)
    suite.check("the service is enabled and runs", host.has("enabled") and host.has("active"), f"{did}\n{said}")
    suite.check("it writes the configuration that it is given", _is(host.config, _FIRST), said)
    suite.check("it writes the drop-in of a dry run", _is(host.drop_in, _DROP_IN.format(" --dry-run")), said)

    said = host.shell(force).stdout
    did = host.did()
    asked = ["mthp_ext support", "systemctl daemon-reload"]
    restarted = ["systemctl daemon-reload", "systemctl restart mthp_ext"]
    suite.check("in force the drop-in has no --dry-run", _is(host.drop_in, _DROP_IN.format("")), said)
    suite.check("another drop-in restarts it, once, and does no more", did == [*asked, *restarted], f"{did}\n{said}")

    said = host.shell(force).stdout
    did = host.did()
    suite.check("a second run changes nothing", changed(said) == 0 and did == asked, f"{did}\n{said}")

    host.variables(mthp_ext_config=_SECOND)
    said = host.shell(force).stdout
    did = host.did()
    reloaded = [asked[0], "mthp_ext check-config", asked[1], "systemctl reload mthp_ext"]
    ok = did == reloaded and _is(host.config, _SECOND)
    suite.check("another configuration is reloaded, without a restart", ok, f"{did}\n{said}")

    host.variables(mthp_ext_config=_MISTAKE)
    done = host.shell(force)
    did = host.did()
    ok = done.returncode != 0 and did == reloaded[:2] and _is(host.config, _SECOND)
    suite.check("a configuration with a mistake replaces none, and ends the run", ok, f"{did}\n{done.stdout}")

    host.variables(mthp_ext_metrics=["unix:/run/m", "[::1]:9"], mthp_ext_options="--policy off")
    said = host.shell(force.replace(old, new)).stdout
    did = host.did()
    ok = host.version() == "0.2-1" and did == [f"dpkg -i {new}", *asked, *restarted]
    suite.check("a newer package is installed", ok, f"{did}\n{said}")
    ok = _is(host.drop_in, _DROP_IN.format(" --metrics unix:/run/m --metrics [::1]:9 --policy off") + _NETWORK)
    suite.check("metrics and options are in the drop-in, with the network", ok, f"{_read(host.drop_in)}\n{said}")
    suite.check("no configuration: the file stays as it is", _is(host.config, _SECOND), said)

    refused = host.shell(force).returncode != 0 and host.version() == "0.2-1"
    suite.check("an older package is refused", refused, str(host.did()))
    said = host.shell(f"{force} -e mthp_ext_downgrade=true").stdout
    did = host.did()
    ok = host.version() == "0.1-1" and did == [f"dpkg -i {old}", *asked] and _is(host.config, _SECOND)
    suite.check("where that is asked for it rolls back", ok, f"{did}\n{said}")

    out = shown(_page())[2]
    host.set("active", "enabled", "kept")
    done = host.shell(out)
    did = host.did()
    wanted = [" ".join(shlex.split(part)) for part in out_in_one_command(_page()).split(";")]
    gone = not any(host.has(name) for name in ("active", "enabled", "kept"))
    ok = done.returncode == 0 and host.has("became") and did == wanted and gone
    suite.check("docs/fleet.md's command for all hosts ends it", ok, f"{did}\n{done.stdout}")


def _unsupported(suite: Suite, host: _Host) -> None:
    host.set("no-hook")
    host.hosts("localhost", "another")
    host.variables(mthp_ext_config=_FIRST)
    force = shown(_page())[1].replace("mthp-ext_...deb", host.deb("0.1-1"))
    done = host.shell(force)
    did = host.did()
    written = host.drop_in.exists() or _read(host.config) == _FIRST
    named = "the kernel has no hook" in done.stdout
    ok = done.returncode != 0 and named and did[1:] == ["mthp_ext support"] and not written
    suite.check("a host without the hook fails before anything is written or started", ok, f"{did}\n{done.stdout}")
    ok = "[localhost]" in done.stdout and "[another]" not in done.stdout
    suite.check("and ends the run before the next host", ok, done.stdout)


def host() -> Suite:
    """What can be said of the role without hosts."""
    suite = Suite("ansible")
    for part in (_syntax, _stop, _present, _unsupported):
        with tempfile.TemporaryDirectory() as scratch:
            part(suite, _Host(Path(scratch)))
    suite.settle()
    return suite
