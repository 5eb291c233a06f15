# SPDX-License-Identifier: GPL-2.0-only
"""Fetches Debian's linux-source package with apt's own verification, beside the host's apt configuration.

Mirror and key come from that configuration when this runs; suites, lists and downloads live in a directory
of ours, so nothing of the host's apt changes and no root is needed.
"""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from lab import proc
from lab.errors import Exit
from lab.kernel.aptsources import Source, debian_mirrors, host_sources
from lab.kernel.version import SERIES, Candidate, newest, parse_madison

SUITES = ("trixie-backports", "sid", "experimental", "forky", "forky-backports")
PACKAGE = f"linux-source-{SERIES}"
CONFIG = f"linux-config-{SERIES}"
"""Has the configurations of Debian's own kernels."""


@dataclass
class Attempts:
    """What was tried and why it failed, for the message when nothing worked."""

    lines: list[str] = field(default_factory=list)

    def add(self, what: str, why: str) -> None:
        """Notes one failed attempt."""
        self.lines.append(f"{what}: {' '.join(why.split())[:400]}")


def host_config() -> dict[str, list[str]]:
    """The host's apt settings, as `apt-config dump` lists them."""
    values: dict[str, list[str]] = {}
    dump = proc.output(["apt-config", "dump"], what="reading apt's configuration", code=Exit.SOURCE)
    for line in dump.splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name, []).append(value.strip().removesuffix(";").strip('"'))
    return values


def _etc(config: dict[str, list[str]], name: str) -> Path:
    def one(key: str, default: str) -> str:
        return config.get(key, [default])[0]

    base = Path("/", one("Dir", "/"), one("Dir::Etc", "etc/apt"))
    return base / one(name, name.rpartition("::")[2])


def mirrors(config: dict[str, list[str]]) -> list[Source]:
    """The Debian mirrors of the host's own sources."""
    return debian_mirrors(host_sources(_etc(config, "Dir::Etc::sourcelist"), _etc(config, "Dir::Etc::sourceparts")))


class PrivateApt:
    """apt-get with one source and with state of its own below `directory`."""

    def __init__(self, directory: Path, config: dict[str, list[str]], mirror: Source, suite: str) -> None:
        self.directory = directory
        for sub in ("lists/partial", "archives/partial", "download"):
            (directory / sub).mkdir(parents=True, exist_ok=True)
        # Hooks that other packages put around the host's apt runs do not belong here, so its configuration
        # parts are left out; how to reach the network (proxies, certificates) is carried over.
        lines = [
            'Dir::Etc::main "/dev/null";',
            'Dir::Etc::parts "/dev/null";',
            f'Dir::Etc::sourcelist "{directory}/mirror.sources";',
            'Dir::Etc::sourceparts "/dev/null";',
            'Dir::Etc::preferences "/dev/null";',
            'Dir::Etc::preferencesparts "/dev/null";',
            f'Dir::State::lists "{directory}/lists/";',
            # What the host has installed is no candidate here: apt would ask this source for that version.
            f'Dir::State::status "{directory}/status";',
            f'Dir::Cache "{directory}/";',
            'Acquire::Languages "none";',
            # apt's unprivileged user cannot enter a cache below a home directory.
            'APT::Sandbox::User "root";',
        ]
        for name, values in config.items():
            if name.startswith("Acquire::") and not name.startswith(("Acquire::IndexTargets", "Acquire::Languages")):
                lines += [f'{name} "{value}";' for value in values if value]
        (directory / "status").touch()
        (directory / "apt.conf").write_text("\n".join(lines) + "\n")
        signed = f"Signed-By: {mirror.signed_by}\n" if mirror.signed_by else ""
        (directory / "mirror.sources").write_text(
            f"Types: deb\nURIs: {mirror.uri}\nSuites: {suite}\nComponents: main\n{signed}"
        )
        self.env = {**os.environ, "APT_CONFIG": str(directory / "apt.conf"), "LC_ALL": "C"}

    def call(self, *argv: str) -> tuple[bool, str]:
        """Runs an apt program; whether it succeeded, and its output or its complaint."""
        try:
            done = subprocess.run(
                argv,
                env=self.env,
                cwd=self.directory / "download",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            return False, f"{argv[0]}: {error.strerror}"
        return done.returncode == 0, done.stdout if done.returncode == 0 else done.stderr or done.stdout


def find(directory: Path, attempts: Attempts, package: str = PACKAGE) -> tuple[PrivateApt, Candidate] | None:
    """Refreshes the private lists and picks the newest version over all mirrors and suites."""
    config = host_config()
    sources = mirrors(config)
    if not sources:
        attempts.add("the host's apt sources", "no entry serves Debian's main component")
    for mirror in sources:
        found: dict[str, PrivateApt] = {}
        candidates: list[Candidate] = []
        for suite in SUITES:
            apt = PrivateApt(directory / suite, config, mirror, suite)
            ok, text = apt.call("apt-get", "update", "--error-on=any")
            if not ok:
                attempts.add(f"{suite} (mirror of {mirror.where})", text)
                continue
            ok, text = apt.call("apt-cache", "madison", package)
            here = parse_madison(text, suite) if ok else []
            if newest(here) is None:
                attempts.add(f"{suite} (mirror of {mirror.where})", f"has no {package}")
                continue
            found[suite] = apt
            candidates += here
        if best := newest(candidates):
            return found[best.suite], best
    return None


def fetch(directory: Path, attempts: Attempts, package: str = PACKAGE) -> tuple[Path, str] | None:
    """Downloads the newest `package`; the verified .deb and its version, or None with notes in `attempts`."""
    found = find(directory, attempts, package)
    if found is None:
        return None
    apt, best = found
    download = apt.directory / "download"
    for old in download.iterdir():
        old.unlink()
    ok, text = apt.call("apt-get", "download", f"{package}={best.version}")
    debs = list(download.glob("*.deb"))
    if not ok or len(debs) != 1:
        attempts.add(f"{package} {best.version} from {best.suite}", text)
        return None
    return debs[0], best.version
