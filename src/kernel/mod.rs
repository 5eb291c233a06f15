// SPDX-License-Identifier: GPL-2.0-only
//! What is asked of the kernel: BPF objects and links, cgroups, PSI, THP settings.

pub mod abilities;
pub mod absent;
pub mod assign;
pub mod attached;
pub mod btf;
pub mod carrier;
pub mod cgroup;
pub mod clock;
pub mod files;
pub mod handed;
pub mod kept;
pub mod lacks;
pub mod late;
pub mod links;
pub mod load;
pub mod locate;
pub mod named;
pub mod neighbours;
mod object;
pub mod process;
pub mod programs;
pub mod psi;
pub mod recorded;
pub mod settings;
mod split;
mod swap;
pub mod takeover;
pub mod thp;
pub mod xattr;
