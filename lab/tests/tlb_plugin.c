// SPDX-License-Identifier: GPL-2.0-only
/* The whole plugin against a small made-up guest in place of QEMU: page tables in an array, registers in another, blocks
 * of one instruction. lab/tests/test_tlb_plugin.py builds it with the plugin's own files, and reads the records that it
 * writes.
 *
 *     tlb_plugin SCENARIO OPTION...        options as the plugin takes them
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu.h"

#define DIRECT 0xffff888000000000ull
#define DATA 0xffffffff81000000ull
#define PERCPU 0x4000ull /* base of GS, which current_task of the options is added to */
#define PRESENT 3ull
#define LARGE 0x83ull

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv);

static uint64_t memory[0x200000 / 8]; /* physical, from 0 on; the kernel's map has all of it in one large page */
static uint8_t data[0x10000];	      /* the kernel's own */
enum { CR3 = 16, CR4, GS_BASE, K_GS_BASE, REGISTERS };
static uint64_t registers[REGISTERS];
static const char *names[REGISTERS] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8",	"r9",
					"r10", "r11", "r12", "r13", "r14", "r15", "cr3", "cr4", "gs_base", "k_gs_base" };

struct qemu_plugin_insn {
	const uint8_t *code;
	size_t len;
	exec_cb exec;
	memory_cb access;
	int exec_flags, access_flags;
	void *exec_data, *access_data;
};
struct qemu_plugin_tb {
	uint64_t vaddr, executed, slot;
	exec_cb block;
	uint64_t block_slot, block_bound;
	int block_flags;
	void *block_data;
	struct qemu_plugin_insn insn;
};

static void (*translate)(uint64_t, struct qemu_plugin_tb *);
static void (*at_exit_cb)(uint64_t, void *);
static uint64_t board[3];
static bool counted, watched; /* accesses: of any instruction, and of the newest one */
static unsigned int reads; /* of memory */
static int may_read = CB_R_REGS; /* registers, in the callback that runs */

struct bytes *g_byte_array_sized_new(unsigned int size)
{
	struct bytes *array = calloc(1, sizeof(*array));

	array->data = malloc(size);
	return array;
}

struct bytes *g_byte_array_set_size(struct bytes *array, unsigned int size)
{
	array->len = size;
	return array;
}

char *g_array_free(struct array_of *array, int free_segment)
{
	(void)free_segment;
	free(array->data);
	free(array);
	return NULL;
}

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, void (*cb)(uint64_t, struct qemu_plugin_tb *))
{
	(void)plugin;
	translate = cb;
}

void qemu_plugin_register_atexit_cb(uint64_t plugin, void (*cb)(uint64_t, void *), void *unused)
{
	(void)plugin;
	(void)unused;
	at_exit_cb = cb;
}

void qemu_plugin_reset(uint64_t plugin, simple_cb done)
{
	translate = NULL;
	at_exit_cb = NULL;
	done(plugin);
}

void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, exec_cb cb, int flags, void *with)
{
	insn->exec_flags = flags;
	insn->exec = cb;
	insn->exec_data = with;
}

void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, memory_cb cb, int flags, int rw, void *with)
{
	insn->access_flags = flags;
	(void)rw;
	insn->access = cb;
	insn->access_data = with;
}

void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op, struct qemu_plugin_u64 entry,
						       uint64_t imm)
{
	(void)op;
	tb->slot = entry.offset / 8;
	tb->executed = imm;
}

void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, exec_cb cb, int flags, int cond,
					       struct qemu_plugin_u64 entry, uint64_t imm, void *with)
{
	if (cond != COND_NE)
		abort();
	tb->block = cb;
	tb->block_flags = flags;
	tb->block_slot = entry.offset / 8;
	tb->block_bound = imm;
	tb->block_data = with;
}

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb)
{
	(void)tb;
	return 1;
}

struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index)
{
	(void)index;
	return (struct qemu_plugin_insn *)&tb->insn;
}

uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb)
{
	return tb->vaddr;
}

size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t len)
{
	memcpy(to, insn->code, insn->len < len ? insn->len : len);
	return insn->len;
}

struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size)
{
	(void)size;
	return (struct qemu_plugin_scoreboard *)board;
}

