// SPDX-License-Identifier: GPL-2.0-only
//! Policies that outlive their daemon: pinned in the BPF file system, in a directory for each
//! cgroup.  An entry in it names the daemon that runs the policy.

use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::Pid;

use super::cgroup::Cgroup;
use super::{carrier, links};
use crate::errors::{Context, Error, Result};
use crate::model::abi;

/// Where BPF file systems are mounted.
const BPFFS: &str = "/sys/fs/bpf";

/// Where the directories are.
const DIRECTORY: &str = "/sys/fs/bpf/mthp_ext";

/// The names in a directory: what attaches the policy, and what `status` asks.
const LINK: &str = "link";
const EXPLAIN: &str = "explain";

/// What is kept of each cgroup.  Another version lays it out in another way, and has another
/// name for it.
pub fn storage() -> String {
    format!("cgroups-{:x}", abi::ABI.0)
}

/// Windows without a scan after which a policy passes everything.  A verdict of pressure holds
/// for 64 windows at most, so for no more than a quarter of that it is believed unseen.
const WINDOWS: u64 = 16;

/// But no less than a restart takes, or it would make the gap that is not to be: a second of
/// waiting and some of loading, several times that on a busy host.
const RESTART_NS: u64 = 5_000_000_000;

/// How old the last scan may be, in ns.
pub fn oldest(window_ns: u64) -> u64 {
    WINDOWS.saturating_mul(window_ns).max(RESTART_NS)
}

/// The directory of a cgroup's policy, with this process as its owner.
pub struct Place {
    path: PathBuf,
}

/// How the entry begins that names the owner.  A file system for BPF objects has no files to be
/// locked, so this is an empty directory.
const OWNER: &str = "owner-";

/// The entry of this process.
fn mine() -> String {
    let pid = std::process::id();
    format!("{OWNER}{pid}-{}", began(pid).unwrap_or_default())
}

/// When a process began, in the kernel's ticks: another one of the same number began later.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After its name, which may hold anything, the 20th.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// Does the process of such an entry live?  One that may not be looked at is taken for it.
fn lives(owner: &str) -> bool {
    let name = owner
        .strip_prefix(OWNER)
        .and_then(|name| name.split_once('-'));
    let Some((pid, then)) = name else {
        return false;
    };
    let (Ok(pid), Ok(then)) = (pid.parse::<u32>(), then.parse::<u64>()) else {
        return false;
    };
    let there = i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), None));
    if there == Ok(Err(Errno::ESRCH)) {
        return false;
    }
    began(pid).is_none_or(|now| now == then)
}

/// The names in a directory.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(path)?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(io::Error::other)
}

fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the descriptor is open, and the path ends with 0.
    match unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// What is pinned under a name, if anything is.
fn pinned(path: &Path) -> io::Result<Option<OwnedFd>> {
    let path = c_path(path)?;
    // SAFETY: the path ends with 0.
    let fd = unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) };
    if fd >= 0 {
        // SAFETY: just made by the kernel, owned by nobody else.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    unless_missing(Err(io::Error::from_raw_os_error(-fd)))
}

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

impl Place {
    fn path_of(root: &Cgroup) -> PathBuf {
        Path::new(DIRECTORY).join(root.id.to_string())
    }

    /// The place of a cgroup's policy, if one was left there.
    ///
    /// # Errors
    /// [`Error::AlreadyAttached`] if another process runs it.
    pub fn find(root: &Cgroup) -> Result<Option<Self>> {
        Self::left(root).map_err(|error| match error {
            Error::Running { .. } => Error::AlreadyAttached {
                path: root.path.clone(),
            },
            other => other,
        })
    }

    /// The same, for those who do not attach.
    ///
    /// # Errors
    /// [`Error::Running`] if another process runs it.
    pub fn left(root: &Cgroup) -> Result<Option<Self>> {
        Self::claim(&Self::path_of(root))
    }

