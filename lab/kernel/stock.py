# SPDX-License-Identifier: GPL-2.0-only
"""The newest stock Debian kernel from before khugepaged's scan was improved (7.1), as a prebuilt image.

apt fetches and verifies it by the archive's signature, as it does the source of the series. A version is not pinned:
Debian's mirrors keep only the newest, and whatever is taken has to show the behaviour that the test expects of it.

The cloud flavour has the lab's console and virtio ports built in, so that it boots without its modules.
"""

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError
from lab.kernel.debian import Attempts, PrivateApt, host_config, mirrors
from lab.lock import locked
from lab.paths import BUILD, cache

# Suite and packages that hold an image, best first. Backports keep what they once had for as long as it lasts; the
# stable release's own kernel stays.
_PLACES = (
    ("trixie-backports", r"linux-binary-(7\.0\.\d+)\+deb13-cloud-amd64"),
    ("trixie", r"linux-image-(6\.12\.\d+)\+deb13-cloud-amd64-unsigned"),
)
_LOG = BUILD / "log" / "stock.log"


def newest(listing: str, pattern: str) -> str | None:
    """The package of the newest version among those of `apt-cache search` that match `pattern`."""
    names = (line.split(" ", 1)[0] for line in listing.splitlines())
    found = {name: match[1] for name in names if (match := re.fullmatch(pattern, name))}
    return max(found, key=lambda name: [int(part) for part in found[name].split(".")], default=None)


def image() -> Path:
    """The image, fetched once and kept; LabError if none can be had."""
    with locked("stock"):
        directory = cache() / "stock"
        if kept := _only(directory.glob("boot/vmlinuz-*")):
            return kept
        attempts = Attempts()
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            tree = Path(work) / "tree"
            if not any(_fetch(Path(work), tree, *place, attempts) for place in _PLACES):
                raise LabError(
                    Exit.SOURCE,
                    "no stock kernel from before khugepaged's scan was improved could be fetched; it needs one of the "
                    "host's Debian mirrors once:\n  "
                    + "\n  ".join(attempts.lines or ["the host's apt sources name none"]),
                )
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            (tree / "boot").rename(directory / "boot")
        if kept := _only(directory.glob("boot/vmlinuz-*")):
            return kept
        raise LabError(Exit.SOURCE, f"the package of the stock kernel has no image; see {directory}")


def _fetch(work: Path, tree: Path, suite: str, pattern: str, attempts: Attempts) -> bool:
    config = host_config()
    for mirror in mirrors(config):
        apt = PrivateApt(work / suite, config, mirror, suite)
        ok, text = apt.call("apt-get", "update", "--error-on=any")
        if not ok:
            attempts.add(f"{suite} (mirror of {mirror.where})", text)
            continue
        _, listing = apt.call("apt-cache", "search", "--names-only", "cloud-amd64")
        name = newest(listing, pattern)
        if name is None:
            attempts.add(f"{suite} (mirror of {mirror.where})", f"has no {pattern}")
            continue
        ok, text = apt.call("apt-get", "download", name)
        deb = _only((apt.directory / "download").glob("*.deb"))
        if not ok or deb is None:
            attempts.add(f"{name} from {suite}", text)
            continue
        proc.run(["dpkg-deb", "-x", str(deb), str(tree)], log=_LOG, what=f"unpacking {name}", code=Exit.SOURCE)
        return True
    return False


def _only(paths: Iterable[Path]) -> Path | None:
    found = list(paths)
    return found[0] if len(found) == 1 else None
