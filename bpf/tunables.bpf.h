/* SPDX-License-Identifier: GPL-2.0-only */
/* The constants that mthp_ext sets before it loads the programs. */
#ifndef MTHP_TUNABLES_BPF_H
#define MTHP_TUNABLES_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "abi.h"

/*
 * Constants to the verifier, which drops the rules that are off.  In a section, and so in a
 * map, of their own: compilers put tables into .rodata.
 */
const volatile struct mthp_tunables tunables SEC(".rodata.mthp") = {
	.abi = MTHP_ABI,
};

/*
 * The tunables without their volatile: it keeps clang from using the values above
 * and would make it read each of them again and again.  That it cannot see where
 * the pointer comes from is enough; the verifier can.
 */
static __always_inline const struct mthp_tunables *mthp_tunables(void)
{
	const struct mthp_tunables *t = (const struct mthp_tunables *)&tunables;

	asm volatile("" : "+r"(t));
	return t;
}

#endif /* MTHP_TUNABLES_BPF_H */
