/* SPDX-License-Identifier: GPL-2.0-only */
/* Models the data TLB of a guest in QEMU's instruction-counted emulation: which accesses would walk the page tables, by
 * page size, by program, in user and in kernel mode. The guest says when: by a no-op with a number in it, nopl
 * 0x4d54CCLL(%rax,%rax), CC a command and LL the label of a window, whose end has the same. Until the first one nothing
 * is instrumented. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "count.h"
#include "guest.h"
#include "model.h"
#include "options.h"
#include "qemu.h"

TLB_EXPORT int qemu_plugin_version = TLB_API;

enum { MARK_ARM = 1, MARK_BEGIN, MARK_END };
#define MARK 0x4d540000u
#define SPACES 0x3fff

/* An address space of the guest. */
struct space {
	uint64_t cr3, context;
	uint64_t changes; /* up to which its tables are known to be flushed */
	unsigned int number; /* in the model; another one when the tables serve another address space */
};

static struct {
	uint64_t id;
	struct options options;
	struct model model;
	struct space spaces[SPACES];
	unsigned int used, numbers, window;
	struct space *now;
	struct program *owner; /* who accesses count for */
	bool armed, counting, refused;
	unsigned int looks; /* in vain, since CR3 was written */
	struct qemu_plugin_scoreboard *board;
	uint64_t *slots;
} tlb;

/* What QEMU's own code reads and writes: instructions by mode since settle(), and what has yet to be looked up since
 * the last switch. exec gives a program its name only after its address space, so names are read again in user code.
 * A task that ends may free its memory, long work, on the kernel's own page tables: nobody's, so only user code is
 * looked at again. */
enum { UNKNOWN = MODES, SLOTS };
enum { NOTHING, NAME, SPACE, NOBODY };
/* Blocks of the kernel between its write of CR3 and its switch of the running task, with room to spare. */
#define LOOKS 1000

static struct qemu_plugin_u64 entry_of(unsigned int number)
{
	return (struct qemu_plugin_u64){ tlb.board, number * sizeof(*tlb.slots) };
}

static void refuse(const char *why)
{
	if (!tlb.refused)
		count_refuse(tlb.options.out, why);
	tlb.refused = true;
	tlb.counting = false;
	if (tlb.slots)
		tlb.slots[UNKNOWN] = NOTHING;
}

static void watch(uint64_t id);

/* The guest is not what was expected. All code is translated again, now without calls at each access. */
static void refuse_guest(const char *why)
{
	refuse(why);
	qemu_plugin_reset(tlb.id, watch);
}

static struct counts *counts(unsigned int mode)
{
	return &tlb.owner->of[mode];
}

/* The instructions go to the program that ran. */
static void settle(void)
{
	for (unsigned int mode = 0; mode < MODES; mode++) {
		if (tlb.counting)
			counts(mode)->instructions += tlb.slots[mode];
		tlb.slots[mode] = 0;
	}
}

/* What comes now counts for the program, the kernel's own if there is no owner. */
static void count_for(const struct owner *owner)
{
	struct program *program = owner ? count_program(owner->name, owner->group) : count_program("(kernel)", 0);

	if (tlb.owner)
		settle();
	if (program)
		tlb.owner = program;
	else
		refuse("the guest has had more programs than the plugin has room for");
}

static unsigned int new_number(void)
{
	if (++tlb.numbers > SPACES) {
		/* All numbers have been given: what old spaces left must not be taken for a new one's. */
		model_drop_all(&tlb.model);
		for (unsigned int i = 0; i < tlb.used; i++)
			tlb.spaces[i].number = i + 1;
		tlb.numbers = tlb.used + 1;
	}
	return tlb.numbers;
}

static struct space *space_of(uint64_t cr3)
{
	/* The tables of a guest lie in few pages: most of the time the first look finds the one. */
	unsigned int slot = cr3 >> 12 & 1023;
	static unsigned short guess[1024];
	struct space *space = &tlb.spaces[guess[slot]];

