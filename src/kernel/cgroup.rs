// SPDX-License-Identifier: GPL-2.0-only
//! Cgroup v2 directories: what they are, their ids and names.
//!
//! Files are read below a path that the caller gives, so the tests run on a
//! tree of plain files.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::locate::Locator;
use crate::errors::{Error, Result};
use crate::model::shown::{self, shown};

/// The usual mount point.
pub const DEFAULT_MOUNT: &str = "/sys/fs/cgroup";

/// Remedy where a cgroup lacks the memory controller that the hierarchy has.
pub const ENABLE_MEMORY: &str = "A cgroup above does not enable it: \
     run `echo +memory > cgroup.subtree_control` in each cgroup above this one.";

/// Is this path known to be inside a cgroup2 file system?
pub fn is_cgroup2(path: &Path) -> bool {
    on_cgroup2(path).is_ok_and(|is| is)
}

fn on_cgroup2(path: &Path) -> io::Result<bool> {
    Ok(statfs(path)?.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// A cgroup v2 directory, checked.
#[derive(Clone, Debug)]
pub struct Cgroup {
    /// The directory, without symbolic links.
    pub path: PathBuf,
    /// Top directory of the hierarchy as far as it is mounted here.
    pub mount: PathBuf,
    /// Id of the cgroup: the inode number of its directory.
    pub id: u64,
}

impl Cgroup {
    /// Checks that `path` is a directory of a cgroup v2 hierarchy.
    ///
    /// # Errors
    /// [`Error::NoCgroup2`] if the usual mount point has none at all,
    /// [`Error::NotCgroup2`] with what the path is instead, or a failed system call.
    pub fn open(path: &Path) -> Result<Self> {
        let not = |why: &str| Error::NotCgroup2 {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        let unread = |source| Error::reading(path, source);
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(not("there is nothing by this name"));
            }
            // What no path of a cgroup has.
            Err(e) if is_one_of(&e, &[Errno::ENOTDIR, Errno::ELOOP, Errno::ENAMETOOLONG]) => {
                return Err(not(&e.to_string()));
            }
            Err(e) => return Err(unread(e)),
        };
        let meta = fs::metadata(&real).map_err(unread)?;
        if !on_cgroup2(&real).map_err(unread)? {
            if path == Path::new(DEFAULT_MOUNT) {
                return Err(Error::NoCgroup2 {
                    path: path.to_owned(),
                });
            }
            return Err(not("it is on another file system"));
        }
        if !meta.is_dir() {
            return Err(not("it is a file"));
        }
        let mut mount = real.as_path();
        while let Some(up) = mount.parent().filter(|up| is_cgroup2(up)) {
            mount = up;
        }
        Ok(Cgroup {
            mount: mount.to_owned(),
            id: meta.ino(),
            path: real,
        })
    }

    /// Is it still there?  A cgroup that is being removed loses its own files
    /// first, `cgroup.procs` among them before the pressure files; a cgroup
    /// made anew by the same name is another.
    pub fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|meta| meta.ino() == self.id)
            && self.path.join("cgroup.procs").exists()
    }

    /// Does the memory controller account for this cgroup?
    ///
    /// # Errors
    /// [`Error::NoMemoryController`] with the remedy that fits, or a failed system call.
    pub fn require_memory(&self) -> Result<()> {
        let has = |dir: &Path| {
            let file = dir.join("cgroup.controllers");
            match fs::read_to_string(&file) {
                Ok(controllers) => Ok(controllers.split_whitespace().any(|c| c == "memory")),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(e) => Err(Error::reading(&file, e)),
            }
        };
        if has(&self.path)? {
            return Ok(());
        }
        let (why, remedy) = match has(&self.mount)? {
            true => (
                "cgroup.controllers does not list it".to_owned(),
                ENABLE_MEMORY,
            ),
            false => (
                "the whole hierarchy has none".to_owned(),
                "It is disabled (cgroup_disable=memory), not built in (CONFIG_MEMCG), or on \
                 cgroup v1: boot without that option, or with systemd.unified_cgroup_hierarchy=1.",
            ),
        };
        Err(Error::NoMemoryController {
            path: self.path.clone(),
            why,
            remedy: remedy.to_owned(),
        })
    }
}

/// Names of cgroups by id, relative to the mount: `/`, `/system.slice`.
pub struct Names {
    mount: PathBuf,
    /// Who is asked first.
    locator: OnceCell<Locator>,
    known: RefCell<HashMap<u64, PathBuf>>,
}

