// SPDX-License-Identifier: GPL-2.0-only
//! Every way in which mthp_ext can fail: one message each, with cause, likely
//! reason and remedy, and one exit code each (docs/exit-codes.md).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::errno::Errno;
use thiserror::Error;

use crate::model::config::XATTR;
use crate::model::shown;

/// Result of everything that can end the program.
pub type Result<T> = std::result::Result<T, Error>;

/// What most likely is behind an error of the system, and what to do about it.  Those that are made
/// up here have it in their own words.
fn remedy(what: &str, source: &std::io::Error) -> &'static str {
    let Some(number) = source.raw_os_error() else {
        return "";
    };
    match source.kind() {
        ErrorKind::PermissionDenied => {
            ". A container or a security module forbids it, or it takes more rights: \
             run it as root, on the host."
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ". The disk is full: make room, and repeat it."
        }
        ErrorKind::NotFound => {
            ". It has just gone, or this system does not have it: repeat it; \
             `mthp_ext support` says what there is."
        }
        ErrorKind::ReadOnlyFilesystem => {
            ". It is on a read-only mount: remount it, or name another place."
        }
        _ if number == Errno::EIO as i32 => {
            ". The device or the kernel failed: `dmesg` says more. Repeat it once that is mended."
        }
        ErrorKind::OutOfMemory => {
            ". The kernel has no memory for it, or a limit allows no more: free some, and repeat it."
        }
        _ if Errno::EMFILE as i32 == number || Errno::ENFILE as i32 == number => {
            ". Too many files are open, here or on the host: raise the limit (`ulimit -n`, fs.file-max)."
        }
        // Whoever says in brackets what is behind it knows more than the number says.
        _ if what.ends_with(')') => "",
        ErrorKind::ResourceBusy => ". Somebody else is at work with it just now: repeat it.",
        ErrorKind::WouldBlock => {
            ". A limit of processes or memory allows no more: raise it (`ulimit -u`, TasksMax=), and repeat it."
        }
        _ => {
            ". That was not expected here: repeat it, and report it with what `mthp_ext support` says."
        }
    }
}

