/* SPDX-License-Identifier: GPL-2.0-only */
/* The guest's registers, memory and page tables. */
#ifndef TLB_GUEST_H
#define TLB_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "model.h"
#include "options.h"

#define COMM_LEN 16

struct mapping {
	enum leaf leaf;
	unsigned int levels;
};

/* The task that runs, as the kernel has it. */
struct task {
	char comm[COMM_LEN + 1];
	uint64_t context; /* number of the address space, which is never used again */
	uint64_t changes; /* of its page tables that want a flush */
};

/* Finds the registers and the map of all memory; NULL, or why this guest cannot be modelled. In a callback only. */
const char *guest_init(const struct options *options);
uint64_t guest_cr3(void);
/* General register 0 to 15, in the order of instruction encodings. */
uint64_t guest_general(unsigned int number);
/* Walks the page tables of the address space `cr3`; whether the page is mapped. */
bool guest_walk(uint64_t cr3, uint64_t vaddr, struct mapping *mapping);
/* Whether the running task could be read. */
bool guest_task(bool kernel, struct task *task);

#endif
