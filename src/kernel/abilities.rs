// SPDX-License-Identifier: GPL-2.0-only
//! What a kernel's type information says of the hook, and of what belongs to it.

use super::btf::{Kind, Type, Types};
use crate::model::abi::Flags;
use crate::model::reason::{ByReason, Reason};

/// The type libbpf knows a struct_ops map by.
pub const VALUE_TYPE: &str = "bpf_struct_ops_bpf_mthp_ops";

/// Names of the kernel's enums of the interface, and of the flag that the policies know.
const REASONS: &str = "bpf_mthp_reason";
const FLAGS: &str = "bpf_mthp_flags";
const ADVISED: &str = "BPF_MTHP_ADVISED";

/// Does the kernel have the hook?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hook {
    /// No.
    #[default]
    None,
    /// Yes, but it is called in another way than bpf/hook.h says: of another version of the series.
    Foreign,
    /// Yes.
    Known,
}

/// What the kernel's BTF says about the hook and what belongs to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// `struct bpf_mthp_ops` is a struct_ops type.
    pub hook: Hook,
    /// struct_ops links can be attached to cgroups.
    pub cgroup_links: bool,
    /// The PSI kfuncs exist.
    pub stall: bool,
    /// The memory controller's kfuncs exist, or the module's that counts a cgroup's own lists.
    pub memcg: bool,
    /// The memory controller's: they count page cache of cgroups below, too.
    pub page_state: bool,
    /// The kfuncs that tell what memory is left exist.
    pub room: bool,
    /// The reasons for which the kernel asks.
    pub reasons: ByReason<bool>,
}

impl Abilities {
    /// What these types say.
    pub fn of(btf: &Types) -> Self {
        let func = |name: &str| btf.find(Kind::Func, name).is_some();
        let page_state = func("bpf_get_mem_cgroup") && func("bpf_mem_cgroup_page_state");
        Abilities {
            hook: hook(btf),
            cgroup_links: btf.has_enumerator("BPF_F_CGROUP_FD"),
            // An earlier flush returned nothing; the policies must know whether it failed.
            stall: func("bpf_cgroup_stall") && returns(btf, "bpf_cgroup_flush_stats"),
            memcg: page_state || func("bpf_cgroup_anon_pages"),
            page_state,
            room: func("bpf_cgroup_cold_file_pages") && func("bpf_cgroup_spare_pages"),
            reasons: reasons(btf),
        }
    }
}

/// Is there a function of this name, and does it return something?
fn returns(btf: &Types, name: &str) -> bool {
    let proto = |func: Type<'_>| btf.of(func.refers()?, Kind::FuncProto);
    let returned = btf.find(Kind::Func, name).and_then(proto);
    returned
        .and_then(|proto| proto.refers())
        .is_some_and(|ty| ty != 0)
}

/// Offset in bytes and type of a member.
fn member(of: Type<'_>, name: &str) -> Option<(usize, u32)> {
    let member = of.member(name)?;
    Some((member.offset? / 8, member.ty))
}

/// Offset of `mthp_choose` in the value of a struct_ops map, and its type.
pub fn choose(btf: &Types) -> Option<(usize, u32)> {
    let (data, ty) = member(btf.find(Kind::Struct, VALUE_TYPE)?, "data")?;
    let (choose, ty) = member(btf.of(ty, Kind::Struct)?, "mthp_choose")?;
    Some((data + choose, ty))
}

/// Offset of `cgroup_id` in the value of a struct_ops map.
pub fn cgroup_member(btf: &Types) -> Option<usize> {
    let (data, ty) = member(btf.find(Kind::Struct, VALUE_TYPE)?, "data")?;
    Some(data + member(btf.of(ty, Kind::Struct)?, "cgroup_id")?.0)
}

/// Which hook is it?  One with more arguments, or more reasons, is known: programs pass by
/// what they do not know.  One whose arguments or numbers are others is not.
fn hook(btf: &Types) -> Hook {
    match choose(btf) {
        _ if btf.find(Kind::Struct, VALUE_TYPE).is_none() => Hook::None,
        Some((_, ty)) if is_called_as_known(btf, ty) == Some(true) => Hook::Known,
        _ => Hook::Foreign,
    }
}

