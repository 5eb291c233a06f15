/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TLB_OPTIONS_H
#define TLB_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Sets and ways of one structure. */
struct shape {
	unsigned int sets, ways;
};

/* "NAME=VALUE" of QEMU's command line. Every one is needed but for `direct` and the giants; an offset may be 0. */
struct options {
	const char *out;
	struct shape l1_small, l1_large, l2, pde, pdpte;
	/* Of entries for 1 GiB; not given: such a leaf is entered as pieces of 2 MiB. */
	struct shape l1_giant, l2_giant;
	unsigned int coalesce; /* base pages that one entry may join, as a power of 2; 0: none */
	uint64_t direct;       /* the kernel's map of all memory; 0: the usual one of 4 or 5 levels */
	/* Where the kernel keeps the running task: current_task above the base of GS. */
	uint64_t current;
	/* Offsets: in task_struct of the group's leader, the name, the signals and the borrowed or own mm; in
	 * signal_struct of the process group; in struct pid of its number; in mm_struct of the page tables and of the
	 * context. */
	unsigned int leader, comm, signal, mm, pgrp, nr, pgd, context;
};

/* Whether all words are known and all that is needed was given; says on stderr what is not. */
bool options_parse(struct options *options, int count, char **words);

#endif
