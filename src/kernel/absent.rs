// SPDX-License-Identifier: GPL-2.0-only
//! Why the module does not carry the hook, on a kernel without it: each cause with a remedy of its own.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
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
}

/// What wants signatures.
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

impl Absent {
    /// That of the running system.
    pub fn here() -> Self {
        Self::of(Path::new("/"), &process::release(), &kernel_log())
    }

    /// That of the system at `root`, with this log: records as /dev/kmsg has them.
    fn of(root: &Path, release: &str, log: &[String]) -> Self {
        let there = |path: &str| root.join(path).exists();
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        if !there("proc/modules") {
            return Absent::NoModules;
        }
        if there("sys/module/mthp_hook") {
            return Absent::Namesake;
        }
        if text("proc/sys/kernel/modules_disabled").trim() == "1" {
            return Absent::Closed;
        }
        let lockdown = text("sys/kernel/security/lockdown");
        let enforced = if lockdown.contains('[') && !lockdown.contains("[none]") {
            Some(Enforced::Lockdown)
        } else if text("sys/module/module/parameters/sig_enforce").trim() == "Y" {
            Some(Enforced::Parameter)
        } else {
            None
        };
        let refused = log
            .iter()
            .rev()
            .find_map(|record| refusal(record, enforced));
        if let Some(refused) = refused {
            return refused;
        }
        // Where the directory is linked or not, this is what modprobe goes by.
        if text(&format!("lib/modules/{release}/modules.dep")).contains("/mthp_hook.ko") {
            return Absent::NotLoaded;
        }
        match there("var/lib/dkms/mthp-hook") {
            true => Absent::NotBuilt,
            false => Absent::NotInstalled,
        }
    }

    /// In words: a part of a sentence.
    pub fn cause(&self) -> String {
        match self {
            Absent::NoModules => "it was built without the mthp_ext series, and it loads no modules".to_owned(),
            Absent::Namesake => "another module is loaded by the name mthp_hook".to_owned(),
            Absent::Closed => {
                "kernel.modules_disabled is 1, so the module mthp_hook cannot be loaded before the next boot".to_owned()
            }
            Absent::Unsigned(Enforced::Lockdown) => {
                "it is locked down, as by secure boot, and has refused a module without a signature that it knows"
                    .to_owned()
            }
            Absent::Unsigned(Enforced::Parameter) => {
                "it loads signed modules only (module.sig_enforce), and has refused one without a signature that it \
                 knows"
                    .to_owned()
            }
            Absent::Refused(line) => format!("the module mthp_hook was refused; the kernel's log says `{line}`"),
            Absent::NotLoaded => "the module mthp_hook is installed, and not loaded".to_owned(),
            Absent::NotBuilt => "DKMS has built no module mthp_hook for it".to_owned(),
            Absent::NotInstalled => "it was built without the mthp_ext series, and the module mthp_hook is not installed"
                .to_owned(),
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
        }
    }
}

/// Does the record say that a module was refused, as one of ours may have been?
fn refusal(record: &str, enforced: Option<Enforced>) -> Option<Absent> {
    let (head, text) = record.split_once(';')?;
    let text = text.lines().next()?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    let unsigned = (text.starts_with("Lockdown: ") && text.contains("unsigned module loading"))
        || (text.starts_with("Loading of ") && text.ends_with("is rejected"));
    // Whose module it was they do not say.
    if let (true, Some(enforced)) = (unsigned, enforced) {
        return Some(Absent::Unsigned(enforced));
    }
    let own = text.starts_with("mthp_hook: ") && priority & 7 <= ERROR;
    let own = own || text.starts_with("failed to validate module [mthp_hook] BTF");
    own.then(|| Absent::Refused(shown::shown(text.as_bytes())))
}