void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *from, unsigned int cpu)
{
	(void)cpu;
	return from;
}

struct array_of *qemu_plugin_get_registers(void)
{
	struct array_of *all = malloc(sizeof(*all));
	struct register_of *one = calloc(REGISTERS, sizeof(*one));

	for (int i = 0; i < REGISTERS; i++)
		one[i] = (struct register_of){ (struct qemu_plugin_register *)&registers[i], names[i], "x86" };
	*all = (struct array_of){ (char *)one, REGISTERS };
	return all;
}

int qemu_plugin_read_register(struct qemu_plugin_register *handle, struct bytes *to)
{
	if (may_read != CB_R_REGS) {
		fprintf(stderr, "a register is read in a callback that may not\n");
		exit(4);
	}
	memcpy(to->data, handle, 8);
	to->len = 8;
	return 8;
}

bool qemu_plugin_read_memory_vaddr(uint64_t vaddr, struct bytes *to, size_t len)
{
	const uint8_t *from = NULL;

	if (vaddr >= DATA && vaddr - DATA + len <= sizeof(data))
		from = data + (vaddr - DATA);
	else if (vaddr >= DIRECT && vaddr - DIRECT + len <= sizeof(memory))
		from = (uint8_t *)memory + (vaddr - DIRECT);
	if (!from)
		return false;
	memcpy(to->data, from, len);
	to->len = len;
	reads++;
	return true;
}

static uint64_t *table(uint64_t at)
{
	return memory + at / 8;
}

/* Tables at 0x1000 for the user's memory below 4 MiB: base pages from 0 on, a large page from 2 MiB on. */
static void map(uint64_t root)
{
	table(root)[273] = 0x2000 | PRESENT;
	table(0x2000)[0] = 0x3000 | PRESENT;
	table(0x3000)[0] = LARGE;
	table(root)[0] = 0x4000 | PRESENT;
	table(0x4000)[0] = 0x5000 | PRESENT;
	table(0x5000)[0] = 0x6000 | PRESENT;
	table(0x5000)[1] = 0x400000 | LARGE;
	for (uint64_t i = 0; i < 16; i++)
		table(0x6000)[i] = 0x100000 + 4096 * i;
	for (uint64_t i = 4; i < 8; i++) /* contiguous, and not aligned */
		table(0x6000)[i] += 4096;
	for (uint64_t i = 0; i < 16; i++)
		table(0x6000)[i] |= PRESENT;
	table(0x6000)[9] &= ~2ull;   /* other rights */
	table(0x6000)[13] |= 0x60ull; /* used and written: no matter */
}

/* The kernel now has the space `number` at `root` as that of the task that runs, a thread of `name`. */
static void task(uint64_t number, const char *name, uint64_t root)
{
	/* current -> the task at 0x100: its mm at 0, its own name at 8, its leader at 24, its signals at 32. */
	uint64_t at = DATA + 0x100, mm = DATA + 0x200, leader = DATA + 0x300, signal = DATA + 0x400;
	uint64_t group = DATA + 0x500, pgd = DIRECT + root, id = 100 + number;

	memcpy(data + PERCPU + 0x10, &at, 8);
	memcpy(data + 0x100, &mm, 8);
	memcpy(data + 0x108, "thread", 7);
	memcpy(data + 0x118, &leader, 8);
	memcpy(data + 0x120, &signal, 8);
	/* The mm: context at 0, with the changes behind it, tables at 24. */
	memcpy(data + 0x200, &number, 8);
	memcpy(data + 0x218, &pgd, 8);
	/* The leader: its name at 8 as well, itself at 24, the same signals at 32. */
	memcpy(data + 0x318, &leader, 8);
	memcpy(data + 0x320, &signal, 8);
	memset(data + 0x308, 0, 16);
	memcpy(data + 0x308, name, strlen(name));
	memcpy(data + 0x410, &group, 8);
	memcpy(data + 0x508, &id, 8);
}

static void changes(uint64_t number)
{
	memcpy(data + 0x208, &number, 8);
}

static void run_block(const struct qemu_plugin_tb *tb)
{
	if (!tb->block || board[tb->block_slot] == tb->block_bound)
		return;
	may_read = tb->block_flags;
	tb->block(0, tb->block_data);
}

