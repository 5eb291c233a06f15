// SPDX-License-Identifier: GPL-2.0-only
//! Why the module does not carry the hook, on a kernel without it: each cause with a remedy of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;

use super::process;
use crate::model::shown;

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The kernel has no loader of modules.
    NoModules,
    /// Another module has the name.
    Namesake,
    /// The system loads no more modules until it boots.
    Closed,
    /// The kernel takes signed modules only, and has refused one.
    Unsigned(Enforced),
    /// The module or the kernel has refused: a line of the kernel's log.
    Refused(String),
    /// It is there for this kernel.
    NotLoaded,
    /// DKMS has its source, and has built none for this kernel.
    NotBuilt,
    /// There is none.
    NotInstalled,
    /// What would say so is hidden from this process, as it is in the service and in containers.
    Untold(Hidden),
}

/// What is hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The directory of this kernel's modules is not there.
    Directory(String),
    /// A file, or a directory, that says what is installed, and why it cannot be read.
    File(String),
    /// The module is installed; the kernel's log says whether it was refused, and this is why it cannot be read.
    Log(String),
}

/// What wants signatures. The kernel's log tells them apart; that it does want them now is no refusal yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforced {
    /// Secure boot does it.
    Lockdown,
    /// `module.sig_enforce=1`, or the kernel's configuration.
    Parameter,
}

/// Bytes of a record of the kernel's log: more than any has.
const RECORD: usize = 8192;
/// Its records, at most: no kernel keeps as many.
const RECORDS: u32 = 1 << 20;
/// A priority of the log: an error, or worse.
const ERROR: u32 = 3;
/// The log.
const LOG: &str = "/dev/kmsg";
/// How the kernel begins to say of a module that it does not fit, after its name. To the kernel these are warnings.
const DOES_NOT_FIT: [&str; 4] = [
    "disagrees about version of symbol ",
    "no symbol version for ",
    "Unknown symbol ",
    "version magic ",
];

impl Absent {
    /// That of the running system.
    pub fn here() -> Self {
        Self::of(Path::new("/"), &process::release(), kernel_log())
    }

    /// That of the system at `root`, with this log: records as /dev/kmsg has them.
    fn of(root: &Path, release: &str, log: io::Result<Vec<String>>) -> Self {
        let there = |path: &str| root.join(path).try_exists();
        let says = |path: &str, word: &str| {
            fs::read_to_string(root.join(path)).is_ok_and(|text| text.trim() == word)
        };
        if let Ok(false) = there("proc/modules") {
            return Absent::NoModules;
        }
        // One that is on its way in or out is none yet, or no more.
        if says("sys/module/mthp_hook/initstate", "live") {
            return Absent::Namesake;
        }
        if says("proc/sys/kernel/modules_disabled", "1") {
            return Absent::Closed;
        }
        let installed = installed(root, release);
        let records = log.as_deref().unwrap_or_default();
        if let Some(refused) = refusal(records, matches!(installed, Ok(true))) {
            return refused;
        }
        match (installed, log) {
            (Err(hidden), _) => Absent::Untold(hidden),
            (Ok(true), Ok(_)) => Absent::NotLoaded,
            (Ok(true), Err(error)) => Absent::Untold(Hidden::Log(unread(LOG, &error))),
            (Ok(false), _) => match there("var/lib/dkms/mthp-hook") {
                Ok(true) => Absent::NotBuilt,
                Ok(false) => Absent::NotInstalled,
                Err(error) => Absent::Untold(Hidden::File(unread("/var/lib/dkms", &error))),
            },
        }
    }

