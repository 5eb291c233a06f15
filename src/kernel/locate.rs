// SPDX-License-Identifier: GPL-2.0-only
//! Where a cgroup is, by its id: asked of a loaded program, which takes no privilege beyond those
//! that loading took.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::object::run_program;
use crate::model::abi::{self, Named};

/// Deeper than any path that can be opened, which has 4096 bytes.
const DEEPEST: usize = 2048;

/// The program that says the name of a cgroup, and which one is above it.
#[derive(Debug)]
pub struct Locator {
    program: OwnedFd,
    /// What is mounted.
    mount: PathBuf,
    /// Its id.
    top: u64,
}

impl Locator {
    /// Asks `program` from now on about what is below `mount`.
    ///
    /// # Errors
    /// If it does not know the mount itself: then it would know of nothing below it.
    pub fn new(program: OwnedFd, mount: &Path) -> io::Result<Self> {
        let top = fs::metadata(mount)?.ino();
        if ask(&program, top)?.found == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Locator {
            program,
            mount: mount.to_owned(),
            top,
        })
    }

    /// Directory of a cgroup; `None` if it is gone, or not below what is mounted.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn path(&self, id: u64) -> io::Result<Option<PathBuf>> {
        path(&self.mount, self.top, id, |id| ask(&self.program, id))
    }
}

fn ask(program: &OwnedFd, cgroup_id: u64) -> io::Result<Named> {
    let question = Named {
        cgroup_id,
        ..Named::default()
    };
    let mut context = abi::as_bytes(&question).to_vec();
    run_program(program.as_fd(), &mut context)?;
    abi::from_bytes(&context).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Puts names together, from the last one up.
fn path(
    mount: &Path,
    top: u64,
    id: u64,
    mut ask: impl FnMut(u64) -> io::Result<Named>,
) -> io::Result<Option<PathBuf>> {
    let (mut names, mut at) = (Vec::new(), id);
    while at != top {
        let named = ask(at)?;
        // Above what is mounted here there is only the root, or somebody else's.
        if named.found == 0 || named.above_id == 0 {
            return Ok(None);
        }
        if named.name[0] == 0 || names.len() == DEEPEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        names.push(named.name);
        at = named.above_id;
    }
    let mut path = mount.to_owned();
    for name in names.iter().rev() {
        let end = name.iter().position(|&byte| byte == 0);
        path.push(OsStr::from_bytes(&name[..end.unwrap_or(name.len())]));
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 is the root, 2 `/a`, 3 `/a/b`; 4 goes round in a circle, 6 has no name.
    fn ask(id: u64) -> io::Result<Named> {
        let (name, above_id) = match id {
            1 => (&b""[..], 0),
            2 => (&b"a"[..], 1),
            3 => (&b"\xff\n"[..], 2),
            4 => (&b"c"[..], 4),
            6 => (&b""[..], 1),
            5 => return Err(io::ErrorKind::PermissionDenied.into()),
            _ => return Ok(Named::default()),
        };
        let mut named = Named {
            above_id,
            found: 1,
            ..Named::default()
        };
        named.name[..name.len()].copy_from_slice(name);
        Ok(named)
    }

    #[test]
    fn names_are_put_together_below_what_is_mounted() {
        let at = |top, id| path(Path::new("/m"), top, id, ask).unwrap();
        let is = |text: &[u8]| Some(PathBuf::from(OsStr::from_bytes(text)));
        assert_eq!(at(1, 1), is(b"/m"));
        assert_eq!(at(1, 3), is(b"/m/a/\xff\n"));
        // A namespace's own root.
        assert_eq!(at(2, 3), is(b"/m/\xff\n"));
        assert_eq!(at(3, 2), None, "it is above");
        assert_eq!(at(1, 9), None, "it has gone");
        let fails = |id| path(Path::new("/m"), 1, id, ask).unwrap_err().kind();
        assert_eq!(fails(4), io::ErrorKind::InvalidData, "there is an end");
        assert_eq!(fails(5), io::ErrorKind::PermissionDenied);
        assert_eq!(fails(6), io::ErrorKind::InvalidData);
    }
}
