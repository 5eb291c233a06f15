// SPDX-License-Identifier: GPL-2.0-only
//! mthp_ext: page-size policy per cgroup.
//!
//! The rooms, each of which uses those before it only: `model`, what things are; `kernel`, what
//! is asked of the kernel; `output`, how answers look; `commands`, what a user asks for.
//! docs/internals/architecture.md has the picture.

pub mod commands;
pub mod errors;
pub mod kernel;
pub mod model;
pub mod output;