    /// In words: a part of a sentence.
    pub fn cause(&self) -> String {
        match self {
            Absent::NoModules => format!("{WITHOUT}, and it loads no modules"),
            Absent::Namesake => "another module is loaded by the name mthp_hook".to_owned(),
            Absent::Closed => {
                "kernel.modules_disabled is 1, so the module mthp_hook cannot be loaded before the next boot".to_owned()
            }
            Absent::Unsigned(Enforced::Lockdown) => {
                "it is locked down, as by secure boot, and has refused a module without a signature that it knows, \
                 perhaps this one"
                    .to_owned()
            }
            Absent::Unsigned(Enforced::Parameter) => {
                "it loads signed modules only (module.sig_enforce), and has refused one without a signature that it \
                 knows, perhaps this one"
                    .to_owned()
            }
            Absent::Refused(line) => format!("the module mthp_hook was refused; the kernel's log says `{line}`"),
            Absent::NotLoaded => "the module mthp_hook is installed, and not loaded".to_owned(),
            Absent::NotBuilt => "DKMS has built no module mthp_hook for it".to_owned(),
            Absent::NotInstalled => format!("{WITHOUT}, and the module mthp_hook is not installed"),
            Absent::Untold(Hidden::Directory(path)) => format!(
                "whether the module mthp_hook is installed cannot be told from here: there is no {path}, as in a \
                 container, or once the package of the kernel that runs is gone"
            ),
            Absent::Untold(Hidden::File(why)) => {
                format!("whether the module mthp_hook is installed cannot be told from here ({why})")
            }
            Absent::Untold(Hidden::Log(why)) => format!(
                "the module mthp_hook is installed, and not loaded; whether it was refused cannot be told from here \
                 ({why})"
            ),
        }
    }

    /// What to do.
    pub fn remedy(&self) -> &'static str {
        match self {
            Absent::NoModules => {
                "install a kernel with the mthp_ext series of this version (docs/install.md); \
                 to try mthp_ext without it, run `make demo`"
            }
            Absent::Namesake => {
                "unload it (`rmmod mthp_hook`), and load the module of this version of mthp_ext (docs/carriers.md)"
            }
            Absent::Closed => {
                "boot, and run `modprobe mthp_hook` before kernel.modules_disabled is set"
            }
            Absent::Unsigned(_) => {
                "enroll the key that DKMS signs with (`mokutil --import /var/lib/dkms/mok.pub`), boot, and run \
                 `modprobe mthp_hook`; a module that was built by hand has to be signed by hand (docs/carriers.md)"
            }
            Absent::Refused(_) => {
                "look the message up in docs/carriers.md: most likely the module is of another kernel build, \
                 and has to be built again; or install a kernel with the mthp_ext series (docs/install.md)"
            }
            Absent::NotLoaded => {
                "run `modprobe mthp_hook` as root; the service does so when it starts"
            }
            Absent::NotBuilt => {
                "install the headers of this kernel, and run `dkms autoinstall`; what that says is explained in \
                 docs/carriers.md; on a kernel that the module does not know only one with the mthp_ext series \
                 helps (docs/install.md)"
            }
            Absent::NotInstalled => {
                "install the package mthp-ext-dkms and the headers of this kernel, and run `modprobe mthp_hook` \
                 (docs/carriers.md); or install a kernel with the mthp_ext series of this version (docs/install.md); \
                 to try mthp_ext without either, run `make demo`"
            }
            Absent::Untold(Hidden::Directory(_)) => {
                "run `mthp_ext support` as root on the host, outside of containers; where that says the same, boot a \
                 kernel that is installed, or one with the mthp_ext series (docs/install.md)"
            }
            Absent::Untold(Hidden::File(_)) => {
                "run `mthp_ext support` as root on the host, which can tell; where the service has tried to load it, \
                 `journalctl -u modprobe@mthp_hook` has what was said"
            }
            Absent::Untold(Hidden::Log(_)) => {
                "run `modprobe mthp_hook` as root; where that fails, `mthp_ext support` as root on the host says why, \
                 and for the service so does `journalctl -u modprobe@mthp_hook`"
            }
        }
    }
}

/// What every kernel is that has no hook.
const WITHOUT: &str =
    "it was built without the mthp_ext series or with CONFIG_BPF_TRANSPARENT_HUGEPAGE off";

/// What cannot be read, and why.
fn unread(path: &str, error: &io::Error) -> String {
    shown::shown(format!("{path}: {error}").as_bytes())
}

/// Has this kernel the module, by what modprobe goes by?
fn installed(root: &Path, release: &str) -> Result<bool, Hidden> {
    let path = format!("lib/modules/{release}");
    let directory = root.join(&path);
    let failed = match fs::read(directory.join("modules.dep")) {
        Ok(text) => return Ok(String::from_utf8_lossy(&text).lines().any(is_ours)),
        Err(error) => error,
    };
    match (failed.kind(), directory.try_exists()) {
        (ErrorKind::NotFound, Ok(true)) => Ok(false),
        (ErrorKind::NotFound, Ok(false)) => Err(Hidden::Directory(shown::shown(
            format!("/{path}").as_bytes(),
        ))),
        _ => Err(Hidden::File(unread(
            &format!("/{path}/modules.dep"),
            &failed,
        ))),
    }
}

