# SPDX-License-Identifier: GPL-2.0-only
"""Programs that judge: the suites of `make test`, mutants, the soak, the series patch by patch and option by option, a
clean root, what may be published."""
