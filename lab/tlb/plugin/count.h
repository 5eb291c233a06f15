/* SPDX-License-Identifier: GPL-2.0-only */
/* What is counted, by program, and the report. */
#ifndef TLB_COUNT_H
#define TLB_COUNT_H

#include <stdint.h>

#include "model.h"

enum { USER, KERNEL, MODES };
#define PROGRAMS 1024

struct counts {
	uint64_t instructions, accesses, l1_misses, walks[LEAVES], references, lost;
};

struct program {
	char name[17];
	uint32_t group; /* its process group; 0: the kernel's own */
	struct counts of[MODES];
};

/* The counters of a program, by its name and process group; NULL once there are too many. */
struct program *count_program(const char *name, uint32_t group);
void count_clear(void);
/* Appends the window's record to the file; NULL, or what went wrong. */
const char *count_report(const char *path, unsigned int label, unsigned int join);
/* Appends why there is nothing to report. */
void count_refuse(const char *path, const char *why);

#endif
