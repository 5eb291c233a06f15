/* SPDX-License-Identifier: GPL-2.0-only */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool number(const char *text, uint64_t *value)
{
	char *end;

	*value = strtoull(text, &end, 0);
	return end != text && !*end;
}

static bool shape(const char *text, struct shape *shape)
{
	char end;

	return sscanf(text, "%ux%u%c", &shape->sets, &shape->ways, &end) == 2 && shape->sets && shape->ways &&
	       shape->ways <= 64 && shape->sets <= 65536;
}

static bool take(struct options *options, const char *name, const char *value)
{
	struct {
		const char *name;
		struct shape *shape;
	} shapes[] = {
		{ "l1-small", &options->l1_small }, { "l1-large", &options->l1_large }, { "l2", &options->l2 },
		{ "pde", &options->pde },	    { "pdpte", &options->pdpte },
		{ "l1-giant", &options->l1_giant }, { "l2-giant", &options->l2_giant },
	};
	uint64_t n;

	for (unsigned int i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		if (!strcmp(name, shapes[i].name))
			return shape(value, shapes[i].shape);
	if (!strcmp(name, "out")) {
		options->out = value;
		return true;
	}
	if (!number(value, &n))
		return false;
	if (!strcmp(name, "coalesce")) {
		options->coalesce = n;
		return n <= 4;
	}
	struct {
		const char *name;
		unsigned int *offset;
	} offsets[] = {
		{ "leader", &options->leader }, { "comm", &options->comm }, { "signal", &options->signal },
		{ "mm", &options->mm },		{ "pgrp", &options->pgrp }, { "nr", &options->nr },
		{ "pgd", &options->pgd },	{ "context", &options->context },
	};

	for (unsigned int i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		if (!strcmp(name, offsets[i].name)) {
			*offsets[i].offset = n;
			return n < 1 << 20;
		}
	}
	if (!strcmp(name, "direct"))
		options->direct = n;
	else if (!strcmp(name, "current"))
		options->current = n;
	else
		return false;
	return true;
}

bool options_parse(struct options *options, int count, char **words)
{
	for (int i = 0; i < count; i++) {
		char *value = strchr(words[i], '=');

		if (value)
			*value = '\0';
		if (!value || !take(options, words[i], value + 1)) {
			fprintf(stderr, "tlb plugin: option %s%s%s is not known, or its value is none\n", words[i],
				value ? "=" : "", value ? value + 1 : "");
			return false;
		}
		*value = '=';
	}
	if (!options->out || !options->l1_small.sets || !options->l1_large.sets || !options->l2.sets ||
	    !options->pde.sets || !options->pdpte.sets || !options->current) {
		fprintf(stderr, "tlb plugin: it needs out=, l1-small=, l1-large=, l2=, pde=, pdpte= and current=\n");
		return false;
	}
	if (!options->l1_giant.sets != !options->l2_giant.sets) {
		fprintf(stderr, "tlb plugin: l1-giant= and l2-giant= go together\n");
		return false;
	}
	return true;
}
