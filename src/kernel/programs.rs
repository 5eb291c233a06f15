// SPDX-License-Identifier: GPL-2.0-only
//! BPF objects before they are loaded: read and checked; and why one does not load.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::btf::{Btf, ReferencesType};
use libbpf_rs::{ErrorKind, ObjectBuilder, OpenObject, PrintLevel};

use super::carrier;
use crate::errors::{Error, Result};
use crate::model::abi::{self, Load};
use crate::model::profiles::Profiles;
use crate::model::rule::SCANS;

/// An object, read and not loaded yet.
pub struct Programs {
    pub(super) open: OpenObject,
    /// Its file; `None`: the one that is built in.
    pub(super) own: Option<PathBuf>,
    pub(super) tunable: bool,
    /// It has a program that scans.
    pub(super) scans: bool,
}

impl Programs {
    /// Reads an object of the user's, or the one that is built in.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that cannot be used: the kernel was not asked yet.
    pub fn read(own: Option<&Path>) -> Result<Self> {
        libbpf_rs::set_print(Some((PrintLevel::Info, keep_log)));
        let unusable = |file: &Path, why: &dyn Display| {
            let place = file.display();
            Error::Usage(format!(
                "cannot use the object {place}: {why}. Name a BPF object that you may read; \
                 docs/policies.md says what it must have."
            ))
        };
        let bytes = match own {
            Some(file) => Cow::Owned(std::fs::read(file).map_err(|e| unusable(file, &e))?),
            None => Cow::Borrowed(abi::OBJECT),
        };
        let mut builder = ObjectBuilder::default();
        let open = builder.name("mthp").and_then(|b| b.open_memory(&bytes));
        let open = open.map_err(|e| match own {
            Some(file) => unusable(file, &e),
            None => load_error(None, e),
        })?;
        if let Some(file) = own {
            let ops = ops_of(&bytes).map_err(|e| unusable(file, &e))?;
            require_ops(&ops).map_err(|why| mismatch(Some(file), &why))?;
        }
        let (mut tunable, mut foreign) = (false, own.is_none());
        for map in open.maps().filter(|map| map.name() == abi::CONSTANTS_MAP) {
            let theirs: Option<Load> = map.initial_value().and_then(abi::from_bytes);
            let profiles = open.maps().find(|map| map.name() == abi::PROFILES_MAP);
            let profiles = profiles.and_then(|map| Profiles::from_bytes(map.initial_value()?));
            let ours = theirs.is_some_and(|theirs| theirs.abi == abi::ABI);
            foreign = !ours || profiles.is_none();
            tunable = true;
        }
        let scans = open.progs().any(|p| p.name() == abi::SCAN_PROG);
        let programs = Programs {
            open,
            own: own.map(Path::to_owned),
            tunable,
            scans,
        };
        match foreign {
            true => {
                Err(programs.mismatch("its tunables are not those of this mthp_ext (bpf/abi.h)"))
            }
            false => Ok(programs),
        }
    }

    /// Does it take the values of a policy?
    pub fn tunable(&self) -> bool {
        self.tunable
    }

    /// Has it a program that scans?
    pub fn scans(&self) -> bool {
        self.scans
    }

    /// Has it a program that scans, as the policy needs it?
    ///
    /// # Errors
    /// [`Error::Usage`]: what the policy asks for would not be done, and nobody would notice.
    pub fn require_scan(&self, policy: &str) -> Result<()> {
        if self.scans {
            return Ok(());
        }
        let (scan, rule) = (abi::SCAN_PROG, SCANS.name());
        Err(self.mismatch(&format!(
            "it has no program {scan}, which policy {policy} needs for its rule {rule}: \
             take a policy without that rule, or add the program"
        )))
    }

    /// It is not made as it must be.
    pub(super) fn mismatch(&self, what: &str) -> Error {
        mismatch(self.own.as_deref(), what)
    }
}

/// The types of the struct_ops maps of an object: each is a variable of a section.
fn ops_of(object: &[u8]) -> libbpf_rs::Result<Vec<String>> {
    let Some(btf) = Btf::from_raw("mthp", object)? else {
        return Ok(Vec::new());
    };
    let sections = btf.type_by_kind::<DataSec<'_>>().filter(|section| {
        let name = section.name().and_then(OsStr::to_str);
        name.is_some_and(|name| name == ".struct_ops" || name == ".struct_ops.link")
    });
    let mut found = Vec::new();
    for section in sections {
        for variable in section.iter() {
            let of = btf.type_by_id::<Var<'_>>(variable.ty);
            let name = of.and_then(|of| of.referenced_type().skip_mods_and_typedefs().name());
            let name = name.unwrap_or_default().to_string_lossy();
            // What follows three underscores is no part of the kernel's name.
            found.push(name.split("___").next().unwrap_or_default().to_owned());
        }
    }
    Ok(found)
}

