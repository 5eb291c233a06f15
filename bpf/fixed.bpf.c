// SPDX-License-Identifier: GPL-2.0-only
/*
 * A cap by order, for each reason its own.  Nothing is watched: what a sysfs
 * setting says for the host, said for one cgroup.
 */
#define MTHP_POLICY_RULES	MTHP_RULE(MAX_ORDER)

#include "choose.bpf.h"

MTHP_POLICY(fixed);
