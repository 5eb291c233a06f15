/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The body of mthp_choose.  A policy is a set of rules (MTHP_POLICY_RULES); those
 * it has not cost nothing, as the verifier removes them at load.
 */
#ifndef MTHP_CHOOSE_BPF_H
#define MTHP_CHOOSE_BPF_H

#include "state.bpf.h"

/* The kernel's reason in our numbering; CO-RE supplies the kernel's values. */
static __always_inline __u32 mthp_reason_of(__u32 type)
{
	if (type == bpf_core_enum_value(enum tva_type, TVA_PAGEFAULT))
		return MTHP_FAULT;
	if (type == bpf_core_enum_value(enum tva_type, TVA_KHUGEPAGED))
		return MTHP_KHUGEPAGED;
	if (type == bpf_core_enum_value(enum tva_type, TVA_FORCED_COLLAPSE))
		return MTHP_COLLAPSE;
	if (bpf_core_enum_value_exists(enum tva_type, TVA_SWAPIN) &&
	    type == bpf_core_enum_value(enum tva_type, TVA_SWAPIN))
		return MTHP_SWAPIN;
	return MTHP_UNKNOWN;
}

static __always_inline unsigned long mthp_answer(struct cgroup *cgrp, __u32 type,
						 unsigned long vm_flags,
						 unsigned long orders)
{
	struct mthp_facts f = { .orders = MTHP_ALL_ORDERS, .vm_flags = vm_flags };
	struct page_counter *counter = 0;
	struct mthp_cgroup *state;
	struct mthp_room room;
	__u64 allowed;
	__u32 rules;

	f.reason = mthp_reason_of(type);
	if (!mthp_governed(f.reason, vm_flags, &tunables))
		return orders;

	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	if (!state)
		state = mthp_adopt(cgrp);
	if (tunables.rules & (MTHP_RULE(HEADROOM) | MTHP_RULE(SMALL)))
		counter = mthp_counter(cgrp);
	mthp_measure_room(&room, state, counter);
	if (!state) {
		/* No memory for the state: the rules that need none still hold. */
		f.headroom_bytes = room.headroom_bytes;
		return orders & mthp_decide(&f, &tunables, &rules);
	}

	/*
	 * Decide on all orders, not on the offer: the decision then changes only
	 * when the facts do, and not with the size of each mapping.
	 */
	mthp_cgroup_facts(&f, state, &room);
	allowed = mthp_decide(&f, &tunables, &rules);

	if (f.reason < MTHP_NR_REASONS) {
		state->asked[f.reason]++;
		if (orders & ~allowed)
			for (int rule = 0; rule < MTHP_NR_RULES; rule++)
				if (rules & (1U << rule)) {
					state->narrowed[f.reason][rule]++;
					break;
				}
		if (allowed != state->told[f.reason])
			mthp_tell(cgrp, state, &room, 0);
	}
	return orders & allowed;
}

#endif /* MTHP_CHOOSE_BPF_H */