/// There is one map of ops, and it is of the hook.
fn require_ops(ops: &[String]) -> std::result::Result<(), String> {
    match ops {
        [one] if one == carrier::OPS => Ok(()),
        [other] => Err(format!(
            "its struct_ops map is of struct {other}, not of struct {}",
            carrier::OPS
        )),
        _ => Err("it must have one struct_ops map".to_owned()),
    }
}

/// The end of what libbpf said, kept to explain a failed load.
static LIBBPF_LOG: Mutex<String> = Mutex::new(String::new());

/// How much of it is kept: the verifier prints the reason last.
pub(super) const LOG_TAIL: usize = 4096;

fn keep_log(level: PrintLevel, message: String) {
    if level == PrintLevel::Debug {
        return;
    }
    let Ok(mut log) = LIBBPF_LOG.lock() else {
        return;
    };
    log.push_str(&message);
    if log.len() > 4 * LOG_TAIL {
        let cut = log.len() - LOG_TAIL;
        let cut = (cut..log.len())
            .find(|&i| log.is_char_boundary(i))
            .unwrap_or(log.len());
        log.drain(..cut);
    }
}

pub(super) fn load_error(own: Option<&Path>, source: libbpf_rs::Error) -> Error {
    let log = LIBBPF_LOG.lock().map(|log| log.clone()).unwrap_or_default();
    why_not(own, source, &log)
}

/// Why an object does not load. `log`: what libbpf said.
pub(super) fn why_not(own: Option<&Path>, source: libbpf_rs::Error, log: &str) -> Error {
    // EACCES is of this kind as well: the verifier's, which ends its log so.
    let refused = log.contains("\nprocessed ");
    if source.kind() == ErrorKind::PermissionDenied && !refused {
        return Error::NoPrivilege {
            what: "load BPF programs".to_owned(),
        };
    }
    if matches!(
        source.kind(),
        ErrorKind::OutOfMemory | ErrorKind::WouldBlock
    ) {
        return Error::System {
            what: "loading the policy's programs, for which memory is short: start it again"
                .to_owned(),
            source: io::Error::other(source.to_string()),
        };
    }
    let log = if log.is_empty() {
        String::new()
    } else {
        format!("\n{}", log.trim_end())
    };
    let (what, remedy) = match own {
        None => (
            "the policy's programs".to_owned(),
            "Most likely kernel and mthp_ext are of different versions: \
             build both from the same checkout (docs/install.md).",
        ),
        Some(file) => (
            format!("the object {}", file.display()),
            "Correct the program; what libbpf and the verifier say follows.",
        ),
    };
    Error::Load {
        what,
        remedy,
        source,
        log,
    }
}