/// Is it the line of modules.dep for the module? The file may be compressed, and what it needs follows.
fn is_ours(line: &str) -> bool {
    let file = line.split(':').next().unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or_default();
    name.starts_with("mthp_hook.ko")
}

/// The last word of the log on the module, if that is a refusal. Whose signature was missing the kernel does not say:
/// it is taken for that of the module only where that is installed.
fn refusal(log: &[String], installed: bool) -> Option<Absent> {
    for record in log.iter().rev() {
        match said(record) {
            Some(Said::Loaded) => return None,
            Some(Said::Unsigned(enforced)) if installed => return Some(Absent::Unsigned(enforced)),
            Some(Said::Refused(line)) => return Some(Absent::Refused(line)),
            _ => {}
        }
    }
    None
}

/// What a record of the log says.
enum Said {
    /// The module was loaded.
    Loaded,
    /// Some module was refused for its signature.
    Unsigned(Enforced),
    /// The module was refused.
    Refused(String),
}

fn said(record: &str) -> Option<Said> {
    let (head, text) = record.split_once(';')?;
    let text = text.lines().next()?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    if text.starts_with("Lockdown: ") && text.contains("unsigned module loading") {
        return Some(Said::Unsigned(Enforced::Lockdown));
    }
    if text.starts_with("Loading of ") && text.ends_with("is rejected") {
        return Some(Said::Unsigned(Enforced::Parameter));
    }
    let refused = match text.strip_prefix("mthp_hook: ") {
        // The last thing that the module does when it is loaded.
        Some(own) if own.starts_with("loaded, ") => return Some(Said::Loaded),
        Some(own) => {
            priority & 7 <= ERROR || DOES_NOT_FIT.iter().any(|begin| own.starts_with(begin))
        }
        None => {
            text.starts_with("failed to validate module [mthp_hook] BTF")
                || text == "Module mthp_hook is blacklisted"
        }
    };
    refused.then(|| Said::Refused(shown::shown(text.as_bytes())))
}

/// The kernel's log.
fn kernel_log() -> io::Result<Vec<String>> {
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(LOG);
    match open.map(records)? {
        // A container may have something else by that name: no kernel is silent.
        found if found.is_empty() => Err(io::Error::other("it says nothing")),
        found => Ok(found),
    }
}

