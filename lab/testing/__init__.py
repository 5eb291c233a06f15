# SPDX-License-Identifier: GPL-2.0-only
"""`make test`: runs every check there is and counts each single test."""
