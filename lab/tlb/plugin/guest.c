/* SPDX-License-Identifier: GPL-2.0-only */
#include "guest.h"

#include <stdio.h>
#include <string.h>

#include "qemu.h"

#define PRESENT 1ull
#define LARGE (1ull << 7)
#define FRAME 0x000ffffffffff000ull
#define CR4_LA57 (1ull << 12)
#define CR4_PCIDE (1ull << 17)
#define DIRECT_4_LEVELS 0xffff888000000000ull
#define DIRECT_5_LEVELS 0xff11000000000000ull
/* Attributes in which joined entries may differ: accessed and dirty. */
#define VOLATILE (1ull << 5 | 1ull << 6)

static const char *const general[16] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
					  "r8",	 "r9",	"r10", "r11", "r12", "r13", "r14", "r15" };

static struct {
	struct qemu_plugin_register *general[16], *cr3, *cr4, *gs_base, *k_gs_base;
	struct bytes *buffer;
	uint64_t direct;
	unsigned int levels, join;
	const struct options *options;
} guest;

static bool read_guest(uint64_t vaddr, void *to, size_t len)
{
	if (!qemu_plugin_read_memory_vaddr(vaddr, guest.buffer, len) || guest.buffer->len < len)
		return false;
	memcpy(to, guest.buffer->data, len);
	return true;
}

static uint64_t read_register(struct qemu_plugin_register *handle)
{
	uint64_t value = 0;
	int size;

	g_byte_array_set_size(guest.buffer, 0);
	size = qemu_plugin_read_register(handle, guest.buffer);
	if (size > 0 && guest.buffer->len)
		memcpy(&value, guest.buffer->data, guest.buffer->len < sizeof(value) ? guest.buffer->len : sizeof(value));
	return value;
}

static void find_registers(void)
{
	struct array_of *all = qemu_plugin_get_registers();
	const struct register_of *one = (const struct register_of *)all->data;
	struct {
		const char *name;
		struct qemu_plugin_register **handle;
	} others[] = {
		{ "cr3", &guest.cr3 },
		{ "cr4", &guest.cr4 },
		{ "gs_base", &guest.gs_base },
		{ "k_gs_base", &guest.k_gs_base },
	};

	for (unsigned int i = 0; i < all->len; i++) {
		for (unsigned int n = 0; n < 16; n++)
			if (!strcmp(one[i].name, general[n]))
				guest.general[n] = one[i].handle;
		for (unsigned int n = 0; n < sizeof(others) / sizeof(others[0]); n++)
			if (!strcmp(one[i].name, others[n].name))
				*others[n].handle = one[i].handle;
	}
	g_array_free(all, 1);
}

/* Whether the map of all memory is where `direct` says: the tables themselves must lie where they map it to. */
static bool is_direct(uint64_t cr3)
{
	uint64_t table = cr3 & FRAME, vaddr = guest.direct + table;

	for (unsigned int level = guest.levels; level > 0; level--) {
		unsigned int shift = 12 + 9 * (level - 1);
		uint64_t entry;

		if (!read_guest(guest.direct + table + (vaddr >> shift & 511) * 8, &entry, sizeof(entry)) ||
		    !(entry & PRESENT))
			return false;
		table = entry & FRAME;
		if (level == 1 || (level <= 3 && entry & LARGE)) {
			uint64_t inner = (1ull << shift) - 1;

			return (table & ~inner) + (vaddr & inner) == (cr3 & FRAME);
		}
	}
	return false;
}

const char *guest_init(const struct options *options)
{
	uint64_t cr4;

	guest.options = options;
	guest.join = options->coalesce;
	guest.buffer = g_byte_array_sized_new(256);
	find_registers();
	for (unsigned int n = 0; n < 16; n++)
		if (!guest.general[n])
			return "QEMU names no general registers as it did: the plugin knows QEMU 10.0";
	if (!guest.cr3 || !guest.cr4 || !guest.gs_base || !guest.k_gs_base)
		return "QEMU does not show cr3, cr4, gs_base and k_gs_base: the plugin knows QEMU 10.0";
	cr4 = read_register(guest.cr4);
	if (cr4 & CR4_PCIDE)
		return "the guest's kernel uses PCIDs, which the plugin does not read; emulation usually has none";
	guest.levels = cr4 & CR4_LA57 ? 5 : 4;
	guest.direct = options->direct ? options->direct : guest.levels == 5 ? DIRECT_5_LEVELS : DIRECT_4_LEVELS;
	if (!is_direct(guest_cr3()))
		return "the kernel's map of all memory is not where kernels without KASLR have it: boot with nokaslr, "
		       "and without page-table isolation (nopti)";
	return NULL;
}