/// One record is read at a time; after the last one there is nothing to wait for.
fn records(mut log: File) -> Vec<String> {
    let mut found = Vec::new();
    let mut record = vec![0; RECORD];
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => {
                let text = record.get(..length).unwrap_or_default();
                found.push(String::from_utf8_lossy(text).into_owned());
            }
            // What was next has been overwritten.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const RELEASE: &str = "6.12.1-amd64";

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    /// What every system has.
    const USUAL: [(&str, &str); 2] = [
        ("proc/modules", ""),
        ("lib/modules/6.12.1-amd64/modules.order", ""),
    ];

    fn of(files: &[(&str, &str)], log: &[&str]) -> Absent {
        let log: Vec<String> = log.iter().map(|&line| line.to_owned()).collect();
        let files = [&USUAL, files].concat();
        Absent::of(system(&files).path(), RELEASE, Ok(log))
    }

    const DEP: (&str, &str) = (
        "lib/modules/6.12.1-amd64/modules.dep",
        "updates/dkms/mthp_hook.ko.xz:\n",
    );
    const LOCKDOWN_SAID: &str = "5,7,8,-;Lockdown: insmod: unsigned module loading is restricted; see man \
                                 kernel_lockdown.7\n";
    const REJECTED: &str = "5,7,8,-;Loading of unsigned module is rejected\n";
    const TYPES: &str =
        "3,9,1,-;mthp_hook: the module's type information is missing\n SUBSYSTEM=x\n";
    const LOADED: &str = "6,10,2,-;mthp_hook: loaded, version 0.1\n";

    #[test]
    fn each_cause_is_told_from_the_others() {
        let initstate = "sys/module/mthp_hook/initstate";
        let dkms = ("var/lib/dkms/mthp-hook/0.1/source/x", "");
        let other = ("lib/modules/5.10.0/modules.dep", DEP.1);
        let disabled = ("proc/sys/kernel/modules_disabled", "1\n");
        for (files, log, absent) in [
            (&[][..], &[][..], Absent::NotInstalled),
            (&[other], &[], Absent::NotInstalled),
            (&[dkms, other], &[], Absent::NotBuilt),
            (&[dkms, DEP], &[], Absent::NotLoaded),
            (&[DEP, disabled], &[TYPES], Absent::Closed),
            (&[(initstate, "live\n")], &[TYPES], Absent::Namesake),
            (&[(initstate, "coming\n"), DEP], &[], Absent::NotLoaded),
            (&[(initstate, "going\n")], &[], Absent::NotInstalled),
            (
                &[DEP],
                &[LOCKDOWN_SAID],
                Absent::Unsigned(Enforced::Lockdown),
            ),
            (&[DEP], &[REJECTED], Absent::Unsigned(Enforced::Parameter)),
            // Then it was another module.
            (&[], &[LOCKDOWN_SAID, REJECTED], Absent::NotInstalled),
            (&[dkms], &[REJECTED], Absent::NotBuilt),
            (
                &[],
                &[TYPES, REJECTED],
                Absent::Refused("mthp_hook: the module's type information is missing".to_owned()),
            ),
        ] {
            assert_eq!(of(files, log), absent, "{files:?} {log:?}");
        }
        let bare = system(&[DEP]);
        assert_eq!(
            Absent::of(bare.path(), RELEASE, Ok(vec![])),
            Absent::NoModules
        );
    }

    #[test]
    fn the_module_is_known_by_the_name_of_its_file() {
        for (line, absent) in [
            ("updates/dkms/mthp_hook.ko.xz:", Absent::NotLoaded),
            ("mthp_hook.ko: kernel/a.ko", Absent::NotLoaded),
            ("extra/mthp_hook.ko.zst: kernel/a.ko", Absent::NotLoaded),
            ("extra/no_mthp_hook.ko:", Absent::NotInstalled),
            ("extra/a.ko: extra/mthp_hook.ko", Absent::NotInstalled),
        ] {
            let text = format!("kernel/fs/a.ko:\n{line}\n");
            assert_eq!(of(&[(DEP.0, &text)], &[]), absent, "{line}");
        }
    }

    /// A module of another build is refused by a warning, and one that the command line forbids without its prefix.
    #[test]
    fn a_refusal_is_known_by_its_words_where_it_is_no_error() {
        for (priority, text) in [
            (
                4,
                "mthp_hook: disagrees about version of symbol module_layout",
            ),
            (4, "mthp_hook: Unknown symbol psi_system (err -2)"),
            (4, "mthp_hook: no symbol version for module_layout"),
            (3, "mthp_hook: version magic '6.1 SMP' should be '6.12 SMP'"),
            (6, "mthp_hook: version magic '6.1 SMP' should be '6.12 SMP'"),
            (3, "Module mthp_hook is blacklisted"),
            (6, "Module mthp_hook is blacklisted"),
            (4, "failed to validate module [mthp_hook] BTF: -22"),
        ] {
            let record = format!("{priority},9,1,-;{text}\n");
            let refused = Absent::Refused(text.to_owned());
            assert_eq!(of(&[DEP], &[&record]), refused, "{record}");
            assert_eq!(of(&[], &[&record]), refused, "{record}");
        }
        for other in [
            "4,9,1,-;mthp_hook: loading out-of-tree module taints kernel.\n",
            "4,9,1,-;mthp_hook: swap-in cannot be told from other page faults\n",
            "4,9,1,-;mthp_hooks: Unknown symbol psi_system (err -2)\n",
            "3,9,1,-;Module mthp_hooks is blacklisted\n",
            "3,9,1,-;mthp_hooks: refused\n",
            "no record",
            "x,1;mthp_hook: refused",
        ] {
            assert_eq!(of(&[DEP], &[other]), Absent::NotLoaded, "{other}");
        }
    }

    /// What was refused once may have been mended, loaded, and unloaded again.
    #[test]
    fn the_last_word_of_the_log_counts() {
        let lockdown = Absent::Unsigned(Enforced::Lockdown);
        assert_eq!(of(&[DEP], &[TYPES, LOCKDOWN_SAID]), lockdown);
        let last = of(&[DEP], &[LOCKDOWN_SAID, TYPES]);
        assert!(matches!(last, Absent::Refused(_)), "{last:?}");
        for refused in [TYPES, LOCKDOWN_SAID, REJECTED] {
            assert_eq!(of(&[DEP], &[refused, LOADED]), Absent::NotLoaded);
            let again = of(&[DEP], &[LOADED, refused]);
            assert_ne!(again, Absent::NotLoaded, "{refused}");
        }
    }

    /// To be hidden is not to be absent.
    #[test]
    fn what_is_hidden_is_not_taken_for_absent() {
        let log = |errno| Err(io::Error::from_raw_os_error(errno));
        let dkms = ("var/lib/dkms/mthp-hook/0.1/source/x", "");
        for (errno, why) in [
            (libc::ENOENT, "No such file or directory (os error 2)"),
            (libc::EPERM, "Operation not permitted (os error 1)"),
            (libc::EACCES, "Permission denied (os error 13)"),
        ] {
            let why = format!("/dev/kmsg: {why}");
            let with = |files: &[(&str, &str)]| {
                let root = system(&[&USUAL, files].concat());
                Absent::of(root.path(), RELEASE, log(errno))
            };
            assert_eq!(with(&[DEP]), Absent::Untold(Hidden::Log(why)));
            assert_eq!(with(&[dkms]), Absent::NotBuilt);
            assert_eq!(with(&[]), Absent::NotInstalled);
        }
        // A container without modules.
        let root = system(&[USUAL[0], dkms]);
        let absent = Absent::of(root.path(), RELEASE, log(libc::ENOENT));
        let path = "/lib/modules/6.12.1-amd64".to_owned();
        assert_eq!(absent, Absent::Untold(Hidden::Directory(path)));
        // What the log says of the module itself is true all the same.
        let refused = Absent::of(root.path(), RELEASE, Ok(vec![TYPES.to_owned()]));
        assert!(matches!(refused, Absent::Refused(_)), "{refused:?}");
        // A file that cannot be read, whoever asks: it is a directory, or its name leads through a file.
        let dep = "lib/modules/6.12.1-amd64/modules.dep";
        for (files, why) in [
            (
                [USUAL[0], ("lib/modules/6.12.1-amd64/modules.dep/x", "")],
                "/lib/modules/6.12.1-amd64/modules.dep: Is a directory (os error 21)",
            ),
            (
                [USUAL[0], ("lib/modules/6.12.1-amd64", "")],
                "/lib/modules/6.12.1-amd64/modules.dep: Not a directory (os error 20)",
            ),
        ] {
            let root = system(&files);
            let absent = Absent::of(root.path(), RELEASE, log(libc::ENOENT));
            assert_eq!(absent, Absent::Untold(Hidden::File(why.to_owned())));
        }
        // As systemd hides it.
        let root = system(&[USUAL[0], (dep, "mthp_hook.ko:\n")]);
        let hidden = root.path().join("lib/modules");
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o0)).unwrap();
        let absent = Absent::of(root.path(), RELEASE, log(libc::ENOENT));
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o755)).unwrap();
        let by_root = Absent::Untold(Hidden::Log(
            "/dev/kmsg: No such file or directory (os error 2)".to_owned(),
        ));
        let by_others = Absent::Untold(Hidden::File(format!(
            "/{dep}: Permission denied (os error 13)"
        )));
        assert!(absent == by_root || absent == by_others, "{absent:?}");
    }

    #[test]
    fn each_has_words_and_a_remedy_of_its_own() {
        let all = [
            Absent::NoModules,
            Absent::Namesake,
            Absent::Closed,
            Absent::Unsigned(Enforced::Lockdown),
            Absent::Refused("mthp_hook: no".to_owned()),
            Absent::NotLoaded,
            Absent::NotBuilt,
            Absent::NotInstalled,
            Absent::Untold(Hidden::Directory("/lib/modules/6.12".to_owned())),
            Absent::Untold(Hidden::File("/lib: no".to_owned())),
            Absent::Untold(Hidden::Log("/dev/kmsg: no".to_owned())),
        ];
        let causes: std::collections::HashSet<String> = all.iter().map(Absent::cause).collect();
        let remedies: std::collections::HashSet<&str> = all.iter().map(Absent::remedy).collect();
        assert_eq!((causes.len(), remedies.len()), (all.len(), all.len()));
        assert_ne!(
            Absent::Unsigned(Enforced::Parameter).cause(),
            Absent::Unsigned(Enforced::Lockdown).cause()
        );
    }
}
