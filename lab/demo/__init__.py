# SPDX-License-Identifier: GPL-2.0-only
"""The main job: a real Redis under memory pressure, for `always`, `never`, the proposal's rule and mthp_ext."""
