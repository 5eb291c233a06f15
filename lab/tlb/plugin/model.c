/* SPDX-License-Identifier: GPL-2.0-only */
#include "model.h"

#include <stdlib.h>
#include <string.h>

static bool structure_init(struct structure *s, struct shape shape)
{
	s->sets = shape.sets;
	s->ways = shape.ways;
	s->mask = shape.sets & (shape.sets - 1) ? 0 : shape.sets - 1;
	s->keys = calloc((size_t)s->sets * s->ways, sizeof(*s->keys));
	return s->keys != NULL;
}

bool model_init(struct model *m, const struct options *options)
{
	m->join = options->coalesce;
	m->l1_giant = m->l2_giant = (struct structure){ 0 };
	if (options->l1_giant.sets && (!structure_init(&m->l1_giant, options->l1_giant) ||
				       !structure_init(&m->l2_giant, options->l2_giant)))
		return false;
	return structure_init(&m->l1_small, options->l1_small) && structure_init(&m->l1_large, options->l1_large) &&
	       structure_init(&m->l2, options->l2) && structure_init(&m->pde, options->pde) &&
	       structure_init(&m->pdpte, options->pdpte);
}

/* Moves the key to the front if it is there. */
static bool hit(struct structure *s, uint64_t page, uint64_t key)
{
	uint64_t *set = s->keys + (size_t)set_of(s, page) * s->ways;

	for (unsigned int way = 0; way < s->ways; way++) {
		if (set[way] != key)
			continue;
		memmove(set + 1, set, way * sizeof(*set));
		set[0] = key;
		return true;
	}
	return false;
}

static void put(struct structure *s, uint64_t page, uint64_t key)
{
	uint64_t *set = s->keys + (size_t)set_of(s, page) * s->ways;

	memmove(set + 1, set, (s->ways - 1) * sizeof(*set));
	set[0] = key;
}

static void drop(struct structure *s, uint64_t page, uint64_t key)
{
	uint64_t *set = s->keys + (size_t)set_of(s, page) * s->ways;

	for (unsigned int way = 0; way < s->ways; way++)
		if (set[way] == key)
			set[way] = 0;
}

static void drop_of(struct structure *s, unsigned int space)
{
	for (size_t i = 0; i < (size_t)s->sets * s->ways; i++)
		if ((s->keys[i] >> 3 & 0x3fff) == space)
			s->keys[i] = 0;
}

static enum found find_giant(struct model *m, uint64_t giant, unsigned int space)
{
	uint64_t key = key_of(giant, space, CLASS_1G);

	if (hit(&m->l1_giant, giant, key))
		return IN_L1;
	if (!hit(&m->l2_giant, giant, key))
		return NOWHERE;
	put(&m->l1_giant, giant, key);
	return IN_L2;
}

enum found model_find(struct model *m, uint64_t page, unsigned int space)
{
	uint64_t joined = page >> m->join, large = page >> 9;
	uint64_t key_4k = key_of(page, space, CLASS_4K), key_2m = key_of(large, space, CLASS_2M);
	uint64_t key_joined = key_of(joined, space, CLASS_JOINED);

	if (hit(&m->l1_small, page, key_4k) || (m->join && hit(&m->l1_small, joined, key_joined)) ||
	    hit(&m->l1_large, large, key_2m))
		return IN_L1;
	if (hit(&m->l2, page, key_4k)) {
		put(&m->l1_small, page, key_4k);
		return IN_L2;
	}
	if (m->join && hit(&m->l2, joined, key_joined)) {
		put(&m->l1_small, joined, key_joined);
		return IN_L2;
	}
	if (hit(&m->l2, large, key_2m)) {
		put(&m->l1_large, large, key_2m);
		return IN_L2;
	}
	return m->l1_giant.sets ? find_giant(m, page >> 18, space) : NOWHERE;
}

void model_enter(struct model *m, uint64_t page, unsigned int space, enum leaf leaf)
{
	if (leaf == LEAF_1G && m->l1_giant.sets) {
		put(&m->l1_giant, page >> 18, key_of(page >> 18, space, CLASS_1G));
		put(&m->l2_giant, page >> 18, key_of(page >> 18, space, CLASS_1G));
		return;
	}

	uint64_t number = leaf == LEAF_4K ? page : leaf == LEAF_JOINED ? page >> m->join : page >> 9;
	enum class class = leaf == LEAF_4K ? CLASS_4K : leaf == LEAF_JOINED ? CLASS_JOINED : CLASS_2M;
	uint64_t key = key_of(number, space, class);

	put(leaf <= LEAF_JOINED ? &m->l1_small : &m->l1_large, number, key);
	put(&m->l2, number, key);
}

/* Whether a page-walk cache has it; it does from now on. */
static bool known(struct structure *s, uint64_t number, uint64_t key)
{
	if (hit(s, number, key))
		return true;
	put(s, number, key);
	return false;
}

unsigned int model_references(struct model *m, uint64_t page, unsigned int space, enum leaf leaf, unsigned int levels)
{
	uint64_t large = page >> 9, giant = page >> 18;

	if (leaf == LEAF_1G)
		return levels - 2;
	if (leaf == LEAF_2M)
		return known(&m->pdpte, giant, key_of(giant, space, CLASS_1G)) ? 1 : levels - 1;
	/* A page-directory entry in the cache leaves the last level only; the level above is then not looked at. */
	if (known(&m->pde, large, key_of(large, space, CLASS_2M)))
		return 1;
	return known(&m->pdpte, giant, key_of(giant, space, CLASS_1G)) ? 2 : levels;
}

void model_drop_page(struct model *m, uint64_t page, unsigned int space)
{
	uint64_t joined = page >> m->join, large = page >> 9;

	drop(&m->l1_small, page, key_of(page, space, CLASS_4K));
	drop(&m->l1_small, joined, key_of(joined, space, CLASS_JOINED));
	drop(&m->l1_large, large, key_of(large, space, CLASS_2M));
	drop(&m->l2, page, key_of(page, space, CLASS_4K));
	drop(&m->l2, joined, key_of(joined, space, CLASS_JOINED));
	drop(&m->l2, large, key_of(large, space, CLASS_2M));
	if (m->l1_giant.sets) {
		drop(&m->l1_giant, page >> 18, key_of(page >> 18, space, CLASS_1G));
		drop(&m->l2_giant, page >> 18, key_of(page >> 18, space, CLASS_1G));
	}
	drop_of(&m->pde, space);
	drop_of(&m->pdpte, space);
}

void model_drop_space(struct model *m, unsigned int space)
{
	struct structure *all[] = { &m->l1_small, &m->l1_large, &m->l2,	&m->pde,
				    &m->pdpte,	  &m->l1_giant, &m->l2_giant };

	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		drop_of(all[i], space);
}

void model_drop_all(struct model *m)
{
	struct structure *all[] = { &m->l1_small, &m->l1_large, &m->l2,	&m->pde,
				    &m->pdpte,	  &m->l1_giant, &m->l2_giant };

	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		for (size_t key = 0; key < (size_t)all[i]->sets * all[i]->ways; key++)
			all[i]->keys[key] = 0;
}
