// SPDX-License-Identifier: GPL-2.0-only
//! A policy over the restart of its service: the service manager holds its descriptors while no
//! process runs it, and drops them when the service is stopped or has failed for good.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::cgroup::Cgroup;
use super::{carrier, kept, links};
use crate::errors::{Context, Result};

/// The name of the link there.
pub const LINK: &str = "mthp_ext-link";

/// And of what is kept of each cgroup; another version has another name for it.
fn storage() -> String {
    format!("mthp_ext-{}", kept::storage())
}

/// A descriptor under the name that the service manager has for it.
pub type Named = (String, OwnedFd);

/// What the process before this one has left.
pub struct Left {
    link: OwnedFd,
    storage: Option<OwnedFd>,
}

impl Left {
    /// The policy of `root` among these descriptors.  `takes`: it is taken over; otherwise, or if
    /// it is another cgroup's, it ends here: nobody would run it any more.
    ///
    /// # Errors
    /// If the kernel does not say what a link is.
    pub fn of(held: Vec<Named>, root: &Cgroup, takes: bool) -> Result<Option<Self>> {
        let (mut found, mut kept) = (None, None);
        for (name, descriptor) in held {
            if name == storage() {
                kept = Some(descriptor);
            } else if name == LINK {
                let info = links::info(descriptor.as_fd()).and_then(carrier::bound);
                let info = info.context(|| "looking at what the service was handed".to_owned())?;
                if takes && info.cgroup_id == root.id {
                    found = Some(descriptor);
                } else {
                    carrier::detach(&descriptor);
                }
            }
        }
        Ok(found.map(|link| Left {
            link,
            storage: kept,
        }))
    }

    /// Its link, and what was kept of each cgroup, if this version can read it.
    pub fn parts(self) -> (OwnedFd, Option<OwnedFd>) {
        (self.link, self.storage)
    }
}

/// What the service manager is to hold.  The link is the first: systemd on a kernel without
/// kcmp(2) takes the others for it, and holds no more.
///
/// # Errors
/// If there can be no further descriptors.
pub fn descriptors(link: &impl AsFd, cgroups: Option<impl AsFd>) -> io::Result<Vec<Named>> {
    let copy = |from: &dyn AsFd| from.as_fd().try_clone_to_owned();
    let mut all = vec![(LINK.to_owned(), copy(link)?)];
    if let Some(cgroups) = cgroups {
        all.push((storage(), copy(&cgroups)?));
    }
    Ok(all)
}
