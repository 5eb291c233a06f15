// SPDX-License-Identifier: GPL-2.0-only
//! Policies that outlive their daemon: pinned in the BPF file system, in a directory for each
//! cgroup.  The daemon that runs the policy has that locked.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

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

/// Ends the name of a pin that is to take the place of another one.
const NEW: &str = "-new";

/// What is kept of each cgroup.  Another version lays it out in another way, and has another
/// name for it.
pub fn storage() -> String {
    format!("cgroups-{:x}", abi::ABI.0)
}

/// Windows without a scan after which a policy with the rule pressure passes everything.  What it
/// passes then is `always`, perhaps on a host that stalls: so it is far more than such a host delays
/// a daemon by, and less than people take to see that one is gone.
const WINDOWS: u64 = 16;

/// But no less than a restart takes, or it would make the gap that is not to be: a second of
/// waiting and some of loading, several times that on a busy host.
const RESTART_NS: u64 = 5_000_000_000;

/// How old the last scan may be, in ns.
pub fn oldest(window_ns: u64) -> u64 {
    WINDOWS.saturating_mul(window_ns).max(RESTART_NS)
}

/// The directory of a cgroup's policy, with this process as its owner: it holds a lock on it, which
/// ends with the process, however that ends, and counts whatever namespaces the others live in.
pub struct Place {
    path: PathBuf,
    _lock: Flock<File>,
}

/// How often a place that another one has is asked for again, and after which time: who sweeps, or
/// has just lost it, holds it for a moment.
const ATTEMPTS: u32 = 10;
const MOMENT: Duration = Duration::from_millis(10);

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
        match statfs(BPFFS) {
            Ok(found) if found.filesystem_type() == BPF_FS_MAGIC => {}
            Ok(_) | Err(Errno::ENOENT) => return Err(Error::NoBpffs { path: BPFFS.into() }),
            Err(e) => return Err(Error::reading(Path::new(BPFFS), e.into())),
        }
        let path = Self::path_of(root);
        // One that sweeps may take an empty directory away before it is locked.
        for _ in 0..ATTEMPTS {
            if let Some(place) = Self::find(root)? {
                return Ok(place);
            }
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(&path);
            made.context(|| format!("making {}", path.display()))?;
        }
        Err(Error::AlreadyAttached {
            path: root.path.clone(),
        })
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
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(MOMENT);
            }
            match Self::lock(path) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                done => return done.context(|| format!("claiming {}", path.display())),
            }
        }
        Err(Error::Running {
            path: path.to_owned(),
        })
    }

    /// The same, if nobody has it now.
    fn lock(path: &Path) -> io::Result<Option<Self>> {
        let Some(directory) = unless_missing(File::open(path))? else {
            return Ok(None);
        };
        let inode = directory.metadata()?.ino();
        let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, errno)| io::Error::from(errno))?;
        // The one that had it may have removed it, and another one made it anew.
        match unless_missing(fs::metadata(path))? {
            None => Ok(None),
            Some(now) if now.ino() != inode => Err(ErrorKind::WouldBlock.into()),
            Some(_) => Ok(Some(Place {
                path: path.to_owned(),
                _lock: lock,
            })),
        }
    }

    /// Removes what is of no use to anybody: a policy ends with its cgroup, and its pins would
    /// keep the programs; one that was killed early may have pinned nothing.  Who has no right to
    /// look leaves it as it is.
    pub fn sweep() {
        for path in directories().unwrap_or_default() {
            // A daemon that runs has its lock, and removes its own.
            if let Ok(Some(place)) = Self::lock(&path) {
                if matches!(place.link(), Ok(None)) {
                    let _ = place.remove();
                }
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

    /// Pins all that outlives the process, beside what there is: nobody looks for it yet.
    ///
    /// # Errors
    /// Whatever the BPF file system refuses.
    pub fn prepare(
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
            // Of one that was killed.
            self.take_back()?;
            for (name, fd) in all {
                if let Some(fd) = fd {
                    pin(fd, &self.path.join(format!("{name}{NEW}")))?;
                }
            }
            Ok(())
        };
        pins().context(|| format!("pinning the policy in {}", self.path.display()))
    }

    /// Removes what was prepared.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn take_back(&self) -> io::Result<()> {
        let names = names(&self.path)?;
        let mut new = names.iter().filter(|name| name.ends_with(NEW));
        new.try_for_each(|name| unless_missing(fs::remove_file(self.path.join(name))).map(drop))
    }

    /// What was prepared takes the place of what there is; at no time is the policy without its
    /// pins.
    ///
    /// # Errors
    /// Whatever the BPF file system refuses.
    pub fn pin(&self) -> Result<()> {
        let pins = || -> io::Result<()> {
            let (new, old): (Vec<String>, Vec<String>) = names(&self.path)?
                .into_iter()
                .partition(|name| name.ends_with(NEW));
            let now: Vec<&str> = new.iter().filter_map(|n| n.strip_suffix(NEW)).collect();
            for name in &now {
                fs::rename(self.path.join(format!("{name}{NEW}")), self.path.join(name))?;
            }
            // Of another version, or of programs that shared what this one does not.
            for name in old.iter().filter(|name| !now.contains(&name.as_str())) {
                unless_missing(fs::remove_file(self.path.join(name)))?;
            }
            Ok(())
        };
        pins().context(|| format!("pinning the policy in {}", self.path.display()))
    }

    /// Removes the pins.  A policy that nobody else holds ends with them.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn remove(&self) -> Result<()> {
        let removed = || -> io::Result<()> {
            for name in names(&self.path)? {
                fs::remove_file(self.path.join(name))?;
            }
            for path in [Some(self.path.as_path()), self.path.parent()] {
                match path.map_or(Ok(()), fs::remove_dir) {
                    // Others are kept.
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
    fn a_place_is_had_by_one_until_he_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("places").join("1");
        assert!(Place::claim(&path).unwrap().is_none());
        fs::create_dir_all(&path).unwrap();
        let mine = Place::claim(&path).unwrap().unwrap();
        let refused = Place::claim(&path).err().unwrap();
        assert_eq!(refused.code(), 8, "{refused}");
        // Whoever holds it for a moment is waited for.
        let others = std::thread::spawn(move || {
            sleep(MOMENT * 2);
            drop(mine);
        });
        let mine = Place::claim(&path).unwrap().unwrap();
        others.join().unwrap();
        mine.remove().unwrap();
        assert!(!path.exists() && dir.path().exists());
    }

    /// What was removed and made anew while one waited is another place.
    #[test]
    fn a_directory_that_is_gone_is_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("places").join("1");
        fs::create_dir_all(&path).unwrap();
        // Nothing of ours was pinned, and it was killed.
        let mine = Place::lock(&path).unwrap().unwrap();
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let other = Place::lock(&path).unwrap().unwrap();
        assert!(Place::lock(&path).is_err());
        drop((mine, other));
    }
}
