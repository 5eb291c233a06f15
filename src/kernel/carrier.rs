// SPDX-License-Identifier: GPL-2.0-only
//! What carries the hook into the kernel, probed once.
//!
//! The hook has one contract and two carriers: the kernel series, and a module
//! for stock kernels (module/), whose links have no cgroup target.  Everything in
//! which they differ belongs here, but what they lack (lacks.rs): where the type lives in BTF, how the value of
//! a struct_ops map is laid out, and how a link gets to its cgroup.
//!
//! A third one, such as struct_ops links to cgroups in a form of Linux' own, takes
//! a variant of [`By`]: what [`Carrier::probe`] knows it by, and arms in
//! [`Carrier::fill`], [`Carrier::attach`], [`Carrier::cgroup_of`] and [`bound`].

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::errno::Errno;

use super::btf::{Kind, Type, Types};
use super::cgroup::{self, Cgroup};
use super::links::LinkInfo;
use super::process::release;
use super::split;
use crate::errors::{Error, Result};
use crate::model::abi::Flags;
use crate::model::reason::{ByReason, Reason};
use crate::model::shown;

/// The kernel's type information.
pub const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The struct of the hook.
pub const OPS: &str = "bpf_mthp_ops";

/// The type libbpf knows a struct_ops map by.
const VALUE_TYPE: &str = "bpf_struct_ops_bpf_mthp_ops";

/// `BPF_F_CGROUP_FD`: target_fd of a struct_ops link is a cgroup.
const BPF_F_CGROUP_FD: u32 = 1 << 7;

/// Names of the kernel's enums of the interface, and of the flag that the policies know.
const REASONS: &str = "bpf_mthp_reason";
const FLAGS: &str = "bpf_mthp_flags";
const ADVISED: &str = "BPF_MTHP_ADVISED";

/// The module's name, and what it shows of itself.
const MODULE: &str = "mthp_hook";
const MODULE_BTF: &str = "/sys/kernel/btf/mthp_hook";
const MODULE_SYSFS: &str = "/sys/module/mthp_hook";

/// Where the module's ops have the id of their cgroup, in the value of a struct_ops map.
const MODULE_CGROUP: usize = 72;

/// Who carries the hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The kernel, with the series.
    #[default]
    Series,
    /// The module, on a kernel without it.
    Module,
}

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

/// The running kernel's carrier of the hook.
pub struct Carrier {
    btf: Types,
    /// Which one it is.
    pub by: By,
    /// What it offers.
    pub abilities: Abilities,
}

impl Carrier {
    /// Reads the kernel's BTF; changes nothing.
    ///
    /// # Errors
    /// [`Error::NoBtf`] if there is none, or a failed system call.
    pub fn probe() -> Result<Self> {
        let kernel = Self::probe_in(Path::new(VMLINUX_BTF))?;
        let module = Path::new(MODULE_BTF);
        if kernel.abilities.hook != Hook::None
            || !module.try_exists().map_err(|e| Error::reading(module, e))?
        {
            return Ok(kernel);
        }
        let joined = split::joined(Path::new(VMLINUX_BTF), Path::new(MODULE_BTF))
            .map_err(|source| no_btf(Path::new(MODULE_BTF), source))?;
        let path = format!("/proc/self/fd/{}", joined.as_raw_fd());
        let mut module = Self::probe_in(Path::new(&path))?;
        if module.abilities.hook == Hook::None {
            // Another module of that name.
            return Ok(kernel);
        }
        module.by = By::Module;
        let abilities = &mut module.abilities;
        if abilities.hook == Hook::Known && cgroup_member(&module.btf) != Some(MODULE_CGROUP) {
            abilities.hook = Hook::Foreign;
        }
        abilities.cgroup_links = true;
        if parameter("swapin").as_deref() == Some("N") {
            abilities.reasons[Reason::Swapin] = false;
        }
        Ok(module)
    }