	if (guess[slot] < tlb.used && space->cr3 == cr3)
		return space;
	for (unsigned int i = 0; i < tlb.used; i++) {
		if (tlb.spaces[i].cr3 == cr3) {
			guess[slot] = i;
			return &tlb.spaces[i];
		}
	}
	if (tlb.used == SPACES - 1) {
		refuse("the guest has had more page tables than the plugin has room for");
		return tlb.now;
	}
	guess[slot] = tlb.used;
	space = &tlb.spaces[tlb.used++];
	*space = (struct space){ .cr3 = cr3, .number = new_number() };
	return space;
}

static bool is_of_another(uint64_t context)
{
	for (unsigned int i = 0; i < tlb.used; i++)
		if (&tlb.spaces[i] != tlb.now && tlb.spaces[i].context == context)
			return true;
	return false;
}

#define OTHER_LAYOUT ": this is not the kernel whose layout was given"

/* At the start of a block while it is unknown whose the address space is. The kernel writes CR3 before it changes the
 * running task, so its notion holds once the two agree: at the latest in user code. What comes before is the kernel's
 * own work and leaves user memory alone. */
static void on_block(unsigned int cpu, void *data)
{
	unsigned int mode = (uintptr_t)data;
	struct space *space = tlb.now;
	struct context context;
	struct owner owner;

	(void)cpu;
	if (tlb.refused || !space || (mode == KERNEL && tlb.slots[UNKNOWN] != SPACE))
		return;
	if (!guest_context(mode == KERNEL, &context) || context.cr3 != space->cr3 ||
	    !guest_owner(context.task, &owner)) {
		if (mode == USER)
			refuse_guest("the running task cannot be read, or its page tables are not those in use"
				     OTHER_LAYOUT ", or a program's name is not ASCII text");
		else if (++tlb.looks == LOOKS)
			tlb.slots[UNKNOWN] = NOBODY;
		return;
	}
	if (space->context != context.number) {
		if (is_of_another(context.number)) {
			refuse_guest("two address spaces have one number" OTHER_LAYOUT);
			return;
		}
		/* The tables of an ended program serve another one. */
		if (space->context)
			space->number = new_number();
		space->context = context.number;
		space->changes = context.changes;
	} else if (space->changes != context.changes) {
		/* Changed and not flushed, as by others while another space ran: processors flush it before it runs. */
		model_drop_space(&tlb.model, space->number);
		space->changes = context.changes;
	}
	tlb.slots[UNKNOWN] = mode == USER ? NOTHING : NAME;
	count_for(&owner);
}

/* The kernel has flushed what it changed so far. It raises the number of changes before it flushes; a kernel thread that
 * borrows the space raises it and does not flush. */
static void flushed(void)
{
	struct context context;

	if (tlb.slots[UNKNOWN] < SPACE && guest_context(true, &context) && context.cr3 == tlb.now->cr3)
		tlb.now->changes = context.changes;
}

static void on_memory(unsigned int cpu, uint32_t info, uint64_t vaddr, void *data)
{
	unsigned int mode = (uintptr_t)data, space;
	uint64_t page = PAGE_OF(vaddr);
	struct counts *c;
	struct mapping mapping;
	enum found found;

	(void)cpu;
	(void)info;
	if (tlb.refused || !tlb.now)
		return;
	c = counts(mode);
	space = vaddr >> 63 ? 0 : tlb.now->number;
	c->accesses += tlb.counting;
	if (model_newest(&tlb.model, page, space))
		return;
	found = model_find(&tlb.model, page, space);
	if (found == IN_L1)
		return;
	c->l1_misses += tlb.counting;
	if (found == IN_L2)
		return;
	if (!guest_walk(tlb.now->cr3, vaddr, &mapping)) {
		c->lost += tlb.counting;
		return;
	}
	if (tlb.counting) {
		c->walks[mapping.leaf]++;
		c->references += model_references(&tlb.model, page, space, mapping.leaf, mapping.levels);
	} else {
		model_references(&tlb.model, page, space, mapping.leaf, mapping.levels);
	}
	model_enter(&tlb.model, page, space, mapping.leaf);
}

