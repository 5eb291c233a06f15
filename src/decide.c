// SPDX-License-Identifier: GPL-2.0-only
/*
 * The decision function for user space: `mthp_ext status` explains a cgroup
 * with the very code the kernel decides by.  And the defaults of bpf/abi.h.
 */
#include "decide.h"

const struct mthp_tunables mthp_defaults = MTHP_DEFAULTS;
const struct mthp_tunables mthp_defaults_reactive = MTHP_DEFAULTS_REACTIVE;

__u64 mthp_decide_host(const struct mthp_facts *facts,
		       const struct mthp_tunables *tunables, __u32 *rules)
{
	return mthp_decide(facts, tunables, rules);
}
