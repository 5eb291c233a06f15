# SPDX-License-Identifier: GPL-2.0-only
"""A model of the data TLB for guests in instruction-counted emulation: a QEMU plugin, and what reads its counts."""
