# SPDX-License-Identifier: GPL-2.0-only
"""What the lab reads out of a host's apt configuration."""

import tempfile
import unittest
from pathlib import Path

from lab.kernel.aptsources import debian_mirrors, host_sources, parse_deb822, parse_list
from lab.kernel.debian import PrivateApt

_HERE = Path("test")

_DEB822 = """\
# the usual file of an installer
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
# comment between fields
Components: main non-free-firmware
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main

Types: deb
URIs: http://inline.example/debian
Suites: trixie
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
"""


class Deb822(unittest.TestCase):
    def test_entries(self) -> None:
        found = list(parse_deb822(_DEB822, _HERE))
        self.assertEqual([source.uri.split("/")[2] for source in found],
                         ["mirror.example", "security.example", "inline.example"])  # fmt: skip
        self.assertEqual(found[0].suites, ("bookworm", "bookworm-updates"))
        self.assertEqual(found[0].components, ("main", "non-free-firmware"))
        self.assertEqual(found[0].signed_by, "/usr/share/keyrings/debian-archive-keyring.gpg")
        self.assertIn("\n abc\n", found[2].signed_by)

    def test_source_packages_only_is_no_mirror(self) -> None:
        self.assertEqual(list(parse_deb822("Types: deb-src\nURIs: http://a/\nSuites: sid\n", _HERE)), [])


class OneLine(unittest.TestCase):
    def test_options_and_comments(self) -> None:
        text = """\
# deb http://old.example/debian sid main
deb [arch=amd64 signed-by=/a.gpg,/b.gpg] http://mirror.example/debian trixie main contrib # note
deb-src http://mirror.example/debian trixie main
deb cdrom:[Debian]/ trixie main
  deb   http://plain.example/debian/   sid   main
"""
        found = list(parse_list(text, _HERE))
        self.assertEqual(found[0].uri, "http://mirror.example/debian")
        self.assertEqual(found[0].signed_by, "/a.gpg /b.gpg")
        self.assertEqual(found[0].components, ("main", "contrib"))
        self.assertEqual(found[-1].uri, "http://plain.example/debian/")
        mirrors = [source.uri for source in debian_mirrors(found)]
        self.assertEqual(mirrors, ["http://mirror.example/debian", "http://plain.example/debian/"])


class Choice(unittest.TestCase):
    def test_third_parties_and_security_are_left_out(self) -> None:
        text = """\
deb http://packages.example/apt cloud-sdk-bookworm main
deb http://security.example/debian-security bookworm-security main
deb http://mirror.example/debian bookworm contrib
deb http://mirror.example/debian bookworm main
deb http://mirror.example/debian/ bookworm-backports main
"""
        mirrors = debian_mirrors(list(parse_list(text, _HERE)))
        self.assertEqual([source.uri for source in mirrors], ["http://mirror.example/debian"])

    def test_files_are_read_as_apt_reads_them(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            parts = Path(name, "parts")
            parts.mkdir()
            (parts / "b.list").write_text("deb http://b.example/debian sid main\n")
            (parts / "a.sources").write_text(_DEB822)
            (parts / "c.list.disabled").write_text("deb http://c.example/debian sid main\n")
            found = host_sources(Path(name, "missing.list"), parts)
        self.assertEqual(found[0].uri, "http://mirror.example/debian")
        self.assertEqual(found[-1].uri, "http://b.example/debian")


class Private(unittest.TestCase):
    def test_configuration_carries_the_network_over_and_no_hook(self) -> None:
        source = next(parse_list("deb [signed-by=/k.gpg trusted=yes] http://mirror.example/debian sid main", _HERE))
        config = {
            "Acquire::http::Proxy": ["http://proxy.example:3128"],
            "Acquire::IndexTargets::deb::DEP-11::MetaKey": ["x"],
            "APT::Update::Post-Invoke::": ["rm -rf /"],
        }
        with tempfile.TemporaryDirectory() as name:
            PrivateApt(Path(name), config, source, "trixie-backports")
            conf = Path(name, "apt.conf").read_text()
            sources = Path(name, "mirror.sources").read_text()
        self.assertIn('Acquire::http::Proxy "http://proxy.example:3128";', conf)
        self.assertNotIn("DEP-11", conf)
        self.assertNotIn("rm -rf", conf)
        self.assertIn(f'Dir::State::lists "{name}/lists/";', conf)
        self.assertIn("Suites: trixie-backports", sources)
        self.assertIn("Signed-By: /k.gpg", sources)
        # An entry that the host trusts blindly is verified all the same.
        self.assertNotIn("rusted", sources.replace("trixie", ""))
