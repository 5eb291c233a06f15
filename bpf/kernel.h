/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few kernel types the policies touch, cut down to the fields they read.
 * CO-RE finds the real offsets in the running kernel's BTF at load time, so no
 * vmlinux.h, and no built kernel, is needed to compile.
 */
#ifndef MTHP_KERNEL_H
#define MTHP_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* bpf(2) constants; part of the UAPI, but newer than some distributions' headers. */
enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_CGRP_STORAGE = 32,
};

enum {
	BPF_ANY = 0,
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
};

/* Values are placeholders wherever CO-RE replaces them by the kernel's. */
enum cgroup_subsys_id {
	memory_cgrp_id,
};

enum node_stat_item {
	NR_ANON_MAPPED,
	WORKINGSET_REFAULT_FILE,
	NR_SHMEM,
	NR_INACTIVE_FILE,
	NR_FILE_DIRTY,
	NR_WRITEBACK,
};

/* Of an enum without a name, which CO-RE cannot find; unchanged since 4.5. */
enum {
	MM_FILEPAGES = 0,
	MM_ANONPAGES = 1,
	MM_SWAPENTS = 2,
	MM_SHMEMPAGES = 3,
};

enum vm_event_item {
	PSWPIN,
	PSWPOUT,
	ZSWPIN,
	ZSWPOUT,
	ZSWPWB,
};

enum psi_states {
	PSI_MEM_SOME,
	PSI_MEM_FULL,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	long counter;
} atomic_long_t;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct kernfs_node {
	__u64 id;
	const char *name;
};

struct cgroup {
	struct cgroup_subsys_state self;
	int level;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[1];
};

struct page_counter {
	atomic_long_t usage;
	unsigned long high;
	unsigned long max;
	struct page_counter *parent;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
	struct page_counter swap;
};

struct percpu_counter {
	__s64 count;
};

struct mm_struct {
	atomic_long_t pgtables_bytes;
	unsigned long data_vm;
	struct percpu_counter rss_stat[4];
};

struct signal_struct {
	int nr_threads;
};

struct task_struct {
	int tgid;
	struct mm_struct *mm;
	struct signal_struct *signal;
};

#pragma clang attribute pop

/* Iterators, which live on a program's stack. */
struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_css {
	__u64 __opaque[3];
} __attribute__((aligned(8)));

enum {
	BPF_CGROUP_ITER_DESCENDANTS_PRE = 2,
};

struct bpf_iter_css_task {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

enum {
	CSS_TASK_ITER_PROCS = 1U << 0,
};

#endif /* MTHP_KERNEL_H */
