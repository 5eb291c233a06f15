# SPDX-License-Identifier: GPL-2.0-only
"""Builds the Debian package of the checkout, for the release of the machine, with dpkg-buildpackage and debhelper."""

import hashlib
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from lab import proc, programs, setup
from lab.deb import licences, linked, sbom
from lab.errors import Exit, LabError
from lab.paths import BUILD, REPO

NAME = "mthp-ext"
"""Debian's names have no underscore."""
SBOM = "mthp_ext.cdx.json"
DIRECTORY = BUILD / "deb"
RELEASES = {"12": "bookworm", "13": "trixie"}
_LOG = BUILD / "log" / "deb.log"
_LINTIAN_LOG = BUILD / "log" / "lintian.log"
KNOWN = {
    "package-supports-alternative-init-but-no-init.d-script": "the service reports to systemd, and has no other script"
}
"""Hints of lintian's that stay, and why."""
_OS_RELEASE = Path("/etc/os-release")
_RELEASED = re.compile(r"v\d+(\.\d+)+")


@dataclass(frozen=True)
class Source:
    """The checkout as the package says what it is."""

    commit: str
    when: datetime
    author: str
    dirty: bool
    tags: tuple[str, ...]
    """Versions of releases that it comes after, its own and the newest of CHANGELOG.md among them: v1.2.3."""
    tag: str
    """Of this very commit, if it has one that is a version."""


def release(os_release: Path = _OS_RELEASE) -> str:
    """The number of the Debian release of this machine; LabError on another system."""
    text = os_release.read_text() if os_release.exists() else ""
    found = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    number = str(found.get("VERSION_ID", ""))
    if found.get("ID") != "debian" or number not in RELEASES:
        here = found.get("PRETTY_NAME", "another system")
        raise LabError(
            Exit.HOST,
            f"packages are made for the Debian release of the machine, {' or '.join(RELEASES)}, and this is {here}: "
            "run it in a container of one, or use `make install` (docs/install.md)",
        )
    return number


def git(*words: str) -> str:
    """What git says of the checkout."""
    return proc.output([*proc.GIT, "-C", str(REPO), *words], what="asking git for the commit", code=Exit.TREE).strip()


def _tags(which: str) -> tuple[str, ...]:
    return tuple(tag for tag in git("tag", which, "HEAD").split() if _RELEASED.fullmatch(tag))


def named(changelog: str) -> tuple[str, ...]:
    """The newest release that CHANGELOG.md names; a clone may have no tags, or the project not yet."""
    found = re.findall(r"^## (\d+(?:\.\d+)+) - \d", changelog, re.MULTILINE)
    return tuple(f"v{found}" for found in sorted(found, key=_numbers)[-1:])


def source() -> Source:
    """What is checked out."""
    commit, seconds, author = git("show", "--no-patch", "--format=%H%x09%ct%x09%an <%ae>", "HEAD").split("\t")
    return Source(
        # Git's own abbreviation gets longer with the number of objects in a clone.
        commit=commit[:12],
        when=datetime.fromtimestamp(int(seconds), UTC),
        author=author,
        dirty=bool(git("status", "--porcelain")),
        tags=(*_tags("--merged"), *named((REPO / "CHANGELOG.md").read_text())),
        tag=next(iter(_tags("--points-at")), ""),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("v").split("."))


def version(of: Source, program: str, number: str) -> str:
    """The package's: higher with each commit, lower than the release to come, and higher on the next Debian, so that
    upgrading either upgrades it."""
    if of.tag == f"v{program}" and not of.dirty:
        return f"{program}-1~deb{number}"
    coming = _numbers(program)
    # Cargo.toml may still name the release that it comes after.
    if (last := max(map(_numbers, of.tags), default=())) >= coming:
        coming = (*last[:-1], last[-1] + 1)
    before = f"{'.'.join(map(str, coming))}~git{of.when:%Y%m%d.%H%M%S}.{of.commit}"
    return f"{before}{'.dirty' if of.dirty else ''}-1~deb{number}"


def _program_version() -> str:
    manifest = tomllib.loads((REPO / "Cargo.toml").read_text())
    return str(manifest["workspace"]["package"]["version"])


def maintainer(of: Source, env: Mapping[str, str] = os.environ) -> str:
    """Who answers for the package: as Debian's tools are told, else the commit's author."""
    name, mail = env.get("DEBFULLNAME"), env.get("DEBEMAIL")
    return f"{name} <{mail}>" if name and mail else of.author


