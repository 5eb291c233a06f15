/* SPDX-License-Identifier: GPL-2.0-only */
/* What mthp_ext sets: constants of the load, and the values of each policy. */
#ifndef MTHP_TUNABLES_BPF_H
#define MTHP_TUNABLES_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "abi.h"

/*
 * Constants to the verifier, which drops the rules that no profile has.  In a section, and so in
 * a map, of their own: compilers put tables into .rodata.
 */
const volatile struct mthp_load mthp_constants SEC(".rodata.mthp") = {
	.abi = MTHP_ABI,
};

/*
 * The profiles.  Slot 0 has the policy of those who were assigned none: it never changes.  The
 * others come and go while the programs run: one that comes is assigned to nobody before all
 * of it is written.
 */
struct mthp_tunables mthp_profiles[MTHP_PROFILES] SEC(".data.mthp") = {};

/*
 * The constants without their volatile: it keeps clang from using the values above
 * and would make it read each of them again and again.  That it cannot see where
 * the pointer comes from is enough; the verifier can.
 */
static __always_inline const struct mthp_load *mthp_load(void)
{
	const struct mthp_load *load = (const struct mthp_load *)&mthp_constants;

	asm("" : "+r"(load));
	return load;
}

/* The profile that this id was given to; the slot may have another one by now. */
static __always_inline const struct mthp_tunables *mthp_profile(__u32 id)
{
	return &mthp_profiles[id % MTHP_PROFILES];
}

/* For what all have in common. */
static __always_inline const struct mthp_tunables *mthp_any_profile(void)
{
	return mthp_profile(0);
}

/* Is it still in its slot? */
static __always_inline int mthp_is_profile(__u32 id)
{
	return id && mthp_profile(id)->id == id;
}

#endif /* MTHP_TUNABLES_BPF_H */
