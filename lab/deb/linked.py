# SPDX-License-Identifier: GPL-2.0-only
"""What is linked into the program, and what built it: read from cargo's own lock and metadata."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab import proc, programs
from lab.errors import Exit, LabError

PROGRAM = "mthp_ext"
TAKEN = ("GPL-2.0-only", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "BSL-1.0", "Unicode-3.0")
"""Licences under which code may be linked into a program under GPL-2.0-only, the one to take first; of a choice the
others fall away. Apache-2.0 is not one of them."""


BUNDLED = {"libbpf-sys": ("libbpf", "libbpf", "LGPL-2.1-only OR BSD-2-Clause")}
"""Crates that bring C code along and link it in: its name, its directory, its licence. Its version is what the crate's
has after the +."""


@dataclass(frozen=True)
class Crate:
    """A package that cargo builds the program of."""

    name: str
    version: str
    expression: str
    """Its licence as its author wrote it down."""
    source: Path
    sha256: str
    """Of the archive in the registry; empty for the program itself."""
    linked: bool
    """Whether its code is in the program: not that of macros and of what only builds."""
    uses: tuple[str, ...]
    """purls of those it is built with."""

    of: str = ""
    """The crate that brings it along, for what is no crate."""

    @property
    def purl(self) -> str:
        """Its name among all packages of the world."""
        return f"pkg:generic/{self.name}@{self.version}" if self.of else purl(self.name, self.version)


def purl(name: str, version: str) -> str:
    """The package URL of a crate."""
    return f"pkg:cargo/{name}@{version.replace('+', '%2B')}"


def spdx(expression: str) -> str:
    """The licence as SPDX writes it: old crates have a slash for OR."""
    return re.sub(r"\s*/\s*", " OR ", expression)


def taken(expression: str) -> list[str]:
    """The licences to follow: of a choice the first that goes with the program's own; all where all count. LabError
    if there is none."""
    found: list[str] = []
    for part in re.split(r"\s+AND\s+", re.sub(r"[()]", "", spdx(expression))):
        choices = re.split(r"\s+OR\s+", part)
        best = next((name for name in TAKEN if name in choices), None)
        if best is None:
            raise LabError(
                Exit.BUILD,
                f"licence {expression!r}: nothing of it goes with {TAKEN[0]}, the program's own; leave that crate out, "
                "or add the licence to TAKEN in lab/deb/linked.py if it does",
            )
        found.append(best)
    return found


def _proc_macro(package: Mapping[str, Any]) -> bool:
    return any("proc-macro" in target["kind"] for target in package["targets"])


def _reached(start: str, nodes: Mapping[str, Any], macros: set[str], kinds: Iterable[str | None]) -> set[str]:
    """Ids of what a package is made of, by edges of these kinds; those behind a macro are the compiler's."""
    wanted = set(kinds)
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for edge in nodes[one]["deps"]:
            kinds_here = {kind["kind"] for kind in edge["dep_kinds"]}
            if kinds_here & wanted and not (edge["pkg"] in macros and wanted == {None}):
                waiting.append(edge["pkg"])
    return seen


def crates_of(metadata: Mapping[str, Any], lock: Mapping[str, Any]) -> list[Crate]:
    """All that `cargo metadata` and Cargo.lock name, the program first."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    start = next(id for id, package in packages.items() if package["name"] == PROGRAM)
    macros = {id for id, package in packages.items() if _proc_macro(package)}
    sums = {(one["name"], one["version"]): one.get("checksum", "") for one in lock["package"]}
    linked = _reached(start, nodes, macros, {None})
    built = _reached(start, nodes, macros, {None, "build"})
    found = []
    for id in sorted(built, key=lambda id: (id != start, packages[id]["name"], packages[id]["version"])):
        package = packages[id]
        edges = [edge for edge in nodes[id]["deps"] if edge["pkg"] in built]
        edges = [edge for edge in edges if {None, "build"} & {kind["kind"] for kind in edge["dep_kinds"]}]
        uses = sorted(purl(packages[edge["pkg"]]["name"], packages[edge["pkg"]]["version"]) for edge in edges)
        found.append(
            Crate(
                name=package["name"],
                version=package["version"],
                expression=package["license"] or "",
                source=Path(package["manifest_path"]).parent,
                sha256=sums[package["name"], package["version"]],
                linked=id in linked,
                uses=tuple(uses),
            )
        )
        if package["name"] in BUNDLED:
            name, directory, expression = BUNDLED[package["name"]]
            version = package["version"].partition("+v")[2]
            source = found[-1].source / directory
            bundled = Crate(name, version, expression, source, "", id in linked, (), of=package["name"])
            found[-1] = replace(found[-1], uses=(*found[-1].uses, bundled.purl))
            found.append(bundled)
    return found


def crates(repo: Path) -> list[Crate]:
    """Those of the checkout `repo`."""
    host = re.search(r"^host: (\S+)$", _rustc("-vV"), re.MULTILINE)
    argv = [programs.cargo(), "metadata", "--locked", "--format-version", "1"]
    argv += ["--filter-platform", host[1]] if host else []
    text = proc.output(argv, what="asking cargo what the program is made of", code=Exit.BUILD, cwd=repo)
    return crates_of(json.loads(text), tomllib.loads((repo / "Cargo.lock").read_text()))


def _rustc(option: str) -> str:
    argv = [str(Path(programs.cargo()).with_name("rustc")), option]
    return proc.output(argv, what="asking the compiler for its version", code=Exit.BUILD)


def compiler() -> str:
    """The version of rustc, whose library is in the program, too."""
    return _rustc("--version").split()[1]