    /// The same, made if there is none.
    ///
    /// # Errors
    /// Beside those of [`Self::find`], [`Error::NoBpffs`].
    pub fn make(root: &Cgroup) -> Result<Self> {
        if !statfs(BPFFS).is_ok_and(|s| s.filesystem_type() == BPF_FS_MAGIC) {
            return Err(Error::NoBpffs { path: BPFFS.into() });
        }
        if let Some(place) = Self::find(root)? {
            return Ok(place);
        }
        let path = Self::path_of(root);
        // With its owner from the first moment on: made beside, then put there.
        let new = Path::new(DIRECTORY).join(format!("new-{}", std::process::id()));
        let made = || -> io::Result<()> {
            let mut builder = fs::DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(new.join(mine()))?;
            fs::rename(&new, &path).inspect_err(|_| {
                let _ = fs::remove_dir(new.join(mine()));
                let _ = fs::remove_dir(&new);
            })
        };
        match made() {
            Ok(()) => Ok(Place { path }),
            // Another one came first.
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => Err(Error::AlreadyAttached {
                path: root.path.clone(),
            }),
            Err(e) => Err(e).context(|| format!("making {}", path.display())),
        }
    }

    /// All places of the system that nobody runs; [`Error::Running`] in the place of others.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn all() -> Result<Vec<Result<Self>>> {
        let paths = directories().context(|| format!("listing {DIRECTORY}"))?;
        Ok(paths
            .iter()
            .filter_map(|path| Self::claim(path).transpose())
            .collect())
    }

    /// `None` if there is no such directory.
    fn claim(path: &Path) -> Result<Option<Self>> {
        let what = || format!("claiming {}", path.display());
        let Some(names) = unless_missing(names(path)).context(what)? else {
            return Ok(None);
        };
        let path = path.to_owned();
        let mine = mine();
        let is_owner = |name: &&String| name.starts_with(OWNER) && **name != mine;
        let others: Vec<&String> = names.iter().filter(is_owner).collect();
        if others.iter().any(|name| lives(name)) {
            return Err(Error::Running { path });
        }
        // Of two that find it without an owner, one finds the old name gone.
        match (names.contains(&mine), others.first()) {
            (true, _) => {}
            (false, None) => return Self::claim_ownerless(path),
            (false, Some(dead)) => match fs::rename(path.join(dead), path.join(&mine)) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => return Err(Error::Running { path }),
                Err(e) => return Err(e).context(what),
            },
        }
        // One killed while it claimed may have left a second: nobody is to mistake it for ours.
        for dead in others {
            let _ = fs::remove_dir(path.join(dead));
        }
        Ok(Some(Place { path }))
    }

    /// Of those who come at the same time at most one has it.
    fn claim_ownerless(path: PathBuf) -> Result<Option<Self>> {
        let what = || format!("claiming {}", path.display());
        // Somebody is removing it, or was killed over that: then it is empty.
        match fs::remove_dir(&path) {
            Ok(()) => return Ok(None),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(e) => return Err(e).context(what),
        }
        let mine = mine();
        let names = fs::create_dir(path.join(&mine))
            .and_then(|()| names(&path))
            .context(what)?;
        let mut others = names.iter().filter(|name| **name != mine);
        if others.any(|name| name.starts_with(OWNER) && lives(name)) {
            let _ = fs::remove_dir(path.join(&mine));
            return Err(Error::Running { path });
        }
        Ok(Some(Place { path }))
    }

    /// Removes what is of no use to anybody: a policy ends with its cgroup, and its pins would
    /// keep the programs.  Who has no right to look leaves it as it is.
    pub fn sweep() {
        for path in directories().unwrap_or_default() {
            let gone = |link: &OwnedFd| {
                links::info(link.as_fd())
                    .and_then(carrier::bound)
                    .is_ok_and(|i| i.cgroup_id == 0)
            };
            match pinned(&path.join(LINK)) {
                Ok(Some(link)) if gone(&link) => {}
                _ => continue,
            }
            // A daemon that runs removes its own.
            if let Ok(Some(place)) = Self::claim(&path) {
                let _ = place.remove();
            }
        }
    }

    /// The link that attaches the policy; `None` if there is none, or its cgroup is gone.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn link(&self) -> Result<Option<(OwnedFd, links::LinkInfo)>> {
        let what = || format!("opening the link in {}", self.path.display());
        let Some(link) = pinned(&self.path.join(LINK)).context(what)? else {
            return Ok(None);
        };
        let info = links::info(link.as_fd()).and_then(carrier::bound);
        let info = info.context(what)?;
        Ok((info.cgroup_id != 0).then_some((link, info)))
    }

    /// What was kept of each cgroup, if this version can read it.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn storage(&self) -> Result<Option<OwnedFd>> {
        pinned(&self.path.join(storage()))
            .context(|| format!("opening the storage in {}", self.path.display()))
    }

    /// Pins all that outlives the process, in the place of what there is.
    ///
    /// # Errors
    /// Whatever the BPF file system refuses.
    pub fn pin(
        &self,
        link: BorrowedFd<'_>,
        explain: Option<BorrowedFd<'_>>,
        cgroups: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        let storage = storage();
        let all = [
            (LINK, Some(link)),
            (EXPLAIN, explain),
            (storage.as_str(), cgroups),
        ];
        let pins = || -> io::Result<()> {
            for (name, fd) in all {
                if let Some(fd) = fd {
                    // Under another name first: at no time is the policy without its pins.
                    let new = self.path.join(format!("{name}-new"));
                    unless_missing(fs::remove_file(&new))?;
                    pin(fd, &new)?;
                    fs::rename(&new, self.path.join(name))?;
                }
            }
            // Of another version, or of programs that shared what this one does not.
            let now = |name: &str| {
                all.iter()
                    .any(|(pinned, fd)| *pinned == name && fd.is_some())
            };
            for name in names(&self.path)? {
                if !name.starts_with(OWNER) && !now(&name) {
                    unless_missing(fs::remove_file(self.path.join(name)))?;
                }
            }
            Ok(())
        };
        pins().context(|| format!("pinning the policy in {}", self.path.display()))
    }

    /// Removes the pins.  A policy that nobody else holds ends with them.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn remove(self) -> Result<()> {
        let removed = || -> io::Result<()> {
            let (owners, pins): (Vec<_>, Vec<_>) = names(&self.path)?
                .into_iter()
                .partition(|name| name.starts_with(OWNER));
            for name in pins {
                fs::remove_file(self.path.join(name))?;
            }
            for name in owners {
                fs::remove_dir(self.path.join(name))?;
            }
            for path in [&self.path, Path::new(DIRECTORY)] {
                match fs::remove_dir(path) {
                    // Somebody has made it his own, or removed it, or others are kept.
                    Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => break,
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    done => done?,
                }
            }
            Ok(())
        };
        removed().context(|| format!("removing {}", self.path.display()))
    }

    /// Detaches the policy and removes its pins; the link's info, if it was attached.
    ///
    /// # Errors
    /// If a pin cannot be opened or removed.
    pub fn detach(self) -> Result<Option<links::LinkInfo>> {
        let found = self.link()?;
        if let Some((link, _)) = &found {
            carrier::detach(link);
        }
        self.remove()?;
        Ok(found.map(|(_, info)| info))
    }
}

