# SPDX-License-Identifier: GPL-2.0-only
"""What is at the other end of stdin and stdout."""

import os
import shutil
import sys
from typing import TextIO


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody is there; a stream that was closed before the start is None."""
    return stream is not None and stream.isatty()


def is_live() -> bool:
    """Whether lines on stdout can be drawn over."""
    return is_terminal(sys.stdout) and os.environ.get("TERM", "dumb") != "dumb"


def columns() -> int:
    """Width of the terminal; 80 for one that does not know its own."""
    return shutil.get_terminal_size((80, 24)).columns
