/* SPDX-License-Identifier: GPL-2.0-only */
/* The structures of a data TLB: set-associative, least recently used goes first. They hold no translation, only that
 * there is one: what it is comes from the guest's page tables, at each walk. */
#ifndef TLB_MODEL_H
#define TLB_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

enum class { CLASS_4K = 1, CLASS_JOINED, CLASS_2M, CLASS_1G };
/* Leaf sizes as they are counted. */
enum leaf { LEAF_4K, LEAF_JOINED, LEAF_2M, LEAF_1G, LEAVES };

struct structure {
	unsigned int sets, ways, mask; /* mask: sets - 1 where that is a power of 2, else 0 */
	uint64_t *keys;		       /* of each set, the newest first; 0: empty */
};

struct model {
	struct structure l1_small, l1_large, l2, pde, pdpte;
	struct structure l1_giant, l2_giant; /* without sets: there are none */
	unsigned int join;
};

/* What one access came to. */
enum found { IN_L1, IN_L2, NOWHERE };

bool model_init(struct model *model, const struct options *options);

static inline unsigned int set_of(const struct structure *s, uint64_t page)
{
	return s->mask || s->sets == 1 ? page & s->mask : page % s->sets;
}

/* A page number has up to 45 bits, an address space 14; the kernel's half is that of space 0, for all. */
static inline uint64_t key_of(uint64_t page, unsigned int space, enum class class)
{
	return page << 17 | (uint64_t)space << 3 | class;
}

#define PAGE_OF(vaddr) ((vaddr) >> 12 & ((1ull << 45) - 1))

/* Whether the access would find its translation as the newest of a set of L1, and so change nothing. */
static inline bool model_newest(const struct model *m, uint64_t page, unsigned int space)
{
	uint64_t large = page >> 9;

	return m->l1_small.keys[set_of(&m->l1_small, page) * m->l1_small.ways] == key_of(page, space, CLASS_4K) ||
	       m->l1_large.keys[set_of(&m->l1_large, large) * m->l1_large.ways] == key_of(large, space, CLASS_2M);
}

/* Looks the page up and makes what is found the newest. */
enum found model_find(struct model *m, uint64_t page, unsigned int space);
/* Enters a translation after a walk. A leaf of 1 GiB is entered as pieces of 2 MiB where there are no entries for it. */
void model_enter(struct model *m, uint64_t page, unsigned int space, enum leaf leaf);
/* Page-table entries that a walk of `levels` to a leaf must read, with what the page-walk caches hold; fills those. */
unsigned int model_references(struct model *m, uint64_t page, unsigned int space, enum leaf leaf, unsigned int levels);
/* invlpg: the page's translation in this space goes, and with it what the page-walk caches have of the space. */
void model_drop_page(struct model *m, uint64_t page, unsigned int space);
/* A space goes, the kernel's half stays. */
void model_drop_space(struct model *m, unsigned int space);
void model_drop_all(struct model *m);

#endif
