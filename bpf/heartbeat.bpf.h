/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The heartbeat of programs that outlive their daemon.  Verdicts of pressure age without scans,
 * so that a policy with that rule passes everything once the last scan is too long ago.
 */
#ifndef MTHP_HEARTBEAT_BPF_H
#define MTHP_HEARTBEAT_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "decide.h"

/* Age of the last scan that is too old; 0: nothing ages, and the verifier drops what asks. */
const volatile __u64 mthp_stale_after SEC(".rodata.kept") = 0;

/* When the last whole scan ended, CLOCK_MONOTONIC; 0: none has. */
volatile __u64 mthp_scanned SEC(".data.scanned") = 0;

/* Is what scans have found too old? */
static __always_inline int mthp_is_stale(void)
{
	if (!mthp_stale_after)
		return 0;
	/* Signed: another CPU may have ended a scan since the clock was read. */
	return (__s64)(bpf_ktime_get_ns() - mthp_scanned) > (__s64)mthp_stale_after;
}

/* Does a cgroup with the policy @t get all it asks for?  Only pressure cannot do without scans. */
static __always_inline int mthp_passes_all(const struct mthp_tunables *t)
{
	return mthp_is_stale() && mthp_has(t, MTHP_RULE(PRESSURE));
}

/* When it became so. */
static __always_inline __u64 mthp_stale_since(void)
{
	return mthp_scanned + mthp_stale_after;
}

#endif /* MTHP_HEARTBEAT_BPF_H */
