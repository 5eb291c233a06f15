# SPDX-License-Identifier: GPL-2.0-only
"""Which stock kernel is taken."""

import unittest

from lab.kernel.stock import newest

_PATTERN = r"linux-binary-(7\.0\.\d+)\+deb13-cloud-amd64"


class NewestTest(unittest.TestCase):
    """Of those from before the change."""

    def test_versions_are_numbers(self) -> None:
        """7.0.13 is newer than 7.0.9, and 7.1 is too new."""
        listing = "\n".join(
            f"linux-binary-{version}+deb13-cloud-amd64 - Binary for Linux"
            for version in ("7.0.9", "7.0.13", "7.0.4", "7.1.3", "6.19.14")
        )
        self.assertEqual(newest(listing, _PATTERN), "linux-binary-7.0.13+deb13-cloud-amd64")

    def test_other_flavours_are_none(self) -> None:
        """Neither another flavour nor nothing at all is taken."""
        self.assertIsNone(newest("linux-binary-7.0.9+deb13-rt-amd64 - Binary", _PATTERN))
        self.assertIsNone(newest("", _PATTERN))
