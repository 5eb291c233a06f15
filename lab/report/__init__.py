# SPDX-License-Identifier: GPL-2.0-only
"""What reports share: tables and numbers in words, statistics, charts, style."""
