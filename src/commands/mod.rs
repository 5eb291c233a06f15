// SPDX-License-Identifier: GPL-2.0-only
//! What a user asks for: one module for each subcommand.

pub mod advise;
pub mod args;
pub mod assign;
pub mod checked;
pub mod cli;
pub mod compare;
pub mod completions;
pub mod config;
pub mod detach;
pub mod events;
pub mod explain;
pub mod exporter;
pub mod given;
pub mod lookup;
pub mod man;
pub mod metrics;
pub mod notify;
pub mod options;
pub mod policies;
pub mod reload;
pub mod run;
pub mod schema;
pub mod seen;
pub mod set;
pub mod settings;
pub mod status;
pub mod support;
mod timer;
pub mod top;
pub mod xattrs;
