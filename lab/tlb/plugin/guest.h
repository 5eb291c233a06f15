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

/* The address space in use, as the kernel has it for the task that runs. */
struct context {
	uint64_t task;	  /* where the task is */
	uint64_t cr3;	  /* of its page tables */
	uint64_t number;  /* never used again */
	uint64_t changes; /* of its page tables that want a flush */
};

/* Whose the task is. */
struct owner {
	char name[COMM_LEN + 1]; /* of the process, whatever its threads are called */
	uint32_t group;		 /* process group */
};

/* Finds the registers and the map of all memory; NULL, or why this guest cannot be modelled. In a callback only. */
const char *guest_init(const struct options *options);
uint64_t guest_cr3(void);
/* General register 0 to 15, in the order of instruction encodings. */
uint64_t guest_general(unsigned int number);
/* Walks the page tables of the address space `cr3`; whether the page is mapped. */
bool guest_walk(uint64_t cr3, uint64_t vaddr, struct mapping *mapping);
/* Whether it could be read. These read registers: in callbacks that may, only. */
bool guest_context(bool kernel, struct context *context);
bool guest_owner(uint64_t task, struct owner *owner);

#endif
