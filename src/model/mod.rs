// SPDX-License-Identifier: GPL-2.0-only
//! What things are: reasons, rules, sizes, options, policies, records.  Reads no system.

pub mod abi;
pub mod baseline;
pub mod caps;
pub mod compare;
pub mod config;
pub mod counts;
pub mod ending;
pub mod given;
pub mod metrics;
pub mod options;
pub mod orders;
pub mod place;
pub mod plan;
pub mod policy;
pub mod profiles;
pub mod reason;
pub mod resolve;
pub mod rule;
pub mod sentences;
pub mod shown;
pub mod student;
pub mod units;
pub mod value;
