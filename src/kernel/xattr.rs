// SPDX-License-Identifier: GPL-2.0-only
//! What a cgroup says for itself: an extended attribute of its directory, and who may write it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{XattrFlags, fgetxattr, lgetxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::cgroup;
use crate::errors::{Context, Error, Result};
use crate::model::config::XATTR;
use crate::model::shown;

/// Bytes of the longest value that is read; all options together have fewer.
pub const LONGEST: usize = 512;

/// The value, and who may write it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Xattr {
    /// `None`: longer than [`LONGEST`].
    pub value: Option<Vec<u8>>,
    /// Others than root, in words: who has the directory writes what he likes.
    pub others: Option<String>,
}

impl Xattr {
    /// Its value as it is shown.
    pub fn shown(&self) -> String {
        match &self.value {
            Some(value) => shown::shown(value),
            None => format!("more than {LONGEST} bytes"),
        }
    }
}

/// That of a cgroup's directory; `None` if it has none, or has gone.  One system call where there
/// is none.
///
/// # Errors
/// If it cannot be read, so that nobody knows what it says.
pub fn read(dir: &Path) -> io::Result<Option<Xattr>> {
    match found(dir) {
        Err(e) if cgroup::goes(&e) => Ok(None),
        other => other,
    }
}

/// The same for who is about to replace it: it is not taken for none where it cannot be read.
///
/// # Errors
/// [`Error::System`].
pub fn replaced(dir: &Path) -> Result<Option<Xattr>> {
    found(dir).context(|| format!("reading {XATTR} of {}", shown::path(dir)))
}

fn found(dir: &Path) -> io::Result<Option<Xattr>> {
    let mut buffer = [0; LONGEST];
    match lgetxattr(dir, XATTR, &mut buffer[..]) {
        Ok(_) | Err(Errno::RANGE) => {}
        // A kernel may have none of cgroups.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    // Value and owner of one directory, whatever becomes of its path meanwhile.
    let mut options = File::options();
    options.custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW);
    let open = options.read(true).open(dir)?;
    let meta = open.metadata()?;
    let value = match fgetxattr(&open, XATTR, &mut buffer[..]) {
        Ok(length) => Some(buffer[..length].to_vec()),
        Err(Errno::RANGE) => None,
        Err(Errno::NODATA) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    Ok(Some(Xattr {
        value,
        others: others(meta.uid(), meta.gid(), meta.mode()),
    }))
}

/// Who may write a directory beside root.
fn others(uid: u32, gid: u32, mode: u32) -> Option<String> {
    match (uid, gid) {
        (1.., _) => Some(format!("uid {uid} owns it")),
        _ if mode & 0o002 != 0 => Some("everybody may write it".to_owned()),
        (_, 1..) if mode & 0o020 != 0 => Some(format!("gid {gid} may write it")),
        _ => None,
    }
}

fn refused(dir: &Path, error: Errno) -> Error {
    let source = io::Error::from(error);
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::XattrNotWritable {
                path: dir.to_owned(),
                source,
            }
        }
        _ => Error::System {
            what: format!("writing {XATTR} of {}", shown::path(dir)),
            source,
        },
    }
}

/// Writes it.
///
/// # Errors
/// [`Error::XattrNotWritable`], or whatever the kernel answers.
pub fn write(dir: &Path, value: &str) -> Result<()> {
    setxattr(dir, XATTR, value.as_bytes(), XattrFlags::empty()).map_err(|e| refused(dir, e))
}

/// Takes it away; one that is not there is no error.
///
/// # Errors
/// As of [`write`].
pub fn remove(dir: &Path) -> Result<()> {
    match removexattr(dir, XATTR) {
        Err(Errno::NODATA) => Ok(()),
        other => other.map_err(|e| refused(dir, e)),
    }
}

/// The cgroup of this process.  That of a unit's command which prepares its start, where the
/// unit's cgroup is delegated, is below that of the unit: systemd calls it `.control`.
///
/// # Errors
/// [`Error::NoCgroup2`] if it is in none of this mount.
pub fn own_cgroup(mount: &Path) -> Result<std::path::PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup")
        .context(|| "reading /proc/self/cgroup".to_owned())?;
    own_path(&text)
        .map(|path| mount.join(path))
        .ok_or_else(|| Error::NoCgroup2 {
            path: mount.to_owned(),
        })
}

/// Its path below the mount.
fn own_path(text: &str) -> Option<&Path> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = Path::new(path);
    match path.file_name() {
        Some(name) if name == ".control" => path.parent(),
        _ => Some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_root_alone_may_write_is_roots() {
        assert_eq!(others(0, 0, 0o40755), None);
        assert_eq!(others(0, 0, 0o40775), None);
        assert_eq!(others(0, 7, 0o40755), None);
        for (uid, gid, mode, who) in [
            (1000, 0, 0o40755, "uid 1000 owns it"),
            (1000, 1000, 0o40777, "uid 1000 owns it"),
            (0, 7, 0o40775, "gid 7 may write it"),
            (0, 0, 0o40777, "everybody may write it"),
        ] {
            assert_eq!(others(uid, gid, mode).as_deref(), Some(who));
        }
    }

    #[test]
    fn the_own_cgroup_is_that_of_the_unit() {
        for (text, path) in [
            ("0::/\n", Some("")),
            ("0::/a.slice/b.service\n", Some("a.slice/b.service")),
            ("12:cpu:/x\n0::/b.service/.control\n", Some("b.service")),
            ("12:cpu:/x\n", None),
        ] {
            assert_eq!(own_path(text), path.map(Path::new), "{text}");
        }
    }

    #[test]
    fn what_is_not_there_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        assert_eq!(read(Path::new("/proc/none")).unwrap(), None);
        // Of a file's name below it nobody knows what it says.
        assert!(read(Path::new("/proc/version/below")).is_err());
        assert_eq!(replaced(dir.path()).unwrap(), None);
        assert_eq!(replaced(Path::new("/proc/none")).unwrap_err().code(), 1);
        let error = write(Path::new("/proc/none"), "off").unwrap_err();
        assert_eq!(error.code(), 1);
    }
}
