/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a cgroup is: its own name and the cgroup above it.  mthp_ext may ask the kernel by file
 * handles only with a privilege that a service is better without, and looking at all cgroups for
 * one takes long where there are many.
 */
#ifndef MTHP_NAME_BPF_H
#define MTHP_NAME_BPF_H

#include "state.bpf.h"

SEC("syscall")
int mthp_name(struct mthp_named *n)
{
	/* Linux 6.12 lets no helper write to the context. */
	char name[sizeof(n->name)] __attribute__((aligned(8)));
	struct cgroup_subsys_state *above;
	struct cgroup *cgrp;

	n->above_id = 0;
	cgrp = bpf_cgroup_from_id(n->cgroup_id);
	n->found = cgrp != 0;
	if (!cgrp)
		return 0;
	/* Names of cgroup v2 never change, and node and parent live as long as their cgroup. */
	bpf_probe_read_kernel_str(name, sizeof(name), cgrp->kn->name);
	__builtin_memcpy(n->name, name, sizeof(name));
	above = cgrp->self.parent;
	if (above)
		n->above_id = above->cgroup->kn->id;
	bpf_cgroup_release(cgrp);
	return 0;
}

#endif /* MTHP_NAME_BPF_H */
