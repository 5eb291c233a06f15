// SPDX-License-Identifier: GPL-2.0-only
//! How answers look: text and JSON, made of the same values.

pub mod advice;
pub mod cgroups;
pub mod change;
pub mod http;
pub mod log;
pub mod openmetrics;
pub mod policies;
pub mod print;
pub mod settings;
pub mod table;
pub mod top;
pub mod why;
