/* SPDX-License-Identifier: GPL-2.0-only */
/* What headers of the BPF side take of libbpf's, for programs on the host: a clock that is set. */
#ifndef MTHP_HOST_BPF_HELPERS_H
#define MTHP_HOST_BPF_HELPERS_H

#define SEC(name)

static __u64 clock_ns;

static inline __u64 bpf_ktime_get_ns(void)
{
	return clock_ns;
}

#endif /* MTHP_HOST_BPF_HELPERS_H */