/// A failure that ends the program.  Nothing stays attached after any of them, but what
/// `--on-exit keep` had left before.
#[derive(Debug, Error)]
pub enum Error {
    /// A system call failed in a way that has no case of its own below.
    #[error("{what}: {source}{}", remedy(what, source))]
    System {
        /// What was being done, as a sentence without a full stop.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },

    /// Option values that are each fine but do not go together.
    #[error("{0}")]
    Usage(String),

    /// A policy's file has a mistake.
    #[error(
        "{place}: {what}. \
         The file of a policy has `about`, `rules`, and options of `mthp_ext options`: correct it there."
    )]
    Policy {
        /// File and line.
        place: String,
        /// The mistake.
        what: String,
    },

    /// A configuration has mistakes.
    #[error(
        "the configuration {} cannot be used: {what}. \
         docs/configuration.md says what may stand there; `mthp_ext check-config` lists all mistakes.",
        shown::path(file)
    )]
    Config {
        /// Its file.
        file: PathBuf,
        /// The first mistake with its place.
        what: String,
    },

    /// `--root` is no directory of a cgroup v2 hierarchy.
    #[error(
        "{}: not a cgroup v2 directory ({why}). \
         Name the cgroup2 mount, usually /sys/fs/cgroup, or a directory below it; \
         `mkdir` makes a new cgroup there.",
        shown::path(path)
    )]
    NotCgroup2 {
        /// The path as given.
        path: PathBuf,
        /// What it is instead.
        why: String,
    },

    /// No cgroup is called so, or more than one.
    #[error(
        "{name}: no such cgroup ({why}). \
         Name it as `mthp_ext status` shows it, by its directory, or by the name of its systemd unit."
    )]
    NoSuchCgroup {
        /// What was given, as it is shown.
        name: String,
        /// What there is instead.
        why: String,
    },

    /// The cgroup is there, and no policy is attached to it or above.
    #[error(
        "{name}: no policy binds this cgroup, so transparent_hugepage/enabled ({setting}) applies. \
         None is attached to it or above it: `mthp_ext status` shows where policies are, \
         `mthp_ext run --root` attaches one."
    )]
    NotBound {
        /// The cgroup, as it is shown.
        name: String,
        /// The setting.
        setting: String,
    },

    /// No daemon reports, or has reported.
    #[error(
        "{what}. \
         `mthp_ext run` keeps its events in {} while it runs: start it, or read its log, \
         under systemd with `journalctl -u mthp_ext`.",
        directory.display()
    )]
    NoEvents {
        /// What is missing.
        what: String,
        /// Where events are.
        directory: PathBuf,
    },

    /// The caller may not load BPF programs.
    #[error(
        "no privilege to {what}. \
         `run` needs CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE, `status`, `explain`, `top` and `advise` need CAP_SYS_ADMIN, \
         and so does `run` with the module: \
         run it as root; a container must have them in the host's user namespace."
    )]
    NoPrivilege {
        /// What was refused.
        what: String,
    },

    /// The kernel has no `bpf_mthp_ops`.
    #[error(
        "this kernel ({release}) has no bpf_mthp_ops hook: {cause}. \
         To mend that, {remedy}. `mthp_ext support` lists what is missing."
    )]
    NoHook {
        /// `uname -r`.
        release: String,
        /// What is in the way of the module.
        cause: String,
        /// What to do about that.
        remedy: &'static str,
    },

    /// The kernel has a `bpf_mthp_ops` that is called in another way.
    #[error(
        "this kernel ({release}) has the bpf_mthp_ops hook of another version of the mthp_ext series: \
         it calls mthp_choose with other arguments than this mthp_ext expects, so nothing was loaded. \
         Install a kernel with the series of this checkout (docs/install.md), \
         or the mthp_ext that belongs to this kernel; to try this one, run `make demo`."
    )]
    ForeignHook {
        /// `uname -r`.
        release: String,
    },

    /// The cgroup may not be written.
    #[error(
        "{}: no right to change this cgroup, which attaching a policy needs. \
         It belongs to another user, or /sys/fs/cgroup is mounted read-only here (as in most containers): \
         run mthp_ext as a user who may write cgroup.procs of this directory, through a writable mount.",
        shown::path(path)
    )]
    NotWritable {
        /// The cgroup.
        path: PathBuf,
    },

    /// A cgroup's override of its own may not be written.
    #[error(
        "{}: {}: {source}. It takes the right to write this directory, which root has, and the owner \
         of a delegated cgroup; /sys/fs/cgroup is mounted read-only in most containers: \
         run it as one of them, through a writable mount.",
        shown::path(path),
        XATTR
    )]
    XattrNotWritable {
        /// The cgroup.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// Pressure stall information is off.
    #[error(
        "PSI (pressure stall information) is off{why}, and the policy `{policy}` needs it. \
         Either the kernel was booted with psi=0, or needs psi=1 (CONFIG_PSI_DEFAULT_DISABLED), \
         or has no CONFIG_PSI, or cgroup.pressure of the cgroup is 0: \
         boot with psi=1, write 1 to cgroup.pressure, or use `--policy headroom`, \
         which needs no PSI."
    )]
    NoPsi {
        /// Name of the policy.
        policy: String,
        /// What the file said that has it, in brackets; empty if it said nothing.
        why: String,
    },

    /// No memory controller where the policy shall be attached.
    #[error(
        "{}: no memory controller in this cgroup ({why}). {remedy}",
        shown::path(path)
    )]
    NoMemoryController {
        /// The cgroup.
        path: PathBuf,
        /// How that was seen.
        why: String,
        /// What to do about it.
        remedy: String,
    },

    /// A policy is attached to this very cgroup already.
    #[error(
        "{}: a policy is attached to this cgroup already; one cgroup takes one. \
         Most likely another mthp_ext runs there: `mthp_ext status` shows it. \
         Stop that one, or choose another --root, which may be above or below this cgroup.",
        shown::path(path)
    )]
    AlreadyAttached {
        /// The cgroup.
        path: PathBuf,
    },

    /// A daemon runs the policy that is to be detached.
    #[error(
        "{}: mthp_ext runs with the policy of this cgroup. \
         Stop it first (`systemctl stop mthp_ext`, or SIGTERM): \
         `detach` is for what it leaves behind.",
        shown::path(path)
    )]
    Running {
        /// Where the policy is pinned.
        path: PathBuf,
    },

    /// A policy cannot outlive the process here.
    #[error(
        "{}: no BPF file system is mounted here, and on-exit = keep (`--on-exit`, or the configuration) pins the \
         policy in it. Run `mount -t bpf bpf {}`, which systemd does at boot, or leave that out.",
        shown::path(path),
        shown::path(path)
    )]
    NoBpffs {
        /// Where it was expected.
        path: PathBuf,
    },

    /// A setting is not as a policy needs it.
    #[error(
        "{count} settings differ from what a policy needs, so there is less for it to give. \
         The kernel boots with all sizes off but one, or somebody has changed them: \
         `mthp_ext settings apply` sets them, but for those that are `left`, \
         and `undo` puts them back."
    )]
    SettingsDiffer {
        /// How many.
        count: usize,
    },

    /// The settings, or where they are saved, may not be written.
    #[error(
        "{}: {source}. Settings of transparent huge pages are root's, \
         and /sys is mounted read-only in most containers: run it as root, on the host.",
        shown::path(path)
    )]
    SettingsNotWritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// The cgroup was removed while the policy ran.
    #[error(
        "{}: the cgroup was removed, and the policy was detached with it. \
         Its service was stopped, or somebody ran `rmdir`: \
         start mthp_ext again on a cgroup that exists.",
        shown::path(path)
    )]
    RootRemoved {
        /// The cgroup.
        path: PathBuf,
    },

    /// Somebody has taken the policy away while it ran.
    #[error(
        "{}: the policy is no longer attached to this cgroup, which is still there. \
         Somebody detached its link (`bpftool link detach`): the system's setting applies there \
         until mthp_ext is started again.",
        shown::path(path)
    )]
    Detached {
        /// The cgroup.
        path: PathBuf,
    },

    /// No cgroup v2 hierarchy at all.
    #[error(
        "{}: no cgroup v2 hierarchy is mounted here. \
         The system uses cgroup v1, or mounts no cgroups: boot with \
         systemd.unified_cgroup_hierarchy=1; \
         where no cgroups are mounted, run `mount -t cgroup2 none /sys/fs/cgroup`.",
        shown::path(path)
    )]
    NoCgroup2 {
        /// Where it was expected.
        path: PathBuf,
    },

    /// No BTF in the kernel.
    #[error(
        "the kernel gives no type information ({}: {source}). \
         It was built without CONFIG_DEBUG_INFO_BTF=y, or /sys is not mounted: \
         mount /sys, or install a kernel with BTF and the mthp_ext series (docs/install.md).",
        shown::path(path)
    )]
    NoBtf {
        /// The file that was tried.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// The scan stopped working.
    #[error(
        "the scan of the cgroups failed: {source}. \
         The policy was detached, as its decisions would have become stale. \
         Memory may have been short: start mthp_ext again; \
         if the error returns, report it with the output of dmesg."
    )]
    Scan {
        /// What the system said.
        source: std::io::Error,
    },

    /// The kernel refused the programs.
    #[error("the kernel refused {what}: {source}. {remedy}{log}")]
    Load {
        /// The policy, or an object of the user's.
        what: String,
        /// Likely reason, and what to do about it.
        remedy: &'static str,
        /// What libbpf said.
        source: libbpf_rs::Error,
        /// The end of libbpf's own messages, empty or starting with a line feed.
        log: String,
    },

    /// There is no daemon to be asked.
    #[error(
        "{}: no mthp_ext answers here ({why}). \
         None runs, it runs on another cgroup, or it could not make its socket and said so: \
         `mthp_ext status` shows where policies are, `systemctl status mthp_ext` the service.",
        shown::path(path)
    )]
    NotRunning {
        /// The cgroup, or the directory of the sockets.
        path: PathBuf,
        /// What the system said.
        why: String,
    },

    /// The daemon did not do what it was asked.
    #[error("{text}")]
    Refused {
        /// Its reason and the remedy.
        text: String,
        /// The exit code for that reason.
        code: u8,
    },

    /// Two files have no cgroup, or nothing of one, in common.
    #[error(
        "{before} and {after} have no figure in common, so nothing was compared. \
         Most likely no policy was attached while one was written, or they are of hosts with other cgroups: \
         `only_before` and `only_after` name those. Take both with a policy attached, a dry run will do."
    )]
    NothingToCompare {
        /// A file, as it is shown.
        before: String,
        /// The other.
        after: String,
    },

    /// Standard output is gone.
    #[error(
        "cannot write to standard output: {source}. \
         The program that reads it has ended, or its disk is full; \
         a policy that was attached is detached. Start again with an output that stays open."
    )]
    Output {
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// A file, or what it is about, that is there and cannot be read: for want of a right, or
    /// because a system call failed.
    pub fn reading(path: &Path, source: std::io::Error) -> Self {
        let path = shown::path(path);
        match source.kind() {
            ErrorKind::PermissionDenied => Error::NoPrivilege {
                what: format!("read {path}"),
            },
            _ => Error::System {
                what: format!("reading {path}"),
                source,
            },
        }
    }

    /// After an answer that lacks `what`, in words with its cause.
    pub fn gaps(what: &str) -> Self {
        let why = format!(
            "{what}: the rest is complete. If memory or descriptors were short, run it again; \
             a container or a security module may forbid it"
        );
        Error::System {
            what: "the answer has gaps".to_owned(),
            source: std::io::Error::other(why),
        }
    }

    /// The documented exit code.
    pub fn code(&self) -> u8 {
        match self {
            Error::System { .. } => 1,
            Error::Usage(_) | Error::Policy { .. } | Error::Config { .. } => 2,
            Error::NotCgroup2 { .. } | Error::NoSuchCgroup { .. } => 3,
            Error::NoPrivilege { .. }
            | Error::NotWritable { .. }
            | Error::SettingsNotWritable { .. }
            | Error::XattrNotWritable { .. } => 4,
            Error::NoHook { .. } | Error::ForeignHook { .. } => 5,
            Error::NoPsi { .. } => 6,
            Error::NoMemoryController { .. } => 7,
            Error::AlreadyAttached { .. } | Error::Running { .. } => 8,
            Error::RootRemoved { .. } => 9,
            Error::NoCgroup2 { .. } => 10,
            Error::NoBtf { .. } => 11,
            Error::Scan { .. } => 12,
            Error::Load { .. } => 13,
            Error::Output { .. } => 14,
            Error::NotBound { .. } | Error::NoEvents { .. } => 15,
            Error::NoBpffs { .. } => 16,
            Error::NotRunning { .. } => 17,
            Error::Refused { code, .. } => (*code).max(1),
            Error::SettingsDiffer { .. } => 18,
            Error::NothingToCompare { .. } => 20,
            Error::Detached { .. } => 21,
        }
    }
}