/// The directories of all policies.
fn directories() -> io::Result<Vec<PathBuf>> {
    let Some(entries) = unless_missing(fs::read_dir(DIRECTORY))? else {
        return Ok(Vec::new());
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.sort();
    Ok(paths)
}

/// Ids of all links that are pinned, whoever runs them.
///
/// # Errors
/// If a pin cannot be opened.
pub fn links() -> Result<Vec<u32>> {
    let ids = || -> io::Result<Vec<u32>> {
        let mut ids = Vec::new();
        for directory in directories()? {
            if let Some(link) = pinned(&directory.join(LINK))? {
                ids.push(links::info(link.as_fd())?.id);
            }
        }
        Ok(ids)
    };
    ids().context(|| format!("looking for pinned policies in {DIRECTORY}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_does_not_age_within_a_restart() {
        let ms = |ms: u64| ms * 1_000_000;
        assert_eq!(oldest(ms(1000)), ms(16_000));
        assert_eq!(oldest(ms(100)), RESTART_NS);
        assert_eq!(oldest(u64::MAX), u64::MAX);
    }

    #[test]
    fn an_owner_lives_as_long_as_its_process() {
        assert!(lives(&mine()));
        let pid = std::process::id();
        assert!(!lives(&format!("{OWNER}{pid}-1")), "it began later");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (pid, then) = (child.id(), began(child.id()).unwrap());
        child.wait().unwrap();
        assert!(!lives(&format!("{OWNER}{pid}-{then}")));
        assert!(!lives("owner-x"));
    }
}
