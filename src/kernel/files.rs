// SPDX-License-Identifier: GPL-2.0-only
//! Numbers as the kernel's files have them.

use std::fs;
use std::path::Path;

/// The number that is all of a file's content; `None` without such a file, or where it
/// says something else, as `max`.
pub fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}
