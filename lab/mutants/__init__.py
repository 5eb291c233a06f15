# SPDX-License-Identifier: GPL-2.0-only
"""`make mutants`: patches that each break one rule, and the named tests that must notice (docs/internals/mutants.md)."""