    fn probe_in(path: &Path) -> Result<Self> {
        let btf = Types::read(path).map_err(|source| no_btf(path, source))?;
        let func = |name: &str| btf.find(Kind::Func, name).is_some();
        let page_state = func("bpf_get_mem_cgroup") && func("bpf_mem_cgroup_page_state");
        let abilities = Abilities {
            hook: hook(&btf),
            cgroup_links: btf.has_enumerator("BPF_F_CGROUP_FD"),
            // An earlier flush returned nothing; the policies must know whether it failed.
            stall: func("bpf_cgroup_stall") && returns(&btf, "bpf_cgroup_flush_stats"),
            memcg: page_state || func("bpf_cgroup_anon_pages"),
            page_state,
            room: func("bpf_cgroup_cold_file_pages") && func("bpf_cgroup_spare_pages"),
            reasons: reasons(&btf),
        };
        Ok(Carrier {
            btf,
            by: By::Series,
            abilities,
        })
    }

    /// Which carrier it is, and of which version, for people.
    pub fn name(&self) -> String {
        match (self.by, self.abilities.hook) {
            (_, Hook::None) => "none".to_owned(),
            (By::Series, _) => "kernel".to_owned(),
            (By::Module, _) => {
                let version = attribute("version").unwrap_or_default();
                format!("module {MODULE} {version}").trim_end().to_owned()
            }
        }
    }

    /// Has the kernel the hook that the policies are made for?
    ///
    /// # Errors
    /// [`Error::NoHook`] or [`Error::ForeignHook`] if not.
    pub fn require_hook(&self) -> Result<()> {
        match self.abilities.hook {
            Hook::Known => Ok(()),
            Hook::None => Err(Error::NoHook { release: release() }),
            Hook::Foreign => Err(Error::ForeignHook { release: release() }),
        }
    }

    /// Does the kernel ask at reclaim, so that what was given can be taken back?
    pub fn takes_back(&self) -> bool {
        self.abilities.reasons[Reason::Reclaim]
    }

    /// Offset of the program's place in the value of a struct_ops map.
    ///
    /// # Errors
    /// Those of [`Self::require_hook`].
    pub fn program_offset(&self) -> Result<usize> {
        self.require_hook()?;
        let place = choose(&self.btf).ok_or_else(|| Error::NoHook { release: release() })?;
        Ok(place.0)
    }

    /// Type id of the value of a struct_ops map with this hook's ops.
    fn value_type_id(&self) -> Result<u32> {
        let value = self.btf.find(Kind::Struct, VALUE_TYPE);
        let value = value.ok_or_else(|| Error::NoHook { release: release() })?;
        Ok(value.id)
    }

    /// Is it a map of this hook's ops?
    ///
    /// # Errors
    /// [`Error::NoHook`] if the kernel does not know the type.
    pub fn is_ops(&self, info: &libbpf_sys::bpf_map_info) -> Result<bool> {
        let same = info.btf_vmlinux_value_type_id == self.value_type_id()?;
        // Types of two modules can have the same id.
        let owner = || self.by == By::Series || btf_is(info.btf_vmlinux_id, MODULE);
        Ok(same && owner())
    }

    /// Gives the kernel the ops: one update of element 0 of the struct_ops map.
    ///
    /// # Errors
    /// Those of [`Self::require_hook`], [`Error::NotWritable`], or what the kernel refuses.
    pub fn fill(
        &self,
        ops: &impl MapCore,
        program: BorrowedFd<'_>,
        root: &Cgroup,
    ) -> Result<libbpf_rs::Result<()>> {
        let mut value = vec![0; ops.value_size() as usize];
        let short = || Error::NoHook { release: release() };
        let at = self.program_offset()?;
        // A descriptor is as long as the pointer that the kernel puts there.
        let fd = u64::try_from(program.as_raw_fd()).unwrap_or_default();
        put(&mut value, at, &fd.to_ne_bytes()).ok_or_else(short)?;
        let key = 0u32.to_ne_bytes();
        if self.by == By::Series {
            return Ok(ops.update(&key, &value, MapFlags::ANY));
        }
        // Who may open it may attach: a link to a cgroup asks for the same right.
        let procs = root.path.join("cgroup.procs");
        let procs = OpenOptions::new()
            .write(true)
            .open(procs)
            .map_err(|source| refused(errno_of(&source), &root.path))?;
        put(&mut value, MODULE_CGROUP, &root.id.to_ne_bytes()).ok_or_else(short)?;
        put(
            &mut value,
            MODULE_CGROUP + 8,
            &procs.as_raw_fd().to_ne_bytes(),
        )
        .ok_or_else(short)?;
        Ok(ops.update(&key, &value, MapFlags::ANY))
    }

