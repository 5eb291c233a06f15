// SPDX-License-Identifier: GPL-2.0-only
/*
 * The default: what all rules allow.  Headroom acts before the damage is done; pressure
 * sees stall that no limit of the cgroup explains.
 */
#define MTHP_POLICY_RULES	(MTHP_RULE(PRESSURE) | MTHP_RULE(SMALL) | MTHP_RULE(SPARSE) | \
				 MTHP_RULE(HEADROOM) | MTHP_RULE(HOST) | MTHP_RULE(MAX_ORDER))

#include "host.bpf.h"
#include "choose.bpf.h"
#include "pressure.bpf.h"

MTHP_POLICY(adaptive);
