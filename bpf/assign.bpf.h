/* SPDX-License-Identifier: GPL-2.0-only */
/* Which cgroup has which profile: mthp_ext says it, by the paths of its configuration. */
#ifndef MTHP_ASSIGN_BPF_H
#define MTHP_ASSIGN_BPF_H

#include "state.bpf.h"

/* Those below @cgrp that have taken theirs over look above again, at their next request. */
static __noinline int mthp_forget_below(struct cgroup *cgrp)
{
	struct cgroup_subsys_state *css;
	struct mthp_cgroup *state;

	if (!cgrp)
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(css, css, &cgrp->self, BPF_CGROUP_ITER_DESCENDANTS_PRE) {
		state = bpf_cgrp_storage_get(&mthp_cgroups, css->cgroup, 0, 0);
		if (state && !mthp_is_profile(state->assigned))
			state->profile = 0;
	}
	bpf_rcu_read_unlock();
	return 0;
}

SEC("syscall")
int mthp_assign(struct mthp_assignment *a)
{
	struct mthp_cgroup *state;
	struct cgroup *cgrp;

	a->done = 0;
	cgrp = bpf_cgroup_from_id(a->cgroup_id);
	if (!cgrp)
		return 0;
	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	if (!state)
		state = mthp_adopt(cgrp);
	if (state) {
		state->assigned = a->profile;
		state->profile = a->profile;
		mthp_forget_below(cgrp);
		a->done = 1;
	}
	bpf_cgroup_release(cgrp);
	return 0;
}

#endif /* MTHP_ASSIGN_BPF_H */
