# SPDX-License-Identifier: GPL-2.0-only
"""Host unit tests of the lab; they need neither root nor network nor QEMU."""