impl Names {
    /// Names below `mount`; read when first asked for.
    pub fn new(mount: &Path) -> Self {
        Names {
            mount: mount.to_owned(),
            locator: OnceCell::new(),
            known: RefCell::default(),
        }
    }

    /// From now on a loaded program is asked.
    pub fn ask(&self, locator: Locator) {
        // There is one for good.
        let _ = self.locator.set(locator);
    }

    /// Name of a directory below the mount, as it is shown.
    pub fn of_path(&self, path: &Path) -> String {
        let bytes = |path: &Path| shown(path.as_os_str().as_bytes());
        match path.strip_prefix(&self.mount) {
            Ok(rest) => format!("/{}", bytes(rest)),
            Err(_) => bytes(path),
        }
    }

    /// Name of the cgroup with this id.  A cgroup that is gone, or that lies
    /// outside of what is mounted here, is named `(id N)`.
    pub fn of_id(&self, id: u64) -> String {
        let path = self.path_of_id(id).ok().flatten();
        path.map_or_else(|| format!("(id {id})"), |path| self.of_path(&path))
    }

    /// Directory of the cgroup with this id; `None` if it is gone, or outside of what is mounted
    /// here.  The kernel finds it; where it may not be asked, every cgroup is looked at.
    ///
    /// # Errors
    /// If it was not found, and not all of them could be looked at.
    pub fn path_of_id(&self, id: u64) -> std::result::Result<Option<PathBuf>, Unlisted> {
        if let Some(path) = self.known.borrow().get(&id) {
            return Ok(Some(path.clone()));
        }
        if let Ok(found) = self.at_once(id) {
            return Ok(found);
        }
        let mut all = HashMap::new();
        let unlisted = walk(&self.mount, &mut |path, ino| {
            all.insert(ino, path.to_owned());
        });
        self.known.replace(all);
        match (self.known.borrow().get(&id), unlisted.into_iter().next()) {
            (None, Some(first)) => Err(first),
            (found, _) => Ok(found.cloned()),
        }
    }

