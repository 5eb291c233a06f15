# SPDX-License-Identifier: GPL-2.0-only
"""The documentation: links lead somewhere, and what it names exists."""

import re
import tomllib
import unittest
from pathlib import Path

from lab.paths import REPO
from lab.tests.test_docs_commands import table_of_options
from lab.tests.test_kernel_tests import others

DOCS = REPO / "docs"
PAGES = [*REPO.glob("*.md"), *DOCS.rglob("*.md"), *(REPO / "kernel").glob("*.md"), *(REPO / "results").rglob("*.md")]
POLICIES = {path.stem: tomllib.loads(path.read_text()) for path in sorted((REPO / "policies").glob("*.toml"))}
_OPTIONS = re.compile(r"--([a-z][a-z-]+)")


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links."""
    found = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken(page: Path) -> list[str]:
    """Its links to files and headings that are not there."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


def paths(page: Path) -> set[str]:
    """Files of the lab that a page names; NAME stands for any."""
    found = re.findall(r"\blab/[\w/]+\.(?:py|rs|c|h)\b", page.read_text())
    return {path for path in found if "NAME" not in path}


def verifier_rows(text: str) -> dict[tuple[str, str], set[str]]:
    """(policy, options) -> programs, of the table in docs/internals/verifier-cost.md."""
    found: dict[tuple[str, str], set[str]] = {}
    for policy, options, program, count in re.findall(
        r"^\| `([\w-]+)` \| `?([^`|]*?)`? ?\| `(\w+)` \| ([\d,]+) \|", text, re.MULTILINE
    ):
        if int(count.replace(",", "")) > 0:
            found.setdefault((policy, options), set()).add(program)
    return found


class LinkTest(unittest.TestCase):
    def test_links_lead_somewhere(self) -> None:
        self.assertGreater(len(PAGES), 10)
        for page in PAGES:
            self.assertEqual(broken(page), [], page)


class PathTest(unittest.TestCase):
    def test_the_files_of_the_lab_that_are_named_exist(self) -> None:
        # In the lab's own messages and comments, too.
        sources = [path for path in (REPO / "lab").rglob("*") if path.suffix in (".py", ".rs", ".c", ".h")]
        named = {path for page in [*PAGES, *sources, REPO / ".ci" / "run"] for path in paths(page)}
        self.assertGreater(len(named), 30)
        self.assertEqual([path for path in sorted(named) if not (REPO / path).exists()], [])


class PolicyPageTest(unittest.TestCase):
    def test_each_policy_has_a_page_that_says_all(self) -> None:
        pages = {path.stem for path in (DOCS / "policies").glob("*.md")}
        self.assertEqual(pages, {*POLICIES})
        for name in POLICIES:
            text = (DOCS / "policies" / f"{name}.md").read_text()
            for word in ("**What.**", "**When.**", "**When not.**", "**Measured.**", "\n# mthp_ext run"):
                self.assertIn(word, text, name)
            if name != "default":
                self.assertIn(f"--policy {name}", text, name)
            self.assertIn(f"](policies/{name}.md)", (DOCS / "policies.md").read_text(), name)

    def test_production_readiness_is_said_once(self) -> None:
        self.assertIn("\n## Production ready?\n", (DOCS / "policies.md").read_text())
        for page in (DOCS / "policies").glob("*.md"):
            self.assertNotIn("roduction ready", page.read_text(), page)

    def test_the_program_knows_the_options(self) -> None:
        known = set(table_of_options()) | {"root", "policy", "policy-dir", "object", "check", "on-exit"}
        for page in [DOCS / "policies.md", *(DOCS / "policies").glob("*.md")]:
            self.assertEqual(set(_OPTIONS.findall(page.read_text())) - known, set(), page)

    def test_the_tests_named_exist(self) -> None:
        tests = others()
        for page in (DOCS / "policies").glob("*.md"):
            for program, name in re.findall(r"`(\w+)::(\w+)`", page.read_text()):
                self.assertIn(name, tests.get(program, set()), page)


class VerifierCostTest(unittest.TestCase):
    def test_every_program_of_every_policy_is_recorded(self) -> None:
        recorded = verifier_rows((DOCS / "internals" / "verifier-cost.md").read_text())
        # What the verifier walks depends on the rules, hardly on the values: one policy for each set of rules.
        recorded_rules = {frozenset(POLICIES[policy]["rules"]) for policy, _ in recorded}
        self.assertEqual(recorded_rules, {frozenset(policy["rules"]) for policy in POLICIES.values()})
        for (policy, _), programs in recorded.items():
            scan = {"mthp_scan"} if "pressure" in POLICIES[policy]["rules"] else set()
            self.assertEqual(programs, {"mthp_choose", "mthp_explain", "mthp_name"} | scan, policy)