/* One instruction at `from`, with an access if `vaddr` is not 0. */
static void execute(uint64_t from, const uint8_t *code, size_t len, uint64_t vaddr)
{
	struct qemu_plugin_tb tb = { .vaddr = from, .insn = { .code = code, .len = len } };

	/* The kernel's base is in use in the kernel only. */
	registers[from >> 63 ? GS_BASE : K_GS_BASE] = DATA + PERCPU;
	registers[from >> 63 ? K_GS_BASE : GS_BASE] = 0x7f0000;
	translate(1, &tb);
	watched = tb.insn.access != NULL;
	counted |= watched;
	run_block(&tb);
	board[tb.slot] += tb.executed;
	may_read = tb.insn.exec_flags;
	if (tb.insn.exec)
		tb.insn.exec(0, tb.insn.exec_data);
	may_read = tb.insn.access_flags;
	if (tb.insn.access && vaddr)
		tb.insn.access(0, 0, vaddr, tb.insn.access_data);
	may_read = CB_NO_REGS;
}

#define USER_CODE 0x401000ull
#define KERNEL_CODE 0xffffffff81000000ull

static void mark(unsigned int command, unsigned int label)
{
	uint8_t code[8] = { 0x0f, 0x1f, 0x84, 0x00, label, command, 0x54, 0x4d };

	execute(USER_CODE, code, sizeof(code), 0);
}

static void touch(uint64_t from, uint64_t vaddr)
{
	static const uint8_t load[3] = { 0x48, 0x8b, 0x07 };

	execute(from, load, sizeof(load), vaddr);
}

static void load_cr3(uint64_t value)
{
	static const uint8_t code[4] = { 0x41, 0x0f, 0x22, 0xd8 }; /* mov %r8,%cr3 */

	registers[8] = value;
	execute(KERNEL_CODE, code, sizeof(code), 0);
	registers[CR3] = value;
}

static void invlpg(uint64_t vaddr)
{
	static const uint8_t code[5] = { 0x41, 0x0f, 0x01, 0x7d, 0x08 }; /* invlpg 8(%r13) */

	registers[13] = vaddr - 8;
	execute(KERNEL_CODE, code, sizeof(code), 0);
}

/* As the kernel does it: the tables first. */
static void switch_to(int pid, const char *name, uint64_t cr3)
{
	load_cr3(cr3);
	task(pid, name, cr3);
}

/* Another program runs meanwhile; then the first one's tables have had this many changes. */
static void away_and_back(uint64_t number)
{
	switch_to(2, "other", 0x7000);
	changes(0);
	touch(USER_CODE, 0x2000);
	switch_to(1, "first", 0x1000);
	changes(number);
}