/// The kernel's log, as far as this process may read it.
fn kernel_log() -> Vec<String> {
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg");
    open.map(records).unwrap_or_default()
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

    fn of(files: &[(&str, &str)], log: &[&str]) -> Absent {
        let log: Vec<String> = log.iter().map(|&line| line.to_owned()).collect();
        let files = [&[("proc/modules", "")], files].concat();
        Absent::of(system(&files).path(), RELEASE, &log)
    }

    const DEP: (&str, &str) = (
        "lib/modules/6.12.1-amd64/modules.dep",
        "updates/dkms/mthp_hook.ko.xz:\n",
    );
    const LOCKED: (&str, &str) = (
        "sys/kernel/security/lockdown",
        "none [integrity] confidentiality\n",
    );
    const ENFORCED: (&str, &str) = ("sys/module/module/parameters/sig_enforce", "Y\n");
    const LOCKDOWN_SAID: &str = "5,7,8,-;Lockdown: insmod: unsigned module loading is restricted; see man \
                                 kernel_lockdown.7\n";
    const REJECTED: &str = "5,7,8,-;Loading of unsigned module is rejected\n";
    const TYPES: &str =
        "3,9,1,-;mthp_hook: the module's type information is missing\n SUBSYSTEM=x\n";

    #[test]
    fn each_cause_is_told_from_the_others() {
        let open = ("sys/kernel/security/lockdown", "[none] integrity\n");
        let dkms = ("var/lib/dkms/mthp-hook/0.1/source/x", "");
        let other = ("lib/modules/5.10.0/modules.dep", DEP.1);
        let disabled = ("proc/sys/kernel/modules_disabled", "1\n");
        for (files, log, absent) in [
            (&[][..], &[][..], Absent::NotInstalled),
            (&[other, open], &[], Absent::NotInstalled),
            (&[dkms, other], &[], Absent::NotBuilt),
            (&[dkms, DEP], &[], Absent::NotLoaded),
            // Signed it may be loaded.
            (&[DEP, LOCKED, ENFORCED], &[], Absent::NotLoaded),
            (&[DEP, disabled], &[TYPES], Absent::Closed),
            (
                &[("sys/module/mthp_hook/initstate", "live")],
                &[TYPES],
                Absent::Namesake,
            ),
            (
                &[DEP, LOCKED],
                &[LOCKDOWN_SAID],
                Absent::Unsigned(Enforced::Lockdown),
            ),
            (
                &[ENFORCED],
                &[REJECTED],
                Absent::Unsigned(Enforced::Parameter),
            ),
            (
                &[],
                &[TYPES],
                Absent::Refused("mthp_hook: the module's type information is missing".to_owned()),
            ),
            (
                &[],
                &["4,9,1,-;failed to validate module [mthp_hook] BTF: -22\n"],
                Absent::Refused("failed to validate module [mthp_hook] BTF: -22".to_owned()),
            ),
        ] {
            assert_eq!(of(files, log), absent, "{files:?} {log:?}");
        }
        let bare = system(&[DEP]);
        assert_eq!(Absent::of(bare.path(), RELEASE, &[]), Absent::NoModules);
    }

    /// The kernel can have been locked down since, and a refusal can be of another module.
    #[test]
    fn the_last_word_of_the_log_counts() {
        let lockdown = Absent::Unsigned(Enforced::Lockdown);
        assert_eq!(of(&[LOCKED], &[TYPES, LOCKDOWN_SAID]), lockdown);
        let last = of(&[LOCKED], &[LOCKDOWN_SAID, TYPES]);
        assert!(matches!(last, Absent::Refused(_)), "{last:?}");
        assert_eq!(of(&[DEP], &[LOCKDOWN_SAID, REJECTED]), Absent::NotLoaded);
        for other in [
            "4,9,1,-;mthp_hook: loading out-of-tree module taints kernel.\n",
            "3,9,1,-;mthp_hooks: refused\n",
            "no record",
            "x,1;mthp_hook: refused",
        ] {
            assert_eq!(of(&[DEP], &[other]), Absent::NotLoaded, "{other}");
        }
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
