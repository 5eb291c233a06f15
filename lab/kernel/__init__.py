# SPDX-License-Identifier: GPL-2.0-only
"""The lab's kernel: where its source comes from, the series on top, the build, and trees to edit it in."""