/* Before mov %REG,%cr3. */
static void on_cr3(unsigned int cpu, void *data)
{
	uint64_t cr3 = guest_general((uintptr_t)data) & ~0xfffull & ~(1ull << 63);
	struct context context;

	(void)cpu;
	if (tlb.refused || !tlb.now)
		return;
	if (cr3 == tlb.now->cr3) {
		/* The space's own flush. */
		model_drop_space(&tlb.model, tlb.now->number);
		flushed();
		return;
	}
	/* The kernel still has the task that goes as the running one, and its space the number that it had. */
	if (tlb.slots[UNKNOWN] < SPACE && guest_context(true, &context) && context.cr3 == tlb.now->cr3 &&
	    context.number != tlb.now->context) {
		refuse_guest("the number of an address space changes" OTHER_LAYOUT);
		return;
	}
	count_for(NULL);
	tlb.now = space_of(cr3);
	tlb.slots[UNKNOWN] = tlb.refused ? NOTHING : SPACE;
	tlb.looks = 0;
}

static void on_cr4(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	model_drop_all(&tlb.model);
}

/* Operand of invlpg: base and index, each 16 for none, the index's shift, and a displacement. */
struct address {
	unsigned int base, index, shift;
	int32_t displacement;
};

static void on_invlpg(unsigned int cpu, void *data)
{
	const struct address *at = data;
	uint64_t vaddr = at->displacement;

	(void)cpu;
	if (tlb.refused || !tlb.now)
		return;
	if (at->base < 16)
		vaddr += guest_general(at->base);
	if (at->index < 16)
		vaddr += guest_general(at->index) << at->shift;
	model_drop_page(&tlb.model, PAGE_OF(vaddr), vaddr >> 63 ? 0 : tlb.now->number);
	if (!(vaddr >> 63))
		flushed();
}

static void translate(uint64_t id, struct qemu_plugin_tb *tb);

static void at_exit(uint64_t id, void *data)
{
	(void)id;
	(void)data;
	if (tlb.counting)
		refuse("QEMU ended inside a window");
}

static void watch(uint64_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
}

static void on_mark(unsigned int cpu, void *data)
{
	unsigned int command = (uintptr_t)data >> 8, label = (uintptr_t)data & 0xff;
	const char *why;

	(void)cpu;
	if (tlb.refused)
		return;
	switch (command) {
	case MARK_ARM:
		if (tlb.armed)
			return;
		why = guest_init(&tlb.options);
		if (why) {
			refuse(why);
			return;
		}
		tlb.armed = true;
		tlb.slots = qemu_plugin_scoreboard_find(tlb.board, 0);
		tlb.now = space_of(guest_cr3() & ~0xfffull);
		count_for(NULL);
		tlb.slots[UNKNOWN] = SPACE;
		/* All code is translated again, now with calls at each access. */
		qemu_plugin_reset(tlb.id, watch);
		return;
	case MARK_BEGIN:
		/* A window inside another one: its program is part of what is measured there. */
		if (tlb.counting)
			return;
		if (!tlb.armed) {
			refuse("a window begins before the guest has armed the model");
			return;
		}
		settle();
		count_clear();
		tlb.counting = true;
		tlb.window = label;
		return;
	case MARK_END:
		if (!tlb.counting || label != tlb.window)
			return;
		settle();
		tlb.counting = false;
		why = count_report(tlb.options.out, label, tlb.options.coalesce);
		if (why)
			refuse(why);
		return;
	}
}

static int32_t little_endian(const uint8_t *from)
{
	int32_t value;

	memcpy(&value, from, sizeof(value));
	return value;
}

