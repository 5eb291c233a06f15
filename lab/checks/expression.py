# SPDX-License-Identifier: GPL-2.0-only
"""Where a figure on a page comes from: `demo none.mthp_ext.rps / none.always.rps`, looked up in results/DATE/*.json."""

import difflib
import json
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_TOKEN = re.compile(r'[()]|(?:"[^"]*"|[^\s()"])+')
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FILE = re.compile(r"(?:\d{4}-\d\d-\d\d/)?[a-z][\w-]*")
_BELOW = ("cells", "worlds")
"""Keys of the demo begin below the first of these, those of the benchmark suite below the second."""


class BadFigureError(Exception):
    """What is wrong with a figure's source."""


@dataclass(frozen=True)
class Value:
    """What an expression comes to."""

    number: float
    is_quotient: bool = False
    """It is A / B as a whole: written with %, a share or a change."""


@dataclass(frozen=True)
class Results:
    """The directory of all results, one directory for each date."""

    directory: Path

    def file(self, name: str) -> dict[str, Any]:
        """The metrics of DATE/NAME, or of NAME at the newest date that has it: suite and demo are not of one day."""
        date, _, stem = name.rpartition("/")
        if not date:
            dates = sorted(path.parent.name for path in self.directory.glob(f"[0-9]*/{stem}.json"))
            if not dates:
                raise BadFigureError(f"{self.directory} holds no results named {stem}")
            date = dates[-1]
        return _metrics(self.directory / date / f"{stem}.json")

    def value(self, file: str, key: str) -> float:
        """A figure by its key; of several numbers the median."""
        try:
            found: Any = tomllib.loads(f"{key} = 0")
        except tomllib.TOMLDecodeError as error:
            raise BadFigureError(f"{key} is no key: {error}") from error
        at: Any = self.file(file)
        passed: list[str] = []
        while isinstance(found, dict):
            ((name, found),) = found.items()
            if not isinstance(at, dict) or name not in at:
                near = difflib.get_close_matches(name, at) if isinstance(at, dict) else []
                where = ".".join(passed) or "the top"
                hint = f"; there is: {', '.join(near)}" if near else ""
                raise BadFigureError(f"{file} has no {name!r} below {where}{hint}")
            at = at[name]
            passed.append(name)
        if isinstance(at, dict):
            at = at.get("median")
        if isinstance(at, bool) or not isinstance(at, int | float):
            raise BadFigureError(f"{file} {key} is no number: {at!r:.40}")
        return float(at)


@cache
def _metrics(path: Path) -> dict[str, Any]:
    try:
        metrics = json.loads(path.read_text())["metrics"]
    except OSError as error:
        raise BadFigureError(f"there is no {path.parent.name}/{path.name}") from error
    below = next((metrics[name] for name in _BELOW if name in metrics), metrics)
    assert isinstance(below, dict)
    return below


class _Parser:
    """expression = term {("+" | "-") term}; term = factor {("*" | "/") factor}"""

    def __init__(self, text: str, results: Results) -> None:
        if text.count('"') % 2:
            raise BadFigureError("a quotation without its end")
        self._tokens = _TOKEN.findall(text)
        self._results = results
        self._file = ""

    def parse(self) -> Value:
        value = self._sum()
        if self._tokens:
            raise BadFigureError(f"what is {' '.join(self._tokens)!r}?")
        return value

    def _next(self, *wanted: str) -> str:
        if self._tokens and (not wanted or self._tokens[0] in wanted):
            return str(self._tokens.pop(0))
        return ""

    def _sum(self) -> Value:
        value = self._product()
        while operator := self._next("+", "-"):
            other = self._product()
            value = Value(value.number + other.number if operator == "+" else value.number - other.number)
        return value

    def _product(self) -> Value:
        value = self._factor()
        while operator := self._next("*", "/"):
            other = self._factor()
            if operator == "*":
                value = Value(value.number * other.number)
            elif other.number == 0:
                raise BadFigureError("a division by 0")
            else:
                value = Value(value.number / other.number, is_quotient=True)
        return value

    def _factor(self) -> Value:
        token = self._next()
        if token == "(":
            value = Value(self._sum().number)
            if not self._next(")"):
                raise BadFigureError("a parenthesis without its end")
            return value
        if not token or token in ")+-*/":
            raise BadFigureError(f"a key or a number is missing before {token!r}" if token else "it ends too early")
        if _NUMBER.fullmatch(token):
            return Value(float(token))
        if _FILE.fullmatch(token):
            self._file, token = token, self._next()
        if not self._file:
            raise BadFigureError(f"{token!r} names no file: `demo KEY` or `bench KEY`")
        return Value(self._results.value(self._file, token))


def evaluate(text: str, results: Results) -> Value:
    """The value of an expression; BadFigureError if it has none."""
    return _Parser(text, results).parse()


_MINUS = "\u2212"
"""The typographer's."""
_WRITTEN = re.compile(r"(?P<sign>[+\-\u2212]?)(?P<number>\d[\d,]*(?:\.\d+)?)(?P<gap>\s?)(?P<unit>.*)", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """A figure as it stands on a page."""

    sign: str
    number: str
    gap: str
    unit: str

    @property
    def decimals(self) -> int:
        """Digits behind the decimal point."""
        return len(self.number.partition(".")[2])

    def shown(self, value: Value) -> float:
        """`value` in the unit in which this one is written."""
        if self.unit.startswith("%") and value.is_quotient:
            return (value.number - 1) * 100 if self.sign else value.number * 100
        return value.number / 1000 if re.match(r"k\b", self.unit) else value.number

    def agrees(self, value: Value) -> bool:
        """Is it `value`, rounded to the digits that it has?"""
        own = float(self.number.replace(",", "")) * (-1 if self.sign in ("-", _MINUS) else 1)
        half: float = 0.5 / 10**self.decimals
        return abs(self.shown(value) - own) <= half * (1 + 1e-9)

    def corrected(self, value: Value) -> str:
        """What it should read."""
        shown = self.shown(value)
        minus = self.sign if self.sign == _MINUS else "-"
        sign = minus if shown < 0 else "+" if self.sign else ""
        digits = f"{abs(shown):,.{self.decimals}f}"
        return f"{sign}{digits}{self.gap}{self.unit}"


def written(text: str) -> Written:
    """Takes a figure apart; BadFigureError if it is none."""
    match = _WRITTEN.fullmatch(text)
    if not match:
        raise BadFigureError(f"{text!r} is no figure")
    return Written(**match.groupdict())
