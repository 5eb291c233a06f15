// SPDX-License-Identifier: GPL-2.0-only
//! What the lab's programs in a guest share: their errors, their channel to the host, the guest's files.

pub mod failure;
pub mod knobs;
pub mod results;