/// Does what is called take what bpf/hook.h says?
fn is_called_as_known(btf: &Types, choose: u32) -> Option<bool> {
    let pointer = btf.of(choose, Kind::Ptr)?;
    let takes = btf.of(pointer.refers()?, Kind::FuncProto)?.parameters();
    let to_cgroup = |place: usize| {
        let pointer = btf.of(*takes.get(place)?, Kind::Ptr)?;
        // Only declared, it is no structure.
        Some(btf.any(pointer.refers()?).is("cgroup"))
    };
    let reason = btf.of(*takes.get(2)?, Kind::Enum)?;
    let flags = btf.find(Kind::Enum, FLAGS)?;
    let numbers = Reason::ALL
        .into_iter()
        .all(|r| reason.value(r.enumerator()).is_none_or(|n| n == r as i64));
    Some(
        takes.len() >= 5
            && to_cgroup(0)?
            && to_cgroup(1)?
            && reason.is(REASONS)
            && numbers
            && flags.value(ADVISED)? == i64::from(Flags::BPF_MTHP_ADVISED.0),
    )
}

/// The reasons for which the kernel asks, as far as they are known here.
fn reasons(btf: &Types) -> ByReason<bool> {
    let found = btf.find(Kind::Enum, REASONS);
    ByReason::new(|reason| found.is_some_and(|e| e.value(reason.enumerator()).is_some()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// A hook as bpf/hook.h has it.
    const KNOWN: &str = "
        enum bpf_mthp_reason {
            BPF_MTHP_FAULT = 1, BPF_MTHP_SWAPIN, BPF_MTHP_KHUGEPAGED, BPF_MTHP_COLLAPSE,
            BPF_MTHP_RECLAIM,
        };
        enum bpf_mthp_flags { BPF_MTHP_ADVISED = 1 };
        #define ARGUMENTS struct cgroup *, struct cgroup *, enum bpf_mthp_reason, \
            unsigned long long, unsigned long";

    /// The abilities of a kernel with these declarations: a compiler for BPF writes the BTF.
    fn abilities_with(declarations: &str) -> Abilities {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("kernel.c");
        let object = dir.path().join("kernel.o");
        let common = "
            struct bpf_mthp_ops { unsigned long (*mthp_choose)(ARGUMENTS); };
            struct bpf_struct_ops_bpf_mthp_ops { long common[8]; struct bpf_mthp_ops data; };
            struct bpf_struct_ops_bpf_mthp_ops value;
            enum bpf_mthp_flags flags;
            enum { BPF_F_CGROUP_FD = 128 } nameless;";
        std::fs::write(&source, format!("struct cgroup;{declarations}\n{common}\n")).unwrap();
        let status = Command::new(env!("CLANG_OF_THE_BUILD"))
            .args(["-target", "bpf", "-g", "-O2", "-c", "-o"])
            .args([&object, &source])
            .status()
            .expect("the compiler that made the policies");
        assert!(status.success());
        let types = dir.path().join("kernel.btf");
        std::fs::write(&types, type_information(&object)).unwrap();
        Abilities::of(&Types::read(&types).unwrap())
    }

    /// As the kernel serves it, without the object around.
    fn type_information(object: &Path) -> Vec<u8> {
        let path = std::ffi::CString::new(object.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the path ends with 0; what is read is freed after it was copied.
        unsafe {
            let btf = libbpf_sys::btf__parse(path.as_ptr(), std::ptr::null_mut());
            assert!(!btf.is_null());
            let mut len = 0;
            let raw = libbpf_sys::btf__raw_data(btf, &raw mut len);
            let bytes = std::slice::from_raw_parts(raw.cast::<u8>(), len as usize).to_vec();
            libbpf_sys::btf__free(btf);
            bytes
        }
    }

    #[test]
    fn the_hook_of_the_header_is_known() {
        let abilities = abilities_with(KNOWN);
        assert_eq!(abilities.hook, Hook::Known);
        assert_eq!(abilities.reasons, ByReason::each(true));
        assert!(abilities.cgroup_links);
        assert!(!abilities.stall);
    }

    #[test]
    fn a_later_hook_may_have_more_of_everything() {
        let mut later = KNOWN.to_owned();
        for (old, new) in [
            ("BPF_MTHP_RECLAIM,", "BPF_MTHP_RECLAIM, BPF_MTHP_LATER,"),
            ("long long, unsigned long", "long long, unsigned long, int"),
            ("ADVISED = 1", "ADVISED = 1, BPF_MTHP_OTHER = 2"),
        ] {
            let more = later.replace(old, new);
            assert_ne!(more, later, "{old}");
            assert_eq!(abilities_with(&more).hook, Hook::Known, "{new}");
            later = more;
        }
    }

    /// The first version of the kfuncs could not say that pressure is not tracked.
    #[test]
    fn a_flush_that_returns_nothing_is_not_the_one_that_is_known() {
        let stall = |flush: &str| {
            let kfuncs = format!(
                "__attribute__((used)) {flush}
                __attribute__((used)) unsigned long bpf_cgroup_stall(void) {{ return 1; }}"
            );
            abilities_with(&format!("{KNOWN}\n{kfuncs}")).stall
        };
        assert!(stall("int bpf_cgroup_flush_stats(void) { return 0; }"));
        assert!(!stall("void bpf_cgroup_flush_stats(void) { }"));
        assert!(!stall("int bpf_another(void) { return 0; }"));
    }

    #[test]
    fn what_memory_is_left_takes_both_kfuncs() {
        let kfunc = |name: &str| {
            format!("__attribute__((used)) unsigned long {name}(void) {{ return 1; }}\n")
        };
        let room = |kfuncs: &str| abilities_with(&format!("{KNOWN}\n{kfuncs}")).room;
        let cold = kfunc("bpf_cgroup_cold_file_pages");
        let spare = kfunc("bpf_cgroup_spare_pages");
        assert!(room(&format!("{cold}{spare}")));
        assert!(!room(&cold));
        assert!(!room(&spare));
    }

    #[test]
    fn a_reason_may_be_missing() {
        let fewer = KNOWN.replace("BPF_MTHP_SWAPIN,", "BPF_MTHP_KHUGEPAGED = 3,");
        let fewer = fewer.replacen(" BPF_MTHP_KHUGEPAGED, ", " ", 1);
        let abilities = abilities_with(&fewer);
        assert_eq!(abilities.hook, Hook::Known);
        assert_eq!(
            abilities.reasons,
            ByReason::new(|reason| reason != Reason::Swapin)
        );
    }

    #[test]
    fn a_hook_that_is_called_in_another_way_is_not_known() {
        let first_version = "
            enum tva_type { TVA_SMAPS, TVA_PAGEFAULT };
            enum bpf_mthp_flags { NONE };
            #define ARGUMENTS struct cgroup *, enum tva_type, unsigned long, unsigned long";
        let without_attached = KNOWN.replacen("struct cgroup *,", "", 1);
        let without_orders = KNOWN.replace(", unsigned long long, unsigned long", ", long");
        let renumbered = KNOWN.replace("FAULT = 1", "FAULT = 2");
        let other_flag = KNOWN.replace("ADVISED = 1", "ADVISED = 2");
        for other in [
            first_version,
            &without_attached,
            &without_orders,
            &renumbered,
            &other_flag,
        ] {
            assert_ne!(other, KNOWN);
            assert_eq!(abilities_with(other).hook, Hook::Foreign, "{other}");
        }
    }

    #[test]
    fn a_kernel_without_the_type_has_no_hook() {
        let none = abilities_with(&format!(
            "{KNOWN}\n#define bpf_struct_ops_bpf_mthp_ops bpf_struct_ops_another"
        ));
        assert_eq!(none.hook, Hook::None);
    }
}