static void scenario(const char *name)
{
	if (!strcmp(name, "sizes")) {
		for (uint64_t page = 1; page < 17; page++)
			touch(USER_CODE, page << 12);
		touch(USER_CODE, 0x200000);
		touch(USER_CODE, 0x3ff000);
		touch(KERNEL_CODE, DIRECT + 0x1000);
		touch(KERNEL_CODE, 0x1000);
	} else if (!strcmp(name, "windows")) {
		touch(USER_CODE, 0x1000);
		mark(2, 0);
		touch(USER_CODE, 0x2000);
		mark(3, 0);
		touch(USER_CODE, 0x3000);
	} else if (!strcmp(name, "flushes")) {
		touch(USER_CODE, 0x1000);
		touch(USER_CODE, 0x1000);
		invlpg(0x1000);
		touch(USER_CODE, 0x1000);
		invlpg(0x9000);
		touch(USER_CODE, 0x1000);
		load_cr3(0x1000);
		touch(USER_CODE, 0x1000);
		switch_to(2, "other", 0x7000);
		touch(USER_CODE, 0x1000);
		switch_to(1, "first", 0x1000);
		touch(USER_CODE, 0x1000);
		/* The same tables, another address space. */
		switch_to(3, "third", 0x7000);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "changed")) {
		touch(USER_CODE, 0x1000);
		away_and_back(5);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "kernel-first")) {
		/* The end of a read() writes to user memory before user code runs. */
		touch(USER_CODE, 0x1000);
		away_and_back(5);
		touch(KERNEL_CODE, 0x1000);
	} else if (!strcmp(name, "exec")) {
		/* The kernel goes over to the new space, and then gives the name. */
		task(2, "first", 0x7000);
		load_cr3(0x7000);
		touch(KERNEL_CODE, 0x1000);
		task(2, "other", 0x7000);
		touch(KERNEL_CODE, 0x2000);
		touch(USER_CODE, 0x3000);
	} else if (!strcmp(name, "before")) {
		/* Before the kernel has changed the running task. */
		touch(USER_CODE, 0x1000);
		load_cr3(0x7000);
		touch(KERNEL_CODE, DIRECT + 0x1000);
		task(2, "other", 0x7000);
		touch(KERNEL_CODE, 0x1000);
	} else if (!strcmp(name, "nobody")) {
		/* A task that ends frees its memory on the kernel's own tables, for long. */
		touch(USER_CODE, 0x1000);
		load_cr3(0x7000);
		for (int i = 0; i < 2000; i++)
			touch(KERNEL_CODE, DIRECT + 0x1000);
		reads = 0;
		for (int i = 0; i < 2000; i++)
			touch(KERNEL_CODE, DIRECT + 0x1000);
		if (reads)
			exit(5);
		/* Then somebody runs: first in the kernel, then in code of its own. */
		switch_to(2, "other", 0x1000);
		touch(KERNEL_CODE, 0x1000);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "own")) {
		touch(USER_CODE, 0x1000);
		changes(5);
		load_cr3(0x1000);
		touch(USER_CODE, 0x1000);
		away_and_back(5);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "own-page")) {
		touch(USER_CODE, 0x1000);
		changes(5);
		invlpg(0x1000);
		touch(USER_CODE, 0x1000);
		away_and_back(5);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "lazy")) {
		/* A kernel thread borrows the space, changes it and leaves it instead of flushing it. */
		touch(USER_CODE, 0x1000);
		changes(5);
		away_and_back(5);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "other-pgd")) {
		load_cr3(0x7000);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "no-name")) {
		switch_to(2, "", 0x7000);
		touch(USER_CODE, 0x1000);
		if (!watched)
			exit(6);
		/* It has refused, and costs nothing any more. */
		touch(USER_CODE, 0x1000);
		if (watched)
			exit(7);
	} else if (!strcmp(name, "no-text")) {
		switch_to(2, "a\x80", 0x7000);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "utf8-name")) {
		switch_to(2, "\xc3\xbc" "ber", 0x7000);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "no-leader") || !strcmp(name, "other-signals")) {
		/* What is at the leader's place, or at the signals', is something else. */
		uint64_t other = DATA + 0x600;

		switch_to(2, "other", 0x7000);
		memcpy(data + (!strcmp(name, "no-leader") ? 0x318 : 0x320), &other, 8);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "one-number")) {
		touch(USER_CODE, 0x1000);
		switch_to(1, "other", 0x7000);
		touch(USER_CODE, 0x1000);
	} else if (!strcmp(name, "new-number")) {
		touch(USER_CODE, 0x1000);
		task(9, "first", 0x1000);
		load_cr3(0x7000);
	}
}

int main(int argc, char **argv)
{
	struct qemu_info info = { "x86_64", { 2, TLB_API }, true, { 1, 1 } };
	const char *name = argc > 1 ? argv[1] : "";

	map(0x1000);
	map(0x7000);
	registers[CR3] = 0x1000;
	task(1, "first", 0x1000);
	if (!strcmp(name, "pcid"))
		registers[CR4] |= 1ull << 17;
	if (!strcmp(name, "la57"))
		registers[CR4] |= 1ull << 12;
	if (!strcmp(name, "names"))
		names[CR3] = "cr3_of_another_qemu";
	if (qemu_plugin_install(1, &info, argc - 2, argv + 2))
		return 2;
	touch(USER_CODE, 0x1000);
	if (counted)
		return 3;
	if (strcmp(name, "unarmed"))
		mark(1, 0);
	mark(2, 1);
	scenario(name);
	if (strcmp(name, "unended"))
		mark(3, 1);
	at_exit_cb(1, NULL);
	return 0;
}