/* The address that a ModRM byte and what follows it name, in 64-bit mode; NULL for forms that no kernel uses. */
static const struct address *decode(const uint8_t *modrm, size_t len, uint8_t rex)
{
	unsigned int mod = modrm[0] >> 6, rm = modrm[0] & 7;
	struct address at = { .base = rm | (rex & 1) << 3, .index = 16 };
	size_t next = 1;
	struct address *kept;

	if (rm == 4) {
		if (len < 2)
			return NULL;
		at.base = (modrm[1] & 7) | (rex & 1) << 3;
		at.index = (modrm[1] >> 3 & 7) | (rex & 2) << 2;
		at.shift = modrm[1] >> 6;
		if (at.index == 4)
			at.index = 16;
		next = 2;
	}
	if (mod == 0 && (at.base & 7) == 5)
		return NULL;
	if (len < next + (mod == 1 ? 1 : mod == 2 ? 4 : 0))
		return NULL;
	if (mod == 1)
		at.displacement = (int8_t)modrm[next];
	else if (mod == 2)
		at.displacement = little_endian(modrm + next);
	/* Code that drops pages is in few places, and translated few times. */
	kept = malloc(sizeof(*kept));
	if (kept)
		*kept = at;
	return kept;
}

static void watch_system(struct qemu_plugin_insn *insn, const uint8_t *code, size_t len)
{
	uint8_t rex = (code[0] & 0xf0) == 0x40 ? code[0] : 0;
	const struct address *at;

	if (rex) {
		code++;
		len--;
	}
	if (len < 3 || code[0] != 0x0f)
		return;
	if (code[1] == 0x22 && (code[2] >> 3 & 7) == 3 && !(rex & 4)) {
		uintptr_t from = (code[2] & 7) | (rex & 1) << 3;

		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_cr3, CB_R_REGS, (void *)from);
	} else if (code[1] == 0x22 && (code[2] >> 3 & 7) == 4 && !(rex & 4)) {
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_cr4, CB_NO_REGS, NULL);
	} else if (code[1] == 0x01 && (code[2] >> 3 & 7) == 7 && code[2] >> 6 != 3) {
		at = decode(code + 2, len - 2, rex);
		if (at)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_invlpg, CB_R_REGS, (void *)at);
		else
			refuse("the kernel drops pages by a form of invlpg that the plugin does not read");
	}
}

static void translate(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);
	uintptr_t mode = qemu_plugin_tb_vaddr(tb) >> 63 ? KERNEL : USER;
	bool counted = tlb.armed && !tlb.refused;

	(void)id;
	if (counted) {
		/* First whose the block is, then its instructions. */
		qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_block, CB_R_REGS, COND_NE, entry_of(UNKNOWN), NOTHING, (void *)mode);
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD_U64, entry_of(mode), count);
	}
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t code[16] = { 0 };
		size_t len = qemu_plugin_insn_data(insn, code, sizeof(code));
		uint32_t word = (uint32_t)little_endian(code + 4);

		if (code[0] == 0x0f && code[1] == 0x1f && code[2] == 0x84 && !code[3] && (word & 0xffff0000u) == MARK)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, CB_R_REGS,
							       (void *)(uintptr_t)(word & 0xffff));
		if (!counted)
			continue;
		qemu_plugin_register_vcpu_mem_cb(insn, on_memory, CB_NO_REGS, MEM_RW, (void *)mode);
		if (mode == KERNEL)
			watch_system(insn, code, len);
	}
}

TLB_EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv);

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
	if (info->version.cur != TLB_API) {
		fprintf(stderr, "tlb plugin: this QEMU has plugin API %d, and the model was checked with %d (QEMU 10.0) alone\n",
			info->version.cur, TLB_API);
		return -1;
	}
	if (strcmp(info->target_name, "x86_64") || !info->system_emulation || info->system.smp_vcpus != 1) {
		fprintf(stderr, "tlb plugin: it models one processor of an x86_64 system\n");
		return -1;
	}
	if (!options_parse(&tlb.options, argc, argv))
		return -1;
	if (!model_init(&tlb.model, &tlb.options)) {
		fprintf(stderr, "tlb plugin: no memory for the model\n");
		return -1;
	}
	tlb.id = id;
	tlb.board = qemu_plugin_scoreboard_new(sizeof(uint64_t) * SLOTS);
	watch(id);
	return 0;
}
