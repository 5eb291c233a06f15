// SPDX-License-Identifier: GPL-2.0-only
//! Gives cgroups their profiles: the program that assigns, and the programs' map of profiles.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::object::run_program;
use crate::model::abi::{self, Assignment};
use crate::model::profiles::Profiles;

/// What there is of them in loaded programs: with one policy for all, and in an object of the
/// user's, there may be nothing.
pub struct Assign {
    pub(super) program: Option<OwnedFd>,
    pub(super) profiles: Option<MapHandle>,
}

impl Assign {
    /// From now on the cgroup has the profile of this id, and with it all those below it that
    /// have none of their own; 0: that of its parent.  False if there is no such cgroup, or no
    /// memory for it.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn assign(&self, cgroup_id: u64, profile: u32) -> io::Result<bool> {
        let Some(program) = &self.program else {
            return Ok(false);
        };
        let question = Assignment {
            cgroup_id,
            profile,
            ..Assignment::default()
        };
        let mut context = abi::as_bytes(&question).to_vec();
        run_program(program.as_fd(), &mut context)?;
        Ok(abi::from_bytes(&context).is_some_and(|answer: Assignment| answer.done != 0))
    }

    /// Writes the profiles into the programs' map.  Values of slots that cgroups have stay as
    /// they are, byte by byte, so no request sees half of one.
    ///
    /// # Errors
    /// Whatever the kernel answers.
    pub fn set_profiles(&self, profiles: &Profiles) -> io::Result<()> {
        let Some(map) = &self.profiles else {
            return Ok(());
        };
        let key = 0u32.to_ne_bytes();
        map.update(&key, &profiles.bytes(), MapFlags::ANY)
            .map_err(io::Error::other)
    }
}
