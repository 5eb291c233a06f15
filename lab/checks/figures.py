# SPDX-License-Identifier: GPL-2.0-only
"""Measured figures on pages: a comment behind a paragraph or table names the source of each.

    <!-- figures: 118,029 = demo none.always.rps; -8 % = demo none.never.rps / none.always.rps; not measured: 50 % -->

CONTRIBUTING.md describes it for authors; lab/checks/expression.py reads what stands right of "=".
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.checks.expression import BadFigureError, Results, Value, Written, evaluate, written
from lab.errors import Exit, LabError
from lab.paths import REPO, documents

RESULTS = Results(REPO / "results")
_MUST = re.compile(r"README\.md|docs/results\.md|docs/policies(/\w+)?\.md")
"""Pages on which every figure needs a source; others take part by their first comment of the kind."""

_UNITS = r"(?:requests/s|%|KiB|MiB|GiB|times\b|k\b|ns\b|us\b|µs\b|ms\b|s\b)"
_SIGN = r"[+\-\u2212]"
_NUMBER = rf"{_SIGN}?\d(?:[\d,]*\d)?(?:\.\d+)?"
_THOUSANDS = rf"{_SIGN}?\d{{1,3}}(?:,\d\d\d)+(?:\.\d+)?(?![\d.,]*\d)"
_RATIO = rf"{_SIGN}?\d+\.\d+(?= of\b)"
# Not the 3 of 7.3.4, the 2 of 1-2, or the 64 of x86_64; a full stop behind a number ends the sentence.
_FREE = r"(?<![\w.,])(?<!\w[\-\u2212])"
_FIGURE = re.compile(rf"{_FREE}(?:{_NUMBER}\s?{_UNITS}|{_THOUSANDS}|{_RATIO})")
_CELL = re.compile(rf"{_NUMBER}(?:\s?{_UNITS})?")
_COMMENT = re.compile(r"<!--\s*figures:(.*?)-->", re.DOTALL)
_NOT = re.compile(r"not measured( on this page)?:\s*")


@dataclass(frozen=True)
class Entry:
    """A figure and its source."""

    line: int
    text: str
    source: str


@dataclass
class Block:
    """A paragraph, list, table or block of text, and what the comments behind it say of its figures."""

    line: int
    text: str
    is_table: bool = False
    entries: list[Entry] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    """Figures that are not measured."""


@dataclass
class Page:
    """A page with figures."""

    name: str
    blocks: list[Block] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    takes_part: bool = False
    """It has a comment of the kind."""


@dataclass(frozen=True)
class Checked:
    """An entry and what its source says."""

    entry: Entry
    value: Value | None
    problem: str
    """Why it does not hold; empty if it does."""


def _plain(text: str) -> str:
    """Prose without code, addresses and comments, of the same length."""

    def blank(match: re.Match[str]) -> str:
        return " " * len(match[0])

    for pattern in (r"<!--.*?-->", r"(`+)(?:(?!\1).)+\1", r"(?<=\])\([^)]*\)", r"<https?:[^>]*>"):
        text = re.sub(pattern, blank, text, flags=re.DOTALL)
    return re.sub(r"\s", " ", text).replace("\u00a0", " ")


def _chunks(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, kind ("text", "comment", or "fence" and its words) and content of what the page consists of."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        first = at
        line = lines[at]
        at += 1
        if match := re.match(r"\s*(`{3,}|~{3,})(.*)", line):
            while at < len(lines) and not re.fullmatch(rf"\s*{match[1]}[`~]*\s*", lines[at]):
                at += 1
            yield first + 1, f"fence {match[2].strip()}", "\n".join(lines[first + 1 : at])
            at += 1
        elif line.lstrip().startswith("<!--"):
            while "-->" not in "\n".join(lines[first:at]) and at < len(lines):
                at += 1
            yield first + 1, "comment", "\n".join(lines[first:at])
        elif line.strip():
            while at < len(lines) and lines[at].strip() and not re.match(r"\s*(<!--|`{3}|~{3})", lines[at]):
                at += 1
            yield first + 1, "text", "\n".join(lines[first:at])


def parse(name: str, text: str) -> Page:
    """A page's blocks with the comments that belong to them."""
    page = Page(name)
    for line, kind, content in _chunks(text):
        if kind == "comment":
            if match := _COMMENT.search(content):
                page.takes_part = True
                _comment(page, line, match[1])
        elif kind == "text":
            page.blocks.append(Block(line, _plain(content), bool(re.search(r"^\s*\|", content, re.MULTILINE))))
        elif kind == "fence text":
            page.blocks.append(Block(line, content.replace("\n", " ")))
    return page


def _comment(page: Page, line: int, body: str) -> None:
    for part in re.split(r';(?=(?:[^"]*"[^"]*")*[^"]*$)', body):
        words = " ".join(part.split())
        if not words:
            continue
        if match := _NOT.match(words):
            settings = words[match.end() :].split(", ")
            if match[1]:
                page.settings += settings
            elif page.blocks:
                page.blocks[-1].settings += settings
            continue
        text, equals, source = words.partition(" = ")
        if not equals:
            page.problems.append(f"{page.name}:{line}: {words!r} is not `FIGURE = SOURCE`")
        elif not page.blocks:
            page.problems.append(f"{page.name}:{line}: figures of nothing: no text stands before the comment")
        else:
            page.blocks[-1].entries.append(Entry(line, text, source))


