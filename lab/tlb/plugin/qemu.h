/* SPDX-License-Identifier: GPL-2.0-only */
/* What the plugin uses of QEMU's public plugin API, version 4 (QEMU 10.0), and of glib, which QEMU loads. Debian
 * packages neither header for QEMU 10.0, so the declarations are ours. */
#ifndef TLB_QEMU_H
#define TLB_QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLB_EXPORT __attribute__((visibility("default")))
#define TLB_API 4

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_register;
struct qemu_plugin_scoreboard;

struct qemu_info {
	const char *target_name;
	struct {
		int min, cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus, max_vcpus;
	} system;
};

/* A slot of each processor's counters. */
struct qemu_plugin_u64 {
	struct qemu_plugin_scoreboard *board;
	size_t offset;
};

enum { CB_NO_REGS, CB_R_REGS };
enum { MEM_RW = 3 };
enum { INLINE_ADD_U64 };
enum { COND_NE = 3 };

struct bytes { /* GByteArray */
	uint8_t *data;
	unsigned int len;
};
struct array_of { /* GArray */
	char *data;
	unsigned int len;
};
struct register_of { /* qemu_plugin_reg_descriptor */
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
};

struct bytes *g_byte_array_sized_new(unsigned int size);
struct bytes *g_byte_array_set_size(struct bytes *array, unsigned int size);
char *g_array_free(struct array_of *array, int free_segment);

typedef void (*simple_cb)(uint64_t plugin);
typedef void (*exec_cb)(unsigned int cpu, void *data);
typedef void (*memory_cb)(unsigned int cpu, uint32_t info, uint64_t vaddr, void *data);

void qemu_plugin_reset(uint64_t plugin, simple_cb done);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, void (*cb)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(uint64_t plugin, void (*cb)(uint64_t, void *), void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, exec_cb cb, int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, memory_cb cb, int flags, int rw, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op, struct qemu_plugin_u64 entry,
						       uint64_t imm);
/* The callback is called at the start of the block where `entry` compares so with `imm`. */
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, exec_cb cb, int flags, int cond,
					       struct qemu_plugin_u64 entry, uint64_t imm, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t len);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *board, unsigned int cpu);
struct array_of *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, struct bytes *to);
bool qemu_plugin_read_memory_vaddr(uint64_t vaddr, struct bytes *to, size_t len);

#endif