    /// The cgroup of a link whose ops are `value`; 0 if there is none, or it is gone.
    pub fn cgroup_of(&self, link: &LinkInfo, value: &[u8]) -> u64 {
        match self.by {
            By::Series => link.cgroup_id,
            By::Module => cgroup_in(value),
        }
    }

    /// Makes the link that puts a struct_ops map to work on a cgroup.  The
    /// policy is gone when the last descriptor of the link is closed.
    ///
    /// # Errors
    /// [`Error::AlreadyAttached`], [`Error::NoPrivilege`], [`Error::NotWritable`],
    /// [`Error::NoMemoryController`], or [`Error::System`].
    pub fn attach(
        &self,
        map: BorrowedFd<'_>,
        cgroup: BorrowedFd<'_>,
        at: &Path,
    ) -> Result<OwnedFd> {
        // The module's ops name their cgroup themselves.
        let (flags, target) = match self.by {
            By::Series => (BPF_F_CGROUP_FD, cgroup.as_raw_fd()),
            By::Module => (0, 0),
        };
        let opts = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags,
            ..Default::default()
        };
        // SAFETY: both descriptors are open, and the options live through the call.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(
                map.as_raw_fd(),
                target,
                libbpf_sys::BPF_STRUCT_OPS,
                &raw const opts,
            )
        };
        if fd >= 0 {
            // SAFETY: the kernel has just made it, and nobody else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Err(refused(Errno::from_raw(-fd), at))
    }
}

/// Puts another map into the place of the one that a link has, at once.  The cgroup, its id and
/// that of the link stay.
///
/// # Errors
/// Those of [`Carrier::attach`].
pub fn update(link: BorrowedFd<'_>, map: BorrowedFd<'_>, at: &Path) -> Result<()> {
    // SAFETY: both descriptors are open; without options there are none to read.  A map is
    // passed where programs are for other types of links.
    let ret =
        unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), map.as_raw_fd(), std::ptr::null()) };
    match ret {
        0 => Ok(()),
        _ => Err(refused(Errno::from_raw(-ret), at)),
    }
}

/// The link with its cgroup, where the kernel does not show it: the module's ops have its id.
/// Of a link that this program has pinned.
///
/// # Errors
/// If its map cannot be read.
pub fn bound(link: LinkInfo) -> io::Result<LinkInfo> {
    if link.cgroup_id != 0 || link.map_id == 0 {
        return Ok(link);
    }
    let read = || {
        let map = MapHandle::from_map_id(link.map_id)?;
        map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
    };
    let value = read().map_err(|e| io::Error::other(e.to_string()))?;
    Ok(LinkInfo {
        cgroup_id: cgroup_in(&value.unwrap_or_default()),
        ..link
    })
}

/// The id of the cgroup in the module's ops.
fn cgroup_in(value: &[u8]) -> u64 {
    let id = value.get(MODULE_CGROUP..MODULE_CGROUP + 8);
    id.and_then(|id| id.try_into().ok())
        .map_or(0, u64::from_ne_bytes)
}

