// SPDX-License-Identifier: GPL-2.0-only
//! What a user asks for: one module for each subcommand.

pub mod assign;
pub mod checked;
pub mod cli;
pub mod config;
pub mod given;
pub mod options;
pub mod policies;
pub mod run;
pub mod status;
pub mod support;