/// An object that is not made as it must be: the user's mistake, if it is the user's.
pub(super) fn mismatch(own: Option<&Path>, what: &str) -> Error {
    match own {
        Some(file) => Error::Usage(format!(
            "cannot use the object {}: {what}. docs/policies.md says what it must have.",
            file.display()
        )),
        None => {
            let source = io::Error::new(io::ErrorKind::InvalidData, what);
            load_error(None, libbpf_rs::Error::from(source))
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_refusal_is_no_lack_of_privilege() {
        let code = |errno: Errno, log: &str| {
            let source = libbpf_rs::Error::from(io::Error::from(errno));
            why_not(None, source, log).code()
        };
        let verifier = "R1 invalid mem access\nprocessed 12 insns (limit 1000000)\n";
        assert_eq!(code(Errno::EPERM, ""), 4);
        assert_eq!(code(Errno::EACCES, verifier), 13);
        // Another start may find memory.
        assert_eq!(code(Errno::ENOMEM, ""), 1);
    }

    /// The kernel was not asked yet: it can neither refuse it nor lack a privilege.
    #[test]
    fn a_file_that_is_no_object_is_the_users_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let garbage = dir.path().join("own.bpf.o");
        std::fs::write(&garbage, b"no object").unwrap();
        for file in [
            Path::new("/proc/none/typo.o"),
            dir.path(),
            garbage.as_path(),
        ] {
            let error = Programs::read(Some(file)).map(|_| ()).unwrap_err();
            assert_eq!(error.code(), 2, "{error}");
            let said = error.to_string();
            assert!(said.contains(file.to_str().unwrap()), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn what_is_built_in_takes_values_and_scans() {
        let ours = Programs::read(None).unwrap();
        assert!(ours.tunable() && ours.scans());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("own.bpf.o");
        let mut bytes = abi::OBJECT.to_vec();
        std::fs::write(&file, &bytes).unwrap();
        assert!(Programs::read(Some(&file)).unwrap().tunable());
        // Under another name they are no tunables.
        let bare = String::from_utf8_lossy(&bytes).contains(abi::CONSTANTS_MAP);
        assert!(bare, "the object has the name");
        let name = abi::CONSTANTS_MAP.as_bytes();
        let mut renamed = bytes.clone();
        for at in 0..renamed.len() - name.len() {
            if renamed[at..].starts_with(name) {
                renamed[at + name.len() - 1] = b'x';
            }
        }
        std::fs::write(&file, renamed).unwrap();
        assert!(!Programs::read(Some(&file)).unwrap().tunable());
        // One of another version: its number stands once in the object.
        let number = abi::ABI.0.to_ne_bytes();
        let places: Vec<usize> = (0..bytes.len() - 4)
            .filter(|&at| bytes[at..at + 4] == number)
            .collect();
        for at in places {
            bytes[at] = bytes[at].wrapping_sub(1);
        }
        std::fs::write(&file, &bytes).unwrap();
        let error = Programs::read(Some(&file)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("bpf/abi.h"), "{error}");
        assert_eq!(error.code(), 2);
    }

    /// An object with these declarations, as the compiler of ours makes it.
    fn compiled(dir: &Path, declarations: &str) -> PathBuf {
        let (source, object) = (dir.join("own.c"), dir.join("own.o"));
        std::fs::write(&source, declarations).unwrap();
        let status = std::process::Command::new(env!("CLANG_OF_THE_BUILD"))
            .args(["-target", "bpf", "-g", "-O2", "-c", "-o"])
            .args([&object, &source])
            .status()
            .expect("the compiler that made the policies");
        assert!(status.success());
        object
    }

    /// Into its value a descriptor would be written, at the place that another struct has for it.
    #[test]
    fn ops_of_another_kind_are_refused_before_the_kernel_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let ops = |name: &str| {
            format!(
                "char LICENSE[] __attribute__((section(\"license\"), used)) = \"GPL\";
                struct {name} {{ unsigned long (*mthp_choose)(void); }};
                __attribute__((section(\"struct_ops/choose\"), used))
                unsigned long choose(void) {{ return 0; }}
                __attribute__((section(\".struct_ops.link\"), used))
                struct {name} mine = {{ (void *)choose }};"
            )
        };
        let refused = |declarations: &str| {
            let file = compiled(dir.path(), declarations);
            let result = Programs::read(Some(&file)).map(|_| ());
            result.map_err(|error| (error.code(), error.to_string()))
        };
        assert_eq!(refused(&ops("bpf_mthp_ops")), Ok(()));
        assert_eq!(refused(&ops("bpf_mthp_ops___mine")), Ok(()));
        let (code, said) = refused(&ops("tcp_congestion_ops")).unwrap_err();
        assert_eq!(code, 2);
        assert!(
            said.contains("is of struct tcp_congestion_ops, not"),
            "{said}"
        );
        let none = "__attribute__((section(\"syscall\"), used)) int f(void *c) { return 0; }";
        let (code, said) = refused(none).unwrap_err();
        assert_eq!(code, 2);
        assert!(said.contains("one struct_ops map"), "{said}");
    }

    #[test]
    fn a_policy_that_scans_needs_programs_that_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("own.bpf.o");
        let mut bytes = abi::OBJECT.to_vec();
        std::fs::write(&file, &bytes).unwrap();
        assert!(
            Programs::read(Some(&file))
                .unwrap()
                .require_scan("p")
                .is_ok()
        );
        // Under another name it is no program that scans.
        let name = abi::SCAN_PROG.as_bytes();
        for at in 0..bytes.len() - name.len() {
            if bytes[at..].starts_with(name) && bytes[at + name.len()] == 0 {
                bytes[at + name.len() - 1] = b'x';
            }
        }
        std::fs::write(&file, bytes).unwrap();
        let without = Programs::read(Some(&file)).unwrap();
        assert!(without.tunable() && !without.scans());
        let error = without.require_scan("mine").unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(error.to_string().contains("policy mine needs"), "{error}");
    }

    #[test]
    fn the_log_keeps_its_end() {
        for i in 0..5000 {
            keep_log(PrintLevel::Warn, format!("Zeile {i} ä\n"));
        }
        let log = LIBBPF_LOG.lock().unwrap();
        assert!(log.len() <= 5 * LOG_TAIL);
        assert!(log.ends_with("Zeile 4999 ä\n"));
    }
}
