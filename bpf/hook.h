/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's interface, cut out of its include/linux/bpf_mthp.h.  Numbers are part of the
 * contract, so they are written down here and not looked up by CO-RE; the host's programs
 * use them as well.
 */
#ifndef MTHP_HOOK_H
#define MTHP_HOOK_H

#ifdef __bpf__
#include "kernel.h"
#else
#include <linux/types.h>
#endif

/* Why the kernel asks.  A program returns the offer for a reason it does not know. */
enum bpf_mthp_reason {
	BPF_MTHP_FAULT = 1,
	BPF_MTHP_SWAPIN = 2,
	BPF_MTHP_KHUGEPAGED = 3,
	BPF_MTHP_COLLAPSE = 4,	/* asked for, as by MADV_COLLAPSE */
	BPF_MTHP_RECLAIM = 5,	/* a folio was in use: may it stay in one piece? */
};

/* What is known of the request beside its reason. */
enum bpf_mthp_flags {
	BPF_MTHP_ADVISED = 1 << 0,	/* the mapping is advised (MADV_HUGEPAGE) */
};

struct cgroup;

struct bpf_mthp_ops {
	unsigned long (*mthp_choose)(struct cgroup *cgrp, struct cgroup *attached,
				     enum bpf_mthp_reason reason, __u64 flags,
				     unsigned long orders);
};

#endif /* MTHP_HOOK_H */
