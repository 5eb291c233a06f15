# SPDX-License-Identifier: GPL-2.0-only
"""A file on the guest's disk."""


def fill(mib: int) -> str:
    """For sh: /mnt/file of so many MiB, on the disk. Not of zeroes, of which zram keeps nothing."""
    text = f"while {{cat}} {' '.join(['/lab/text'] * 64)}; do :; done"
    return f"{text} 2> /dev/null | /bin/head -c {mib << 20} > /mnt/file; /bin/sync"


DROP = "echo 1 > /proc/sys/vm/drop_caches"
"""For sh: what was written is in memory no more."""
