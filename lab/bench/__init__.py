# SPDX-License-Identifier: GPL-2.0-only
"""The benchmark suite: real programs under every static THP setting and every policy, judged by regret."""
