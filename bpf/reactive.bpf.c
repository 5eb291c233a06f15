// SPDX-License-Identifier: GPL-2.0-only
/*
 * The proposal's rule: 4 KiB while the cgroup stalls on memory, and 4 KiB on
 * fault while it is small.  It needs the scan, and reacts when stall has shown.
 */
#define MTHP_POLICY_RULES	(MTHP_RULE(PRESSURE) | MTHP_RULE(SMALL) | MTHP_RULE(MAX_ORDER))

#include "choose.bpf.h"
#include "pressure.bpf.h"

MTHP_POLICY(reactive);