fn put(value: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    value.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
    Some(())
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

/// What the module shows of itself in sysfs.
fn attribute(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(Path::new(MODULE_SYSFS).join(name)).ok()?;
    Some(text.trim_end().to_owned())
}

fn parameter(name: &str) -> Option<String> {
    attribute(&format!("parameters/{name}"))
}

/// Is the BTF of this id that of a module?  Without the privilege to look nobody else's is at hand.
fn btf_is(id: u32, module: &str) -> bool {
    // SAFETY: takes a number, returns a descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_btf_get_fd_by_id(id) };
    if fd < 0 {
        return -fd == Errno::EPERM as i32;
    }
    // SAFETY: the kernel has just made it, and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut name = [0u8; 64];
    let mut info = libbpf_sys::bpf_btf_info {
        name: name.as_mut_ptr() as u64,
        name_len: name.len() as u32,
        ..Default::default()
    };
    let mut len = size_of::<libbpf_sys::bpf_btf_info>() as u32;
    // SAFETY: the buffers are as long as is said, and live through the call.
    let ret = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &raw mut len)
    };
    ret == 0 && name.split(|&b| b == 0).next() == Some(module.as_bytes())
}

/// The kernel has none that this program knows, or what there is cannot be read.
fn no_btf(path: &Path, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Error::NoBtf {
            path: path.to_owned(),
            source,
        },
        _ => Error::reading(path, source),
    }
}

/// Why the kernel makes no link to a cgroup.
fn refused(errno: Errno, at: &Path) -> Error {
    let source = io::Error::from(errno);
    let path = at.to_owned();
    match errno {
        Errno::EEXIST => Error::AlreadyAttached { path },
        Errno::EPERM => Error::NoPrivilege {
            what: "attach a policy".to_owned(),
        },
        Errno::EACCES | Errno::EROFS => Error::NotWritable { path },
        Errno::ENODEV | Errno::EOPNOTSUPP => Error::NoMemoryController {
            path,
            why: format!("the kernel refused: {source}"),
            remedy: cgroup::ENABLE_MEMORY.to_owned(),
        },
        // Only the module's: it hooks by ftrace.
        Errno::EBUSY => Error::System {
            what: format!(
                "attaching the policy to {} (is kernel.ftrace_enabled 0?)",
                shown::path(at)
            ),
            source,
        },
        _ => Error::System {
            what: format!("attaching the policy to {}", shown::path(at)),
            source,
        },
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
fn choose(btf: &Types) -> Option<(usize, u32)> {
    let (data, ty) = member(btf.find(Kind::Struct, VALUE_TYPE)?, "data")?;
    let (choose, ty) = member(btf.of(ty, Kind::Struct)?, "mthp_choose")?;
    Some((data + choose, ty))
}

/// Offset of `cgroup_id` in the value of a struct_ops map.
fn cgroup_member(btf: &Types) -> Option<usize> {
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

/// Detaches a link, even if another process holds it.  A link whose cgroup is
/// gone has nothing left to detach.
pub fn detach(link: &impl AsFd) {
    // SAFETY: the descriptor is open.  The result does not matter: closing the
    // descriptor, which the caller does next, has the same effect.
    let _ = unsafe { libbpf_sys::bpf_link_detach(link.as_fd().as_raw_fd()) };
}

#[cfg(test)]
mod tests {
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
        Carrier::probe_in(&types).unwrap().abilities
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
    fn each_refusal_has_its_own_error() {
        let code = |errno| refused(errno, Path::new("/sys/fs/cgroup/a")).code();
        assert_eq!(code(Errno::EEXIST), 8);
        assert_eq!(code(Errno::EPERM), 4);
        assert_eq!(code(Errno::ENODEV), 7);
        assert_eq!(code(Errno::EOPNOTSUPP), 7);
        assert_eq!(code(Errno::EBUSY), 1);
        for errno in [Errno::EACCES, Errno::EROFS] {
            let error = refused(errno, Path::new("/sys/fs/cgroup/a"));
            assert_eq!(error.code(), 4);
            let text = error.to_string();
            assert!(
                text.starts_with("/sys/fs/cgroup/a: no right to change"),
                "{text}"
            );
        }
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

    #[test]
    fn a_missing_or_broken_btf_is_reported_as_such() {
        let error = Carrier::probe_in(Path::new("/proc/none/btf"))
            .err()
            .unwrap();
        assert_eq!(error.code(), 11);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"no BTF").unwrap();
        assert_eq!(Carrier::probe_in(file.path()).err().unwrap().code(), 11);
    }
}
