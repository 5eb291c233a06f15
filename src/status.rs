// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext status`.
pub fn main(_: bool) -> crate::errors::Result<()> { Ok(()) }
