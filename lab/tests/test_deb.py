# SPDX-License-Identifier: GPL-2.0-only
"""The Debian package: its version, and what is said of what is linked into the program."""

import itertools
import os
import re
import subprocess
import tempfile
import unittest
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lab.deb import build, licences, linked, sbom
from lab.deb.linked import Crate
from lab.errors import Exit, LabError
from lab.paths import REPO

WHEN = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)
POSTRM = REPO / "packaging" / "debian" / "mthp-ext.postrm"
SOURCE = build.Source("abcdef123456", WHEN, "A <a@b.example>", False, (), "")


def lower(one: str, other: str) -> bool:
    """As dpkg sees it."""
    return subprocess.run(["dpkg", "--compare-versions", one, "lt", other], check=False).returncode == 0


class VersionTest(unittest.TestCase):
    def test_from_the_first_commit_over_releases_to_the_next_each_is_higher(self) -> None:
        def of(program: str, day: int, number: str = "12", *, dirty: bool = False, **tagged: Any) -> str:
            when = WHEN + timedelta(days=day)
            # The later, the lower the hash: it must not count.
            commit = f"{99 - day:012d}"
            return build.version(replace(SOURCE, when=when, commit=commit, dirty=dirty, **tagged), program, number)

        first, released = of("1.2.0", 0), of("1.2.0", 3, tags=("v1.2.0",), tag="v1.2.0")
        self.assertEqual(first, "1.2.0~git20261122.010203.000000000099-1~deb12")
        self.assertEqual(released, "1.2.0-1~deb12")
        after = ("v0.9", "v1.2.0")
        ascending = [
            first,
            of("1.2.0", 0, "13"),
            of("1.2.0", 1),
            of("1.2.0", 1, dirty=True),
            of("1.2.0", 2, tags=("v1.1.0",)),
            released,
            of("1.2.0", 3, "13", tags=("v1.2.0",), tag="v1.2.0"),
            # Changed, it is no release, and Cargo.toml still has its number.
            of("1.2.0", 3, dirty=True, tags=("v1.2.0",), tag="v1.2.0"),
            of("1.2.0", 4, tags=after),
            of("1.2.1", 5, tags=after),
            of("1.2.1", 6, tags=("v1.2.0", "v1.2.1"), tag="v1.2.1"),
            of("1.2.1", 7, tags=("v1.2.0", "v1.2.1")),
            of("1.10.0", 8, tags=("v1.2.0", "v1.2.1")),
            of("1.10.0", 9, tags=("v1.2.1", "v1.10.0"), tag="v1.10.0"),
            of("1.10.0", 10, tags=("v1.10.0", "v1.2.1")),
        ]
        for one, other in itertools.pairwise(ascending):
            self.assertTrue(lower(one, other), (one, other))

    def test_a_release_that_has_no_tag_is_in_the_changelog(self) -> None:
        changelog = "# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2026-11-22\n\nIn 9.9.9 - 1\n\n## 1.1.10 - 2026-01-01\n"
        self.assertEqual(build.named(changelog), ("v1.2.0",))
        self.assertEqual(build.named("# Changelog\n\n## Unreleased\n"), ())
        self.assertEqual(build.named("## 1.9.0 - 2026-01-01\n## 1.10.0 - 2026-01-02\n"), ("v1.10.0",))

        def of(program: str, text: str, **others: Any) -> str:
            return build.version(replace(SOURCE, tags=build.named(text), **others), program, "12")

        before, after = of("1.2.0", "## 1.1.10 - 2026-01-01\n"), of("1.2.0", changelog)
        released = of("1.2.0", changelog, tag="v1.2.0")
        next_one = of("1.3.0", changelog)
        self.assertEqual(released, "1.2.0-1~deb12")
        self.assertRegex(after, r"^1\.2\.1~git")
        for one, other in itertools.pairwise((before, released, after, "1.2.1-1~deb12", next_one)):
            self.assertTrue(lower(one, other), (one, other))
        # That of the checkout comes after what its own changelog names.
        newest = build.named((REPO / "CHANGELOG.md").read_text())
        self.assertTrue(newest)
        self.assertLessEqual(set(newest), set(build.source().tags))

    def test_the_hash_is_as_long_in_each_clone(self) -> None:
        self.assertRegex(build.source().commit, r"^[0-9a-f]{12}$")

    def test_the_release_is_the_machines(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "os-release"
            file.write_text('ID=debian\nVERSION_ID="13"\n')
            self.assertEqual(build.release(file), "13")
            for text in ('ID=debian\nVERSION_ID="11"\n', "ID=debian\n", 'ID=ubuntu\nVERSION_ID="12"\n', ""):
                file.write_text(text)
                with self.assertRaises(LabError) as caught:
                    build.release(file)
                self.assertEqual(caught.exception.code, Exit.HOST)

    def test_debians_tools_say_who_answers_for_it(self) -> None:
        self.assertEqual(build.maintainer(SOURCE, {}), "A <a@b.example>")
        env = {"DEBFULLNAME": "B", "DEBEMAIL": "b@c.example"}
        self.assertEqual(build.maintainer(SOURCE, env), "B <b@c.example>")


MARK = "# Made by mthp_ext; goes when mthp-ext is purged.\n"


class LintianTest(unittest.TestCase):
    def test_each_line_counts_whatever_it_is_about(self) -> None:
        known = next(iter(build.KNOWN))
        lines = [
            "E: mthp-ext: binary-without-manpage [usr/sbin/mthp_ext]",
            "E: mthp-ext changes: bad-distribution-in-changes-file bookwurm",
            "I: mthp-ext buildinfo: some-hint",
        ]
        text = "\n".join([*lines, f"I: mthp-ext: {known} [usr/lib/systemd/system/mthp_ext.service]", "N: 1 hint"])
        self.assertEqual(build.hints(text), "\n".join(lines))


class RemovalTest(unittest.TestCase):
    def _after(self, action: str, **others: str) -> set[str]:
        """What is left of files and links in a tree that has these besides."""
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            unit, instance = "mthp_ext@.service", "etc/systemd/system/multi-user.target.wants/mthp_ext@{}.service"
            links = {
                instance.format("a"): f"/lib/systemd/system/{unit}",
                instance.format("b"): f"/usr/lib/systemd/system/{unit}",
                instance.format("c"): f"/usr/local/lib/systemd/system/{unit}",
                instance.format("d"): f"/etc/systemd/system/{unit}",
            }
            files = {
                "run/mthp_ext/reload-1": "",
                "run/mthp_ext-settings": "",
                "etc/mthp_ext/config.d/made.toml": MARK,
                "etc/mthp_ext/config.d/own.toml": "# Mine.\n",
                **others,
            }
            for name in (*files, *links):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (root / name).write_text(text)
            for name, to in links.items():
                (root / name).symlink_to(to)
            done = subprocess.run(
                ["sh", str(POSTRM), action],
                env={"DPKG_ROOT": scratch, "PATH": os.environ["PATH"]},
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file()}
            kept = {instance.format("c"), instance.format("d"), "etc/mthp_ext/config.d/own.toml"}
            self.assertLessEqual(kept, left)
            return left - kept - set(others)

    def test_a_purge_takes_what_is_the_packages(self) -> None:
        # Another process, and one that has ended meanwhile.
        others = {"proc/1/comm": "systemd\n", "proc/7/status": "", "proc/8/comm": "mthp_ext_copy\n"}
        self.assertEqual(self._after("purge", **others), set())
        self.assertNotIn("run/mthp_ext/reload-1", left := self._after("remove"))
        self.assertIn("run/mthp_ext-settings", left)
        self.assertEqual(len(self._after("upgrade")), 5)

    def test_what_another_installation_uses_stays(self) -> None:
        for name in ("usr/local/sbin/mthp_ext", "proc/12/comm"):
            others = {"proc/1/comm": "systemd\n", name: "mthp_ext\n"}
            self.assertEqual(self._after("purge", **others), {"run/mthp_ext/reload-1", "run/mthp_ext-settings"})
            self.assertIn("run/mthp_ext/reload-1", self._after("remove", **others))


class LicenceTest(unittest.TestCase):
    def test_of_a_choice_the_one_that_goes_with_the_program(self) -> None:
        for expression, wanted in (
            ("MIT OR Apache-2.0", ["MIT"]),
            ("Apache-2.0/MIT", ["MIT"]),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", ["MIT"]),
            ("Apache-2.0 OR BSL-1.0", ["BSL-1.0"]),
            ("LGPL-2.1-only OR BSD-2-Clause", ["BSD-2-Clause"]),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", ["MIT", "Unicode-3.0"]),
        ):
            self.assertEqual(linked.taken(expression), wanted, expression)

    def test_what_does_not_go_with_it_is_refused(self) -> None:
        for expression in ("Apache-2.0", "GPL-3.0-only", "", "MIT AND Apache-2.0"):
            with self.assertRaises(LabError):
                linked.taken(expression)

    def test_notices_and_terms_of_a_file(self) -> None:
        file = (
            "The MIT License\n\nCopyright (c) 2015-2020 A. Author\n\nPermission is hereby granted, ...\nTHE SOFTWARE\n"
        )
        self.assertEqual(
            licences.text_of(file, "MIT"), (["2015-2020 A. Author"], "Permission is hereby granted, ...\nTHE SOFTWARE")
        )
        two = f"Both:\n~~~~\n{file}\n~~~~\nApache License\n"
        self.assertEqual(licences.text_of(two, "MIT"), licences.text_of(file, "MIT"))
        self.assertEqual(licences.text_of("Copyright (c) <year> <owner>\nRedistribution and use", "MIT"), ([], ""))

    def test_each_wording_has_a_name_of_its_own(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            made = []
            for name, terms in (("a", "one"), ("b", "One."), ("c", "two")):
                directory = Path(scratch) / name
                directory.mkdir()
                (directory / "LICENSE").write_text(
                    f"Copyright (c) 2020 {name}\n\nPermission is hereby granted {terms}\n"
                )
                made.append(crate(name, source=directory))
            text = licences.stanzas([*made, crate("d", linked=False)], "1.85.0")
        self.assertEqual(
            re.findall(r"^Files: (.*)$", text, re.M),
            ["*", *(f"vendor/{n}/*" for n in ("a-1", "b-1", "c-1", "rust-std-1.85.0"))],
        )
        self.assertEqual(re.findall(r"^License: (MIT.*)$", text, re.M), ["MIT", "MIT", "MIT~1", "MIT", "MIT", "MIT~1"])
        self.assertIn("Copyright: 2020 a\n", text)


def crate(name: str, **others: Any) -> Crate:
    """One that is linked."""
    usual: dict[str, Any] = {"version": "1", "expression": "MIT", "source": Path("/none"), "sha256": "0" * 64}
    return Crate(**{"name": name, "linked": True, "uses": (), **usual, **others})


def metadata() -> dict[str, Any]:
    """The program uses a, builds with b, has macros of m; m and b use c, a has d for its tests only."""

    def package(name: str, kind: str = "lib") -> dict[str, Any]:
        manifest = f"/vendor/{name}/Cargo.toml"
        return {
            "id": name, "name": name, "version": "1", "license": "MIT", "manifest_path": manifest,
            "targets": [{"kind": [kind]}],
        }  # fmt: skip

    def node(name: str, **uses: str | None) -> dict[str, Any]:
        edges = [{"pkg": other, "dep_kinds": [{"kind": kind}]} for other, kind in uses.items()]
        return {"id": name, "deps": edges}

    names = ["mthp_ext", "a", "b", "c", "d"]
    return {
        "packages": [*(package(name) for name in names), package("m", "proc-macro")],
        "resolve": {
            "nodes": [
                node("mthp_ext", a=None, b="build", m=None),
                node("a", d="dev"),
                node("b", c=None),
                node("c"),
                node("d"),
                node("m", c=None),
            ]
        },
    }


LOCK = {"package": [{"name": name, "version": "1", "checksum": name * 64} for name in (*"abcdm", "mthp_ext")]}


class LinkedTest(unittest.TestCase):
    def test_macros_and_what_builds_are_not_in_the_program(self) -> None:
        found = {one.name: one for one in linked.crates_of(metadata(), LOCK)}
        self.assertEqual([name for name, one in found.items() if one.linked], ["mthp_ext", "a"])
        self.assertEqual(set(found), {"mthp_ext", "a", "b", "c", "m"})
        self.assertEqual(found["mthp_ext"].uses, ("pkg:cargo/a@1", "pkg:cargo/b@1", "pkg:cargo/m@1"))

    def test_c_code_that_a_crate_brings_along_is_named(self) -> None:
        of = metadata()
        of["packages"][1] |= {"name": "libbpf-sys", "version": "1.5.0+v1.5.1"}
        lock = {"package": [*LOCK["package"], {"name": "libbpf-sys", "version": "1.5.0+v1.5.1", "checksum": "e" * 64}]}
        found = {one.name: one for one in linked.crates_of(of, lock)}
        self.assertEqual(found["libbpf"].purl, "pkg:generic/libbpf@1.5.1")
        self.assertEqual(found["libbpf"].source, Path("/vendor/a/libbpf"))
        self.assertIn(found["libbpf"].purl, found["libbpf-sys"].uses)

    def test_the_bill_refers_to_what_it_lists(self) -> None:
        crates = linked.crates_of(metadata(), LOCK)
        bom = sbom.bom(crates, "1.85.0", "2026-11-22T01:02:03Z")
        refs = [one["bom-ref"] for one in bom["components"]] + [bom["metadata"]["component"]["bom-ref"]]
        self.assertEqual(sorted(refs), sorted(set(refs)))
        self.assertEqual({one["ref"] for one in bom["dependencies"]}, set(refs))
        used = {ref for one in bom["dependencies"] for ref in one["dependsOn"]}
        self.assertLessEqual(used, set(refs))
        scopes = {one["name"]: one["scope"] for one in bom["components"]}
        self.assertEqual(
            scopes, {"a": "required", "b": "excluded", "c": "excluded", "m": "excluded", "rust-std": "required"}
        )
        self.assertEqual(sbom.text(crates, "1.85.0", "x"), sbom.text(crates, "1.85.0", "x"))
        other = sbom.bom(crates, "1.86.0", "2026-11-22T01:02:03Z")
        self.assertNotEqual(bom["serialNumber"], other["serialNumber"])