impl From<&Error> for ExitCode {
    fn from(error: &Error) -> Self {
        ExitCode::from(error.code())
    }
}

/// Adds "what was being done" to an I/O error.
pub trait Context<T> {
    /// Turns the error into [`Error::System`]; `what` is built only then.
    ///
    /// # Errors
    /// Whenever `self` is one.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::System {
            what: what(),
            source: e.into(),
        })
    }
}

/// The exit codes for `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
   0  done; `support`: everything is there
   1  a system call failed
   2  wrong option, value, policy or configuration
   3  no cgroup v2 directory
   4  no privilege
   5  the kernel has no bpf_mthp_ops hook, or another version of it
   6  PSI is off
   7  no memory controller
   8  a policy is attached to this cgroup already
   9  the cgroup was removed while the policy ran
  10  no cgroup v2 hierarchy
  11  the kernel has no BTF
  12  the scan failed
  13  the kernel refused the policy
  14  standard output was closed
  15  no policy binds the cgroup; `events`: no daemon runs
  16  no BPF file system for `--on-exit keep`
  17  no daemon answers
  18  `settings show`: a setting differs from what a policy needs
  19  `compare`: something differs by more than noise
  20  `compare`: the two files have no figure in common
  21  somebody detached the policy while it ran";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::model::shown::tests::HOSTILE;

    fn io() -> std::io::Error {
        std::io::Error::from_raw_os_error(1)
    }

    fn all() -> Vec<Error> {
        let path = PathBuf::from(OsStr::from_bytes(HOSTILE));
        let text = String::new;
        vec![
            Error::System {
                what: text(),
                source: io(),
            },
            Error::Usage(text()),
            Error::Policy {
                place: text(),
                what: text(),
            },
            Error::Config {
                file: path.clone(),
                what: text(),
            },
            Error::NotCgroup2 {
                path: path.clone(),
                why: text(),
            },
            Error::NoPrivilege { what: text() },
            Error::NotWritable { path: path.clone() },
            Error::NoHook {
                release: text(),
                cause: text(),
                remedy: "",
            },
            Error::ForeignHook { release: text() },
            Error::NoPsi {
                policy: text(),
                why: text(),
            },
            Error::NoMemoryController {
                path: path.clone(),
                why: text(),
                remedy: text(),
            },
            Error::AlreadyAttached { path: path.clone() },
            Error::RootRemoved { path: path.clone() },
            Error::Running { path: path.clone() },
            Error::Detached { path: path.clone() },
            Error::NoBpffs { path: path.clone() },
            Error::SettingsDiffer { count: 1 },
            Error::SettingsNotWritable {
                path: path.clone(),
                source: io(),
            },
            Error::XattrNotWritable {
                path: path.clone(),
                source: io(),
            },
            Error::NoCgroup2 { path: path.clone() },
            Error::NoBtf {
                path: path.clone(),
                source: io(),
            },
            Error::Scan { source: io() },
            Error::Load {
                what: text(),
                remedy: "",
                source: libbpf_rs::Error::from_raw_os_error(1),
                log: text(),
            },
            Error::Output { source: io() },
            Error::NoSuchCgroup {
                name: text(),
                why: text(),
            },
            Error::NotBound {
                name: text(),
                setting: text(),
            },
            Error::NoEvents {
                what: text(),
                directory: PathBuf::from("/p"),
            },
            Error::NotRunning {
                path: path.clone(),
                why: text(),
            },
            Error::NothingToCompare {
                before: text(),
                after: text(),
            },
            Error::Refused {
                text: text(),
                code: 0,
            },
        ]
    }

    /// A new one that shares the code of another is looked at, too.
    #[test]
    fn all_of_them_are_tested() {
        let source = include_str!("errors.rs").split("#[cfg(test)]").next();
        let messages = source.unwrap().matches("\n    #[error(").count();
        let kinds: HashSet<_> = all().iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), messages);
    }

    #[test]
    fn exit_codes_have_no_gap_and_are_never_success() {
        let mut codes: Vec<u8> = all().iter().map(Error::code).collect();
        codes.sort_unstable();
        codes.dedup();
        // 19 is no failure: what was compared differs.
        let wanted: Vec<u8> = (1..=21).filter(|code| *code != 19).collect();
        assert_eq!(codes, wanted);
    }

    #[test]
    fn help_and_documentation_list_every_code() {
        let page = include_str!("../docs/exit-codes.md");
        for error in all() {
            let code = error.code();
            assert!(
                EXIT_CODES.contains(&format!("\n{code:4}  ")),
                "--help lacks {code}"
            );
            assert!(
                page.contains(&format!("\n| {code} |")),
                "docs/exit-codes.md lacks {code}"
            );
        }
    }

    #[test]
    fn each_errno_has_a_remedy() {
        for number in 1..134 {
            let what = "doing it".to_owned();
            let source = std::io::Error::from_raw_os_error(number);
            let cause = source.to_string();
            let text = Error::System { what, source }.to_string();
            let remedy = text.strip_prefix(&format!("doing it: {cause}. "));
            assert!(remedy.is_some_and(|text| text.len() > 30), "{text}");
        }
        let source = Errno::EBUSY.into();
        let what = "doing it (somebody does)".to_owned();
        let text = Error::System { what, source }.to_string();
        assert!(
            text.ends_with("(somebody does): Device or resource busy (os error 16)"),
            "{text}"
        );
    }

    /// That is the cause's: src/kernel/absent.rs.
    #[test]
    fn a_missing_hook_is_one_sentence_with_its_cause_and_one_with_its_remedy() {
        let text = Error::NoHook {
            release: "6.1".to_owned(),
            cause: "it has none".to_owned(),
            remedy: "run `modprobe mthp_hook`",
        }
        .to_string();
        assert_eq!(
            text,
            "this kernel (6.1) has no bpf_mthp_ops hook: it has none. To mend that, run `modprobe mthp_hook`. \
             `mthp_ext support` lists what is missing."
        );
    }

    #[test]
    fn messages_are_one_line() {
        for error in all() {
            assert!(!error.to_string().contains(char::is_control), "{error:?}");
        }
    }
}
