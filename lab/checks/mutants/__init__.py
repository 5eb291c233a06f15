# SPDX-License-Identifier: GPL-2.0-only
"""`make mutants`: patches that each break one rule; named tests must notice (docs/internals/mutants.md)."""
