// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes the type information (BTF) of the module, and a header with its ids, from that of the
 * kernel the module is built for.
 *
 *	mkbtf VMLINUX OUT.btf OUT.h
 *
 * VMLINUX is raw BTF, such as /sys/kernel/btf/vmlinux, or an ELF file with a section .BTF.
 *
 * pahole would do it from debugging information. On some kernels what it writes has a struct
 * cgroup of its own beside the kernel's, and no policy can be loaded.
 */
#include <elf.h>
#include <linux/btf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION "__thp_vma_allowable_orders"

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list args;

	fputs("mkbtf: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static void *need(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

/* What has been written so far; also a file that was read. */
struct buffer {
	char *data;
	size_t len;
};

static void append(struct buffer *b, const void *data, size_t len)
{
	b->data = need(realloc(b->data, b->len + len));
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

static void word(struct buffer *b, __u32 value)
{
	append(b, &value, sizeof(value));
}

static struct buffer read_file(const char *path)
{
	struct buffer b = {};
	char part[1 << 16];
	FILE *f = fopen(path, "rb");
	size_t len;

	if (!f)
		die("%s: cannot be opened", path);
	while ((len = fread(part, 1, sizeof(part), f)))
		append(&b, part, len);
	if (ferror(f))
		die("%s: cannot be read", path);
	fclose(f);
	return b;
}

/* The section .BTF of a 64-bit ELF file; raw BTF as it is. */
static struct buffer btf_of(struct buffer file, const char *path)
{
	const Elf64_Ehdr *elf = (void *)file.data;
	const Elf64_Shdr *sections, *names;
	struct buffer found;
	unsigned int i;

	if (file.len < sizeof(*elf) || memcmp(elf->e_ident, ELFMAG, SELFMAG))
		return file;
	if (elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_shentsize != sizeof(*sections) ||
	    elf->e_shoff > file.len ||
	    (file.len - elf->e_shoff) / sizeof(*sections) < elf->e_shnum ||
	    elf->e_shstrndx >= elf->e_shnum)
		die("%s: not an ELF file of this machine", path);
	sections = (void *)(file.data + elf->e_shoff);
	names = &sections[elf->e_shstrndx];
	for (i = 0; i < elf->e_shnum; i++) {
		const Elf64_Shdr *s = &sections[i];

		if (names->sh_offset + s->sh_name + sizeof(".BTF") > file.len ||
		    strcmp(file.data + names->sh_offset + s->sh_name, ".BTF"))
			continue;
		if (s->sh_offset > file.len || file.len - s->sh_offset < s->sh_size)
			break;
		found.data = file.data + s->sh_offset;
		found.len = s->sh_size;
		return found;
	}
	die("%s: has no type information (section .BTF)", path);
}

/* The kernel's types, by id. */
static const struct btf_type **types;
static __u32 nr_types = 1;
static const char *strings;
static __u32 strings_len;

static __u32 kind(const struct btf_type *t)
{
	return t->info >> 24 & 0x7f;
}

static __u32 vlen(const struct btf_type *t)
{
	return t->info & 0xffffff;
}

static const char *name(const struct btf_type *t)
{
	return t->name_off < strings_len ? strings + t->name_off : "";
}

/* Bytes behind the struct btf_type itself. */
static size_t rest(const struct btf_type *t)
{
	switch (kind(t)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return vlen(t) * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return vlen(t) * sizeof(struct btf_enum);
	case BTF_KIND_ENUM64:
	case BTF_KIND_DATASEC:
		return vlen(t) * 12;
	case BTF_KIND_FUNC_PROTO:
		return vlen(t) * sizeof(struct btf_param);
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	}
	die("the kernel's BTF has a kind of types that is not known here: %u", kind(t));
}

static void read_types(struct buffer btf, const char *path)
{
	const struct btf_header *h = (void *)btf.data;
	const char *at, *end;

	if (btf.len < 24 || h->magic != BTF_MAGIC || h->hdr_len < 24 || h->hdr_len > btf.len)
		die("%s: is no BTF", path);
	btf.data += h->hdr_len;
	btf.len -= h->hdr_len;
	if (h->type_off > btf.len || btf.len - h->type_off < h->type_len || h->str_off > btf.len ||
	    btf.len - h->str_off < h->str_len || !h->str_len ||
	    btf.data[h->str_off + h->str_len - 1])
		die("%s: the BTF is cut off", path);
	strings = btf.data + h->str_off;
	strings_len = h->str_len;
	types = need(calloc(h->type_len / sizeof(struct btf_type) + 1, sizeof(*types)));
	at = btf.data + h->type_off;
	for (end = at + h->type_len; at < end; nr_types++) {
		const struct btf_type *t = (void *)at;

		if ((size_t)(end - at) < sizeof(*t) || (size_t)(end - at) < sizeof(*t) + rest(t))
			die("%s: the BTF is cut off", path);
		types[nr_types] = t;
		at += sizeof(*t) + rest(t);
	}
}

static __u32 find(__u32 of_kind, const char *called)
{
	__u32 id;

	for (id = 1; id < nr_types; id++)
		if (kind(types[id]) == of_kind && !strcmp(name(types[id]), called))
			return id;
	return 0;
}

static __u32 require(__u32 of_kind, const char *called)
{
	__u32 id = find(of_kind, called);

	if (!id)
		die("the kernel's BTF has no %s", called);
	return id;
}

/* What a typedef, or several, stand for. */
static const struct btf_type *plain(__u32 id)
{
	while (id && id < nr_types && kind(types[id]) == BTF_KIND_TYPEDEF)
		id = types[id]->type;
	if (!id || id >= nr_types)
		return NULL;
	return types[id];
}

static int is_word(__u32 id)
{
	const struct btf_type *t = plain(id);

	return t && kind(t) == BTF_KIND_INT && t->size == sizeof(__u64);
}

/* The questions that are known. One that is new may be what swap-in asks, or anything. */
static int is_known_tva(const struct btf_type *t)
{
	static const char * const names[] = {
		"TVA_SMAPS", "TVA_PAGEFAULT", "TVA_KHUGEPAGED", "TVA_FORCED_COLLAPSE",
	};
	const struct btf_enum *e = (void *)(t + 1);
	__u32 i;

	if (kind(t) != BTF_KIND_ENUM || strcmp(name(t), "tva_type") || vlen(t) != 4)
		return 0;
	for (i = 0; i < vlen(t); i++)
		if (e[i].val != (__s32)i || e[i].name_off >= strings_len ||
		    strcmp(strings + e[i].name_off, names[i]))
			return 0;
	return 1;
}

/* Which of the forms that are known has the function? 1: flags, 2: enum tva_type. */
static int form_of_function(void)
{
	const struct btf_type *proto = plain(types[require(BTF_KIND_FUNC, FUNCTION)]->type);
	const struct btf_param *p = (void *)(proto + 1);
	const struct btf_type *vma, *tva;

	if (!proto || kind(proto) != BTF_KIND_FUNC_PROTO || vlen(proto) != 4 ||
	    !is_word(proto->type) || !is_word(p[1].type) || !is_word(p[3].type))
		return 0;
	vma = plain(p[0].type);
	if (!vma || kind(vma) != BTF_KIND_PTR)
		return 0;
	vma = plain(vma->type);
	if (!vma || strcmp(name(vma), "vm_area_struct"))
		return 0;
	if (is_word(p[2].type))
		return p[2].name_off < strings_len &&
		       !strcmp(strings + p[2].name_off, "tva_flags");
	tva = plain(p[2].type);
	return tva && is_known_tva(tva) ? 2 : 0;
}

/* The module's own types, and their names. Ids and offsets go on where the kernel's end. */
static struct buffer out_types, out_strings;
static __u32 nr_out;

static __u32 string(const char *text)
{
	__u32 at = strings_len + out_strings.len;

	append(&out_strings, text, strlen(text) + 1);
	return at;
}

static __u32 type(__u32 of_kind, const char *called, __u32 elements, __u32 size_or_type)
{
	word(&out_types, *called ? string(called) : 0);
	word(&out_types, of_kind << 24 | elements);
	word(&out_types, size_or_type);
	return nr_types + nr_out++;
}

static __u32 pointer(__u32 to)
{
	return type(BTF_KIND_PTR, "", 0, to);
}

static void member(const char *called, __u32 of_type, __u32 offset)
{
	word(&out_types, string(called));
	word(&out_types, of_type);
	word(&out_types, offset * 8);
}

static void pair(const char *called, __u32 value)
{
	word(&out_types, string(called));
	word(&out_types, value);
}

static void write_file(const char *path, struct buffer *parts, int nr)
{
	FILE *f = fopen(path, "wb");
	int i;

	if (!f)
		die("%s: cannot be made", path);
	for (i = 0; i < nr; i++)
		fwrite(parts[i].data, 1, parts[i].len, f);
	if (ferror(f) | fclose(f))
		die("%s: cannot be written", path);
}

int main(int argc, char **argv)
{
	__u32 word_t, u64_t, s64_t, u32_t, s32_t, bool_t, common, cgroup, total;
	__u32 reason, flags, proto, choose, ops, ids[5];
	struct btf_header h = { .magic = BTF_MAGIC, .version = BTF_VERSION, .hdr_len = 24 };
	struct buffer btf[3], header;
	char text[256];
	int form, i;

	if (argc != 4)
		die("usage: mkbtf VMLINUX OUT.btf OUT.h");
	read_types(btf_of(read_file(argv[1]), argv[1]), argv[1]);
	if (find(BTF_KIND_STRUCT, "bpf_mthp_ops"))
		die("this kernel has the hook itself: it needs no module");
	form = form_of_function();
	if (!form)
		die("this kernel has another %s() than is known here: a later module may know it",
		    FUNCTION);

	word_t = find(BTF_KIND_INT, "long unsigned int");
	if (!word_t)
		word_t = require(BTF_KIND_INT, "unsigned long");
	bool_t = find(BTF_KIND_TYPEDEF, "bool");
	if (!bool_t)
		bool_t = require(BTF_KIND_INT, "_Bool");
	u64_t = require(BTF_KIND_TYPEDEF, "u64");
	s64_t = require(BTF_KIND_TYPEDEF, "s64");
	u32_t = require(BTF_KIND_TYPEDEF, "u32");
	s32_t = require(BTF_KIND_INT, "int");
	common = require(BTF_KIND_STRUCT, "bpf_struct_ops_common_value");
	cgroup = pointer(require(BTF_KIND_STRUCT, "cgroup"));

	reason = type(BTF_KIND_ENUM, "bpf_mthp_reason", 4, 4);
	pair("BPF_MTHP_FAULT", 1);
	pair("BPF_MTHP_SWAPIN", 2);
	pair("BPF_MTHP_KHUGEPAGED", 3);
	pair("BPF_MTHP_COLLAPSE", 4);
	flags = type(BTF_KIND_ENUM, "bpf_mthp_flags", 1, 4);
	pair("BPF_MTHP_ADVISED", 1);
	(void)flags;

	proto = type(BTF_KIND_FUNC_PROTO, "", 5, word_t);
	pair("cgrp", cgroup);
	pair("attached", cgroup);
	pair("reason", reason);
	pair("flags", u64_t);
	pair("orders", word_t);
	/* The stub that the kernel takes the arguments' names from. */
	type(BTF_KIND_FUNC, "mthp_choose_stub", 0, proto);
	choose = pointer(proto);
	ops = type(BTF_KIND_STRUCT, "bpf_mthp_ops", 3, 24);
	member("mthp_choose", choose, 0);
	member("cgroup_id", u64_t, 8);
	member("procs_fd", s32_t, 16);
	type(BTF_KIND_STRUCT, "bpf_struct_ops_bpf_mthp_ops", 2, 128);
	member("common", common, 0);
	member("data", ops, 64);

	proto = type(BTF_KIND_FUNC_PROTO, "", 1, s32_t);
	pair("cgrp", cgroup);
	ids[0] = type(BTF_KIND_FUNC, "bpf_cgroup_flush_stats", 0, proto);
	proto = type(BTF_KIND_FUNC_PROTO, "", 2, u64_t);
	pair("cgrp", cgroup);
	pair("state", u32_t);
	ids[1] = type(BTF_KIND_FUNC, "bpf_cgroup_stall", 0, proto);
	proto = type(BTF_KIND_FUNC_PROTO, "", 1, u64_t);
	pair("cgrp", cgroup);
	ids[2] = type(BTF_KIND_FUNC, "bpf_cgroup_cold_file_pages", 0, proto);
	ids[3] = type(BTF_KIND_FUNC, "bpf_cgroup_anon_pages", 0, proto);
	total = pointer(u64_t);
	proto = type(BTF_KIND_FUNC_PROTO, "", 3, s64_t);
	pair("cgrp", cgroup);
	pair("by_nodes", bool_t);
	pair("total", total);
	ids[4] = type(BTF_KIND_FUNC, "bpf_cgroup_spare_pages", 0, proto);

	h.type_len = out_types.len;
	h.str_off = out_types.len;
	h.str_len = out_strings.len;
	btf[0].data = (char *)&h;
	btf[0].len = h.hdr_len;
	btf[1] = out_types;
	btf[2] = out_strings;
	write_file(argv[2], btf, 3);

	header.data = text;
	header.len = snprintf(text, sizeof(text),
			      "#define MTHP_TVA_FORM %d\n#define MTHP_KFUNC_IDS", form);
	for (i = 0; i < 5; i++)
		header.len += snprintf(text + header.len, sizeof(text) - header.len, "%s %u",
				       i ? "," : "", ids[i]);
	header.len += snprintf(text + header.len, sizeof(text) - header.len, "\n");
	write_file(argv[3], &header, 1);
	return 0;
}
