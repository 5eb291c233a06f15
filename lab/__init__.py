# SPDX-License-Identifier: GPL-2.0-only
"""The lab of mthp_ext: builds the kernel, boots it in QEMU, runs tests and workloads, writes results."""

import sys

# What is imported next cannot be read by an older Python, which would say so in a trace.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write("lab: this is Python %d.%d; the lab needs 3.11 or newer\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(10)
