# SPDX-License-Identifier: GPL-2.0-only
"""A kernel.org tarball as the source: from a file or an address, taken only if its SHA-256 is pinned."""

import hashlib
import re
import urllib.error
import urllib.request
from pathlib import Path

from lab.errors import Exit, LabError
from lab.paths import KERNEL_DIR

PINS = KERNEL_DIR / "tarballs.sha256"
_NAME = re.compile(r"linux-(\d+\.\d+(?:\.\d+)?(?:-rc\d+)?)\.tar\.(?:xz|gz|zst)")


def pins(text: str) -> dict[str, str]:
    """File name -> SHA-256, from lines as sha256sum writes them; LabError for any other line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](\S+)", line.strip())
        if not match:
            raise LabError(Exit.SOURCE, f"{PINS}:{number}: not a line of sha256sum: {line.strip()!r}")
        found[match[2]] = match[1]
    return found


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, pin_file: Path = PINS) -> str:
    """The kernel version of a tarball whose content is pinned; LabError for anything else."""
    match = _NAME.fullmatch(path.name)
    if not match:
        raise LabError(Exit.SOURCE, f"{path}: not named like a kernel.org tarball (linux-7.3.4.tar.xz)")
    if not path.is_file():
        raise LabError(Exit.SOURCE, f"{path}: no such file")
    known = pins(pin_file.read_text()) if pin_file.exists() else {}
    actual = sha256(path)
    if path.name not in known:
        raise LabError(
            Exit.SOURCE,
            f"{path.name} is not pinned, so nobody vouches for it. Check it against the signed sha256sums.asc of "
            f"kernel.org, then add its line to {pin_file}. The file you have would need:\n"
            f"{actual}  {path.name}",
        )
    if known[path.name] != actual:
        raise LabError(
            Exit.SOURCE,
            f"{path} is not the file that {pin_file} pins: SHA-256 {actual}, pinned {known[path.name]}; "
            "the download may be damaged or not genuine: fetch it again",
        )
    return match[1]


def download(url: str, directory: Path) -> Path:
    """Fetches `url` into `directory` under its own name."""
    name = url.rstrip("/").rpartition("/")[2]
    if not _NAME.fullmatch(name):
        raise LabError(Exit.SOURCE, f"KERNEL_URL {url}: its last part is not a kernel.org tarball's name")
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / name
    part = target.with_suffix(".part")
    try:
        with urllib.request.urlopen(url, timeout=60) as source, part.open("wb") as out:
            while chunk := source.read(1 << 20):
                out.write(chunk)
    except (urllib.error.URLError, OSError, ValueError) as error:
        part.unlink(missing_ok=True)
        raise LabError(Exit.SOURCE, f"KERNEL_URL {url}: {error}") from error
    part.replace(target)
    return target
