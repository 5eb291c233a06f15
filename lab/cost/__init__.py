# SPDX-License-Identifier: GPL-2.0-only
"""What the hook costs, counted in instructions."""
