# SPDX-License-Identifier: GPL-2.0-only
"""What the reports of the demo and of the benchmark suite share: statistics, charts, style."""