def _changelog(of: Source, package: str, number: str) -> str:
    where = f"commit {of.commit}{', with changes that are not committed' if of.dirty else ''}"
    return (
        f"{NAME} ({package}) {RELEASES[number]}; urgency=medium\n\n"
        f"  * Built of {where}.\n"
        "  * What has changed is in /usr/share/doc/mthp-ext/changelog.gz.\n\n"
        f" -- {maintainer(of)}  {format_datetime(of.when)}\n"
    )


def _lay_out(tree: Path, package: str, of: Source, number: str) -> None:
    """Writes the source as dpkg-buildpackage wants it: what git knows of the checkout, and debian/."""
    shutil.rmtree(tree, ignore_errors=True)
    for name in git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        # Those that are deleted are still known.
        if name and (REPO / name).is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # With its times: cargo builds again what is newer.
            shutil.copy2(REPO / name, target)
            target.chmod(0o755 if target.stat().st_mode & 0o100 else 0o644)
    debian = tree / "debian"
    (tree / "packaging" / "debian").rename(debian)
    control = debian / "control"
    control.write_text(control.read_text().replace("@MAINTAINER@", maintainer(of)))
    (debian / "changelog").write_text(_changelog(of, package, number))
    crates, compiler = linked.crates(tree), linked.compiler()
    (debian / "copyright").write_text(licences.stanzas(crates, compiler))
    (debian / SBOM).write_text(sbom.text(crates, compiler, of.when.strftime("%Y-%m-%dT%H:%M:%SZ")))


def _as_it_is(_tree: Path) -> None:
    pass


def package(directory: Path = DIRECTORY, as_version: str = "", edit: Callable[[Path], None] = _as_it_is) -> Path:
    """Builds in `directory` and returns the .deb in it; `as_version`: another version than the checkout's; `edit`
    changes the source before."""
    setup.ensure(setup.Need.DEB)
    number = release()
    of = source()
    full = as_version or version(of, _program_version(), number)
    tree = directory / "tree" / NAME
    _lay_out(tree, full, of, number)
    edit(tree)
    env = {
        **proc.outside_make(),
        **programs.environment(),
        "CARGO_TARGET_DIR": str(directory / "cargo"),
        "SOURCE_DATE_EPOCH": str(int(of.when.timestamp())),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "RUSTFLAGS"):
        env.pop(name, None)
    # Not what is needed to build: that was seen to, and Rust need not be a package.
    proc.run(
        ["dpkg-buildpackage", "--build=binary", "--no-check-builddeps", "--no-sign"],
        log=_LOG,
        what=f"building {NAME} {full}",
        cwd=tree,
        env=env,
    )
    made = sorted(tree.parent.glob(f"{NAME}*_{full}_*"))
    for path in made:
        path.replace(directory / path.name)
    debs = [directory / path.name for path in made if path.name.startswith(f"{NAME}_") and path.suffix == ".deb"]
    if len(debs) != 1:
        raise LabError(Exit.BUILD, f"dpkg-buildpackage made {len(debs)} packages named {NAME}; log: {_LOG}")
    return debs[0]


def dkms(deb: Path) -> Path:
    """The package of the module, which is made with that of the program."""
    _, version, _ = deb.stem.split("_")
    return deb.parent / f"{NAME}-dkms_{version}_all.deb"


def sha256(path: Path) -> str:
    """Of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def complaints(deb: Path) -> str:
    """What lintian says against the package, its hints included; empty when it is clean."""
    changes = next(deb.parent.glob(f"{deb.stem}.changes"))
    argv = ["lintian", "--display-info", "--pedantic", "--tag-display-limit", "0", "--fail-on", "none"]
    argv += ["--allow-root"] if os.geteuid() == 0 else []
    text = proc.output([*argv, str(changes)], what="running lintian", code=Exit.INSTALL)
    _LINTIAN_LOG.write_text(text)
    return hints(text)


def hints(text: str) -> str:
    """Lines of lintian's with a tag that is not known. It names what it is about, of one or two words: `mthp-ext`,
    `mthp-ext changes`."""
    found = re.findall(r"^([EWIPOX]: [^:\n]+: (\S+).*)$", text, re.MULTILINE)
    return "\n".join(line for line, tag in found if tag not in KNOWN)


def main() -> int:
    """`make deb`: 1 if lintian has something against it."""
    deb = package()
    if text := complaints(deb):
        print(text)
        return Exit.TESTS
    print("deb: lintian has nothing against them")
    for one in (deb, dkms(deb)):
        print(f"{sha256(one)}  {one}")
    return Exit.OK
