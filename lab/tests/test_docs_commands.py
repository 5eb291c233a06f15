# SPDX-License-Identifier: GPL-2.0-only
"""Commands on pages exist: targets of make, subcommands and options. tests/docs.rs and tests/e2e_docs.rs run them."""

import re
import shlex
import unittest
from collections.abc import Iterator

from lab.__main__ import _parser
from lab.paths import REPO, documents

_FOREIGN = {"olddefconfig", "bindeb-pkg", "binrpm-pkg", "pacman-pkg"}
"""Targets of the kernel's own Makefile."""
_COMMAND_LINE = ("cli", "args", "lookup", "schema")
"""What of src/commands/ has arguments."""
_BEFORE = {"sudo", "exec", "time", "env"}


def commands(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each command on a page: after a prompt in a block, or a code span."""
    fence, open_command = "", False
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*(`{3,}|~{3,})(.*)", line):
            fence = "" if fence else match[2].strip() or "text"
        elif fence.startswith("console"):
            prompt = re.match(r"\s*[#$] (.+)", line)
            if prompt or open_command:
                yield number, (prompt[1] if prompt else line).rstrip("\\")
                open_command = line.endswith("\\")
        elif not fence:
            for _, span in re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", line):
                yield number, span.strip()


def simple(command: str) -> Iterator[list[str]]:
    """The words of each simple command."""
    for part in re.split(r"&&|\|\||[;|&()]", command):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:
            words = part.split()
        while words and (words[0] in _BEFORE or re.match(r"\w+=", words[0])):
            del words[0]
        if words:
            yield words


def rows_of_options() -> list[str]:
    """The rows of the table in src/model/options.rs."""
    return (REPO / "src" / "model" / "options.rs").read_text().split("    Opt {\n")[1:]


def _column(row: str, name: str) -> str:
    match = re.search(rf'^        {name}: "([^"]+)"', row, re.MULTILINE)
    return match[1] if match else ""


def table_of_options(*, measured: bool = False) -> set[str]:
    """The options of the table: the public ones, or those that are there to be measured."""
    return {_column(row, "name") for row in rows_of_options() if ("measuring: true" in row) == measured}


def defaults_of_options() -> dict[str, str]:
    """Option -> default, as it is written."""
    return {_column(row, "name"): _column(row, "default") for row in rows_of_options()}


class Known:
    """What there is."""

    def __init__(self) -> None:
        makefile = (REPO / "Makefile").read_text()
        self.targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
        exported = re.search(r"^export (.+)$", makefile, re.MULTILINE)
        self.variables = {
            *re.findall(r"\$\((?:if \$\()?([A-Z_]+)\)", makefile),
            *(exported[1].split() if exported else ()),
        }
        cli = "".join((REPO / "src" / "commands" / f"{name}.rs").read_text() for name in _COMMAND_LINE)
        fields = {
            name: re.findall(r"^    pub (\w+): (\w+)", body, re.MULTILINE)
            for name, body in re.findall(r"^pub struct (\w+) \{\n(.*?)^\}", cli, re.MULTILINE | re.DOTALL)
        }
        # A struct in another one is flattened.
        options = {
            name: {option.replace("_", "-") for field in own for option, _ in fields.get(field[1], [field])}
            for name, own in fields.items()
        }
        options["RunArgs"] = options["RunArgs"] - {"given"} | table_of_options() | {"set"}
        enums = dict(re.findall(r"^pub enum (\w+) \{\n(.*?)^\}", cli, re.MULTILINE | re.DOTALL))
        taken = {
            name: {variant.lower(): options[args] for variant, args in re.findall(r"^    (\w+)\((\w+)\),", body, re.M)}
            for name, body in enums.items()
        }
        # One with commands of its own takes what any of them takes.
        nested = re.findall(r"^    (\w+) \{\n[^}]*?^        command: (\w+),", enums["Command"], re.MULTILINE)
        self.subcommands = taken["Command"] | {"completions": set(), "man": set()}
        self.subcommands |= {name.lower(): set().union(*taken[own].values()) for name, own in nested}
        self.options = set().union(*self.subcommands.values()) | {"help", "version"}
        # A span may name an option of the lab's own programs.
        sources = "".join(path.read_text() for path in (REPO / "lab").rglob("*.py"))
        self.any = self.options | set(re.findall(r'"--([a-z][a-z-]*)"', sources))
        self.lab = set(re.findall(r"^    ([a-z][a-z-]+)", _parser().format_help(), re.MULTILINE))

    def problems(self, words: list[str]) -> list[str]:
        """What a simple command names and does not exist."""
        if words[0] == "make":
            return self._make(words[1:])
        if words[0] == "mthp_ext":
            return self._program(words[1:])
        if words[:3] == ["python3", "-m", "lab"]:
            return [f"no command of the lab: {word}" for word in words[3:4] if word.islower() and word not in self.lab]
        if words[0].startswith("--"):
            return self._options(words, self.any)
        return []

    def _make(self, words: list[str]) -> list[str]:
        variables = {word.partition("=")[0] for word in words if "=" in word}
        targets = [word for word in words if word[0].islower() and "=" not in word]
        if foreign := _FOREIGN.intersection(targets):
            targets = [word for word in targets if word not in foreign]
            variables = set()
        return [f"no target: make {word}" for word in targets if word not in self.targets] + [
            f"no variable of the Makefile: {name}" for name in sorted(variables - self.variables)
        ]

    def _program(self, words: list[str]) -> list[str]:
        names = [word for word in words if re.fullmatch(r"[a-z]+", word)][:1]
        if not names or names[0] == "help" or words[0].startswith("-"):
            return self._options(words, self.options)
        if names[0] not in self.subcommands:
            return [f"no subcommand: mthp_ext {names[0]}"]
        return self._options(words, self.subcommands[names[0]] | {"help"})

    @staticmethod
    def _options(words: list[str], known: set[str]) -> list[str]:
        found = [match[1] for word in words if (match := re.match(r"--([a-z][\w-]*)", word))]
        return [f"no option here: --{name}" for name in found if name not in known]


def problems(name: str, text: str, known: Known) -> list[str]:
    """What a page names and does not exist."""
    return [
        f"{name}:{number}: {problem}"
        for number, command in commands(text)
        for words in simple(command)
        for problem in known.problems(words)
    ]


class CommandTest(unittest.TestCase):
    def setUp(self) -> None:
        self.known = Known()

    def test_what_pages_name_exists(self) -> None:
        wrong = []
        for page in [*documents(), *(REPO / "results").glob("*.md")]:
            wrong += problems(str(page.relative_to(REPO)), page.read_text(), self.known)
        self.assertEqual(wrong, [])

    def test_there_is_something_to_compare_with(self) -> None:
        self.assertLessEqual({"demo", "test", "kernel-tree"}, self.known.targets)
        self.assertLessEqual({"SCALE", "DIR", "MTHP_CACHE", "SCENARIO"}, self.known.variables)
        self.assertLessEqual({"run", "status", "policies", "options", "support"}, set(self.known.subcommands))
        self.assertIn("cap", self.known.subcommands["run"])
        self.assertIn("policy-dir", self.known.subcommands["run"])
        self.assertIn("policy-dir", self.known.subcommands["policies"])
        self.assertNotIn("directory", self.known.subcommands["run"])
        self.assertNotIn("sample-every", self.known.subcommands["run"])
        self.assertNotIn("cap", self.known.subcommands["status"])
        self.assertLessEqual({"docs", "figures", "kernel-tree"}, self.known.lab)

    def test_the_picture_of_the_rooms_has_each_subcommand(self) -> None:
        page = (REPO / "docs" / "internals" / "architecture.md").read_text()
        row = page.partition(" commands  ")[2].partition(";")[0]
        drawn = [name.replace("-", "") for name in re.findall(r"[a-z][a-z-]+", row)]
        self.assertEqual(sorted(drawn), sorted(self.known.subcommands))

    def test_what_does_not_exist_is_found(self) -> None:
        for text, wanted in (
            ("`make dmeo`", "page:1: no target: make dmeo"),
            ("`make demo SCALES=full`", "page:1: no variable of the Makefile: SCALES"),
            ("a\n\n```console elsewhere\n# cd x && make -j4 tset\n```\n", "page:4: no target: make tset"),
            (
                "```console guest\n# mthp_ext run \\\n    --cap 64K\n# mthp_ext walk\n```",
                "page:4: no subcommand: mthp_ext walk",
            ),
            ("`mthp_ext status --policy fixed`", "page:1: no option here: --policy"),
            ("`mthp_ext run --limitshare 0`", "page:1: no option here: --limitshare"),
            ("`sudo mthp_ext run --root=/x --jsn | head`", "page:1: no option here: --jsn"),
            ("use `--limitshare`", "page:1: no option here: --limitshare"),
            ("`python3 -m lab dcos PAGE`", "page:1: no command of the lab: dcos"),
        ):
            self.assertEqual(problems("page", text, self.known), [wanted], text)

    def test_what_exists_passes(self) -> None:
        text = """`make`, `make demo SCALE=full`, `make checkpatch kernel`, `numactl --membind`, `mthp_ext --version`
`mthp_ext help run`, `mthp_ext run --help`, `A=b mthp_ext run --root "$D"`, `make -j4 LOCALVERSION=-x bindeb-pkg`
`python3 -m lab COMMAND`, ``mthp_ext run ` x``
```text
# make nothing
```
```console host
$ make help  # and make coffee
output of make nothing
```
"""
        self.assertEqual(problems("page", text, self.known), [])
