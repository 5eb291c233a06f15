# SPDX-License-Identifier: GPL-2.0-only
"""Which kernel version is the newest."""

import unittest

from lab.kernel.version import Candidate, newest, parse_madison, rank


def _newest(*versions: str) -> str | None:
    best = newest(Candidate(version, f"suite{number}") for number, version in enumerate(versions))
    return best.version if best else None


class Newest(unittest.TestCase):
    def test_point_releases_count_as_numbers(self) -> None:
        self.assertEqual(_newest("7.3.4-1~bpo13+1", "7.3.10-1", "7.3.9-2"), "7.3.10-1")

    def test_a_release_beats_its_candidates(self) -> None:
        self.assertEqual(_newest("7.3~rc7-1~exp1", "7.3-1"), "7.3-1")
        self.assertEqual(_newest("7.3~rc7-1~exp1", "7.3~rc10-1~exp1"), "7.3~rc10-1~exp1")

    def test_equals_go_to_the_suite_tried_first(self) -> None:
        self.assertEqual(_newest("7.3.4-1~bpo13+1", "7.3.4-2"), "7.3.4-1~bpo13+1")

    def test_other_series_are_not_taken(self) -> None:
        self.assertIsNone(_newest("7.30.1-1", "7.2.9-1", "6.12-1", "garbage"))
        self.assertIsNone(rank("17.3.1-1"))

    def test_madison(self) -> None:
        text = " linux-source-7.3 | 7.3.4-1~bpo13+1 | http://mirror/debian trixie-backports/main amd64 Packages\n"
        self.assertEqual(parse_madison(text, "x"), [Candidate("7.3.4-1~bpo13+1", "x")])
        self.assertEqual(parse_madison("N: nothing\n", "x"), [])
