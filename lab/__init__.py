# SPDX-License-Identifier: GPL-2.0-only
"""The lab of mthp_ext: builds the kernel, boots it in QEMU, runs tests and workloads, writes results."""
