/* SPDX-License-Identifier: GPL-2.0-only */
#include "count.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct program programs[PROGRAMS];
static unsigned int known;

struct program *count_program(const char *name, uint32_t group)
{
	for (unsigned int i = 0; i < known; i++)
		if (programs[i].group == group && !strcmp(programs[i].name, name))
			return &programs[i];
	if (known == PROGRAMS)
		return NULL;
	snprintf(programs[known].name, sizeof(programs[known].name), "%s", name);
	programs[known].group = group;
	return &programs[known++];
}

void count_clear(void)
{
	for (unsigned int i = 0; i < known; i++)
		memset(programs[i].of, 0, sizeof(programs[i].of));
}

/* A program may call itself anything; JSON wants text. */
static void quoted(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++)
		fputc(*text < 0x20 || *text > 0x7e || *text == '"' || *text == '\\' ? '?' : *text, out);
	fputc('"', out);
}

static void mode(FILE *out, const char *name, const struct counts *c, unsigned int join)
{
	fprintf(out,
		"\"%s\": {\"instructions\": %" PRIu64 ", \"accesses\": %" PRIu64 ", \"l1_misses\": %" PRIu64
		", \"references\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"walks\": {\"4\": %" PRIu64,
		name, c->instructions, c->accesses, c->l1_misses, c->references, c->lost, c->walks[LEAF_4K]);
	if (join)
		fprintf(out, ", \"%u\": %" PRIu64, 4u << join, c->walks[LEAF_JOINED]);
	fprintf(out, ", \"2048\": %" PRIu64 ", \"1048576\": %" PRIu64 "}}", c->walks[LEAF_2M], c->walks[LEAF_1G]);
}

const char *count_report(const char *path, unsigned int label, unsigned int join)
{
	FILE *out = fopen(path, "a");

	if (!out)
		return strerror(errno);
	fprintf(out, "{\"type\": \"tlb\", \"window\": %u, \"programs\": [", label);
	for (unsigned int i = 0, shown = 0; i < known; i++) {
		const struct program *one = &programs[i];

		if (!one->of[USER].accesses && !one->of[KERNEL].accesses)
			continue;
		fprintf(out, "%s{\"name\": ", shown++ ? ", " : "");
		quoted(out, one->name);
		fprintf(out, ", \"group\": %" PRIu32 ", ", one->group);
		mode(out, "user", &one->of[USER], join);
		fprintf(out, ", ");
		mode(out, "kernel", &one->of[KERNEL], join);
		fprintf(out, "}");
	}
	fprintf(out, "]}\n");
	return fclose(out) ? strerror(errno) : NULL;
}

void count_refuse(const char *path, const char *why)
{
	FILE *out = fopen(path, "a");

	fprintf(stderr, "tlb plugin: %s\n", why);
	if (!out)
		return;
	fprintf(out, "{\"type\": \"tlb\", \"refused\": \"%s\"}\n", why);
	fclose(out);
}