    /// The same, and nothing else is looked at: by the program, or by a handle, which takes
    /// CAP_DAC_READ_SEARCH.
    ///
    /// # Errors
    /// If neither may be asked.
    pub fn at_once(&self, id: u64) -> io::Result<Option<PathBuf>> {
        if let Some(Ok(found)) = self.locator.get().map(|one| one.path(id)) {
            return Ok(found);
        }
        if !is_cgroup2(&self.mount) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        match by_id(&self.mount, id) {
            // Outside of what is mounted here it has another path, or none.
            Ok(path) => Ok(Some(path).filter(|path| path.starts_with(&self.mount))),
            Err(e) if e.kind() == io::ErrorKind::StaleNetworkFileHandle => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The id of the cgroup in a directory; `None` if it has gone.
///
/// # Errors
/// If it cannot be looked at.
pub fn id_of(dir: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(dir) {
        Ok(meta) => Ok(Some(meta.ino())),
        Err(e) if goes(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// What `name_to_handle_at` makes of a cgroup (`FILEID_KERNFS`): its id.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    id: u64,
}

/// The directory of a cgroup, without a walk.
///
/// # Errors
/// `ESTALE` if it has gone; `EPERM` without CAP_DAC_READ_SEARCH.
fn by_id(mount: &Path, id: u64) -> io::Result<PathBuf> {
    let mount = fs::File::open(mount)?;
    let mut handle = Handle {
        bytes: 8,
        kind: 0xfe,
        id,
    };
    // SAFETY: the handle is laid out as the kernel's, and has as many bytes as it says.
    let fd = unsafe {
        nix::libc::open_by_handle_at(
            mount.as_raw_fd(),
            (&raw mut handle).cast(),
            nix::libc::O_PATH | nix::libc::O_DIRECTORY | nix::libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made by the kernel, owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// A cgroup that could not be looked into, and why.
#[derive(Debug)]
pub struct Unlisted {
    /// Its directory.
    pub path: PathBuf,
    /// Id of the nearest one that was visited: its own, or that of the one above it; 0: none.
    pub nearest: u64,
    /// What the system said.
    pub source: io::Error,
}

impl fmt::Display for Unlisted {
    /// "/sys/fs/cgroup/a: Permission denied (os error 13)"
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", shown::path(&self.path), self.source)
    }
}

/// Is it what the kernel has for a cgroup's directory that goes?
pub fn goes(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::ENOENT, Errno::ENODEV])
}

/// Is it one of these?
fn is_one_of(error: &io::Error, these: &[Errno]) -> bool {
    these
        .iter()
        .any(|errno| error.raw_os_error() == Some(*errno as i32))
}

/// Visits `dir` and all directories below it, parents first, in order of name.
/// What vanishes is left out: cgroups come and go.  Returns those that could not be looked into:
/// of what is below them some, or all, was not visited.
#[must_use = "who takes what was visited for all there is loses what was not"]
pub fn walk(dir: &Path, visit: &mut impl FnMut(&Path, u64)) -> Vec<Unlisted> {
    let mut unlisted = Vec::new();
    walk_on(dir, 0, visit, &mut unlisted);
    unlisted
}

fn walk_on(
    dir: &Path,
    above: u64,
    visit: &mut impl FnMut(&Path, u64),
    unlisted: &mut Vec<Unlisted>,
) {
    let (mut children, mut nearest) = (Vec::new(), above);
    let listed = fs::metadata(dir).and_then(|meta| {
        nearest = meta.ino();
        visit(dir, nearest);
        // Two links and one for each directory in it, in kernfs as elsewhere.  A cgroup has some 60
        // files, and most have nothing below them.
        if meta.nlink() == 2 {
            return Ok(());
        }
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                children.push(entry.path());
            }
        }
        Ok(())
    });
    if let Err(source) = listed {
        if !goes(&source) {
            unlisted.push(Unlisted {
                path: dir.to_owned(),
                nearest,
                source,
            });
        }
    }
    children.sort();
    for child in children {
        walk_on(&child, nearest, visit, unlisted);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::model::shown::tests::HOSTILE;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    #[test]
    fn a_plain_directory_is_no_cgroup() {
        let t = tempfile::tempdir().unwrap();
        let file = t.path().join("file");
        fs::write(&file, "").unwrap();
        let long = t.path().join("x".repeat(300));
        for typing_error in [file.join("below"), long] {
            assert_eq!(Cgroup::open(&typing_error).unwrap_err().code(), 3);
        }
        assert_eq!(Cgroup::open(t.path()).unwrap_err().code(), 3);
        assert_eq!(Cgroup::open(&t.path().join("none")).unwrap_err().code(), 3);
    }

    #[test]
    fn names_are_relative_to_the_mount() {
        let t = tree(&[("x/y/file", "")]);
        let names = Names::new(t.path());
        let id = fs::metadata(t.path().join("x/y")).unwrap().ino();
        assert_eq!(names.of_id(id), "/x/y");
        assert_eq!(names.of_path(t.path()), "/");
        assert_eq!(names.path_of_id(id).unwrap(), Some(t.path().join("x/y")));
        assert_eq!(names.of_id(0), "(id 0)");
        assert_eq!(names.path_of_id(0).unwrap(), None);
    }

    #[test]
    fn a_hostile_name_is_found_and_harmless() {
        let t = tempfile::tempdir().unwrap();
        let path = t.path().join(OsStr::from_bytes(HOSTILE));
        fs::create_dir(&path).unwrap();
        let names = Names::new(t.path());
        let id = fs::metadata(&path).unwrap().ino();
        assert_eq!(names.path_of_id(id).unwrap(), Some(path));
        assert_eq!(names.of_id(id), format!("/{}", shown(HOSTILE)));
    }

    #[test]
    fn a_cgroup_made_later_is_found() {
        let t = tree(&[("x/file", "")]);
        let names = Names::new(t.path());
        assert_eq!(names.of_path(&t.path().join("x")), "/x");
        let _ = names.of_id(1);
        fs::create_dir(t.path().join("later")).unwrap();
        let id = fs::metadata(t.path().join("later")).unwrap().ino();
        assert_eq!(names.of_id(id), "/later");
    }

    #[test]
    fn the_memory_controller_must_be_where_it_counts() {
        let t = tree(&[
            ("cgroup.controllers", "cpu memory\n"),
            ("a/cgroup.controllers", "cpu\n"),
            ("b/cgroup.controllers", "memory\n"),
        ]);
        let at = |p: &str| Cgroup {
            path: t.path().join(p),
            mount: t.path().to_owned(),
            id: 0,
        };
        assert!(at("b").require_memory().is_ok());
        let error = at("a").require_memory().unwrap_err();
        assert_eq!(error.code(), 7);
        assert!(error.to_string().contains("+memory"), "{error}");

        let none = tree(&[("a/cgroup.controllers", "cpu\n")]);
        let group = Cgroup {
            path: none.path().join("a"),
            mount: none.path().to_owned(),
            id: 0,
        };
        let error = group.require_memory().unwrap_err();
        assert!(error.to_string().contains("cgroup_disable"), "{error}");
    }
}