def _places(text: str, within: str) -> list[tuple[int, int]]:
    """Where a figure occurs as a whole."""
    words = r"\s+".join(re.escape(word) for word in text.split())
    # Not the 5 of 15, of 5.5, of +5 or of 5 %; a sign behind a number is a range's.
    pattern = rf"(?<![\w.,])(?<!(?<!\w){_SIGN}){words}(?!\w|[.,]\d|\s?%)"
    return [match.span() for match in re.finditer(pattern, within)]


def _figures(block: Block) -> list[tuple[int, int]]:
    """Where a block has figures."""
    spans = [match.span() for match in _FIGURE.finditer(block.text)]
    return spans + [span for span in _cells(block) if span not in spans]


def _cells(block: Block) -> list[tuple[int, int]]:
    """Cells of a table that are nothing but a number, the head's aside."""
    if not block.is_table:
        return []
    head = re.search(r"\|[ :|-]*--[ :|-]*\|", block.text)
    begin = head.end() - 1 if head else 0
    spans = []
    for match in re.finditer(r"(?<=\|)[^|]*(?=\|)", block.text):
        cell = match[0].strip().strip("*")
        if match.start() >= begin and _CELL.fullmatch(cell):
            start = match.start() + match[0].index(cell)
            spans.append((start, start + len(cell)))
    return spans


def check_entry(block: Block, entry: Entry, results: Results) -> Checked:
    """Does the figure stand in the block, and does its source say the same?"""
    value: Value | None = None
    try:
        shape: Written = written(entry.text)
        value = evaluate(entry.source, results)
    except BadFigureError as error:
        return Checked(entry, value, str(error))
    if not shape.agrees(value):
        return Checked(entry, value, f"stale: {value.number:,.6g} is written {shape.corrected(value)}")
    if not _places(entry.text, block.text):
        return Checked(entry, value, "it does not occur in the text before the comment")
    return Checked(entry, value, "")


def problems(page: Page, results: Results, unnamed: bool = True) -> list[str]:
    """What is wrong with a page's figures; with `unnamed` also those without a source."""
    wrong = list(page.problems)
    used = set()
    for block in page.blocks:
        for entry in block.entries:
            if problem := check_entry(block, entry, results).problem:
                wrong.append(f"{page.name}:{entry.line}: {entry.text} = {entry.source}: {problem}")
        wrong += _too_few(page, block)
        spans = [span for entry in block.entries for span in _places(entry.text, block.text)]
        for text in [*block.settings, *page.settings]:
            places = _places(text, block.text)
            spans += places
            used |= {text} if places else set()
        wrong += [
            f"{page.name}:{block.line}: {block.text[start:end]!r} in {_around(block, start, end)!r} has no source"
            for start, end in _figures(block)
            if unnamed and not any(start < last and first < end for first, last in spans)
        ]
    stated = [*page.settings, *(text for block in page.blocks for text in block.settings)]
    wrong += [f"{page.name}: not measured: {text!r}, which does not occur" for text in stated if text not in used]
    return wrong


def _around(block: Block, start: int, end: int) -> str:
    return " ".join(block.text[max(0, start - 25) : end + 25].split())


def _too_few(page: Page, block: Block) -> list[str]:
    """Cells that read the same need a source each, or a stale one would hide behind another."""
    wrong = []
    cells = [" ".join(block.text[start:end].split()) for start, end in _cells(block)]
    settings = {*block.settings, *page.settings}
    for text in sorted(set(cells) - settings):
        named = sum(entry.text == text for entry in block.entries)
        if 0 < named < cells.count(text):
            wrong.append(f"{page.name}:{block.line}: {cells.count(text)} cells read {text}, {named} have a source")
    return wrong


def pages() -> list[Page]:
    """The pages of the repository with figures."""
    found = []
    for path in documents():
        page = parse(str(path.relative_to(REPO)), path.read_text())
        if _MUST.fullmatch(page.name) or page.takes_part:
            found.append(page)
    return found


def main(names: Sequence[str]) -> int:
    """Shows each figure with its source's value; 1 if one is wrong."""
    known = {page.name: page for page in pages()}
    if missing := [name for name in names if not Path(REPO, name).is_file()]:
        raise LabError(Exit.USAGE, f"there is no page {missing[0]!r}")
    wrong = []
    for page in [known[name] for name in names if name in known] if names else known.values():
        for block in page.blocks:
            for entry in block.entries:
                found = check_entry(block, entry, RESULTS)
                value = "-" if found.value is None else f"{found.value.number:,.6g}"
                end = found.problem or "ok"
                print(f"{page.name}:{entry.line}: {entry.text:12}  {value:>12}  {end:4}  {entry.source}")
        wrong += problems(page, RESULTS)
    sys.stdout.flush()
    for problem in wrong:
        print(problem, file=sys.stderr)
    print(f"{len(wrong)} problems")
    return Exit.TESTS if wrong else Exit.OK