uint64_t guest_cr3(void)
{
	return read_register(guest.cr3);
}

uint64_t guest_general(unsigned int number)
{
	return read_register(guest.general[number]);
}

/* Whether the entries of an aligned block map contiguous, aligned memory with the same rights. */
static bool joined(const uint64_t *block, unsigned int count)
{
	uint64_t first = block[0] & ~VOLATILE;

	if (!(first & PRESENT) || first & FRAME & ((uint64_t)count * 4096 - 1))
		return false;
	for (unsigned int i = 1; i < count; i++)
		if ((block[i] & ~VOLATILE) != first + i * 4096ull)
			return false;
	return true;
}

bool guest_walk(uint64_t cr3, uint64_t vaddr, struct mapping *mapping)
{
	uint64_t table = cr3 & FRAME;

	mapping->levels = guest.levels;
	for (unsigned int level = guest.levels; level > 1; level--) {
		uint64_t entry;

		if (!read_guest(guest.direct + table + (vaddr >> (3 + 9 * level) & 511) * 8, &entry, sizeof(entry)) ||
		    !(entry & PRESENT))
			return false;
		if (level <= 3 && entry & LARGE) {
			mapping->leaf = level == 3 ? LEAF_1G : LEAF_2M;
			return true;
		}
		table = entry & FRAME;
	}
	unsigned int count = 1u << guest.join, index = vaddr >> 12 & 511, first = index & ~(count - 1);
	uint64_t block[16];

	if (!read_guest(guest.direct + table + first * 8, block, count * 8) || !(block[index - first] & PRESENT))
		return false;
	mapping->leaf = count > 1 && joined(block, count) ? LEAF_JOINED : LEAF_4K;
	return true;
}

static bool follow(uint64_t base, unsigned int offset, uint64_t *to)
{
	return read_guest(base + offset, to, sizeof(*to));
}

bool guest_context(bool kernel, struct context *context)
{
	const struct options *o = guest.options;
	uint64_t base = read_register(kernel ? guest.gs_base : guest.k_gs_base), mm, pgd, numbers[2];

	if (!read_guest(base + o->current, &context->task, sizeof(context->task)) ||
	    !follow(context->task, o->mm, &mm) || !follow(mm, o->pgd, &pgd) ||
	    !read_guest(mm + o->context, numbers, sizeof(numbers)))
		return false;
	context->cr3 = pgd - guest.direct;
	context->number = numbers[0];
	context->changes = numbers[1];
	return true;
}

/* Names are ASCII text, and there is one: else they were read from somewhere else, or a program has another name,
 * which cannot be told apart. */
static bool is_name(const char *name)
{
	for (const char *c = name; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			return false;
	return *name && strlen(name) < COMM_LEN;
}

bool guest_owner(uint64_t task, struct owner *owner)
{
	const struct options *o = guest.options;
	uint64_t leader, signal, its_leader, its_signal, group;

	/* The leader leads itself, and its process has one set of signals. */
	if (!follow(task, o->leader, &leader) || !follow(task, o->signal, &signal) ||
	    !follow(leader, o->leader, &its_leader) || its_leader != leader ||
	    !follow(leader, o->signal, &its_signal) || its_signal != signal)
		return false;
	if (!read_guest(leader + o->comm, owner->name, COMM_LEN) || !follow(signal, o->pgrp, &group) ||
	    !read_guest(group + o->nr, &owner->group, sizeof(owner->group)))
		return false;
	owner->name[COMM_LEN] = '\0';
	return is_name(owner->name);
}
