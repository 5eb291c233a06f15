// SPDX-License-Identifier: GPL-2.0-only
//! Names that others chose, as they are shown: a terminal must not obey them, and a line of a log
//! must stay one line.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Characters that change how the text around them looks, and are none of the control characters.
fn changes_its_surroundings(c: char) -> bool {
    matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{feff}')
}

/// A name of bytes as text.  Control characters, marks of direction, and what is no UTF-8 are
/// written as `\x0a`, `\u{202e}`, `\xff`; all else is as it is.
pub fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Writing to a String does not fail.
            let _ = match c {
                _ if c.is_ascii_control() => write!(text, "\\x{:02x}", u32::from(c)),
                _ if c.is_control() || changes_its_surroundings(c) => {
                    write!(text, "{}", c.escape_unicode())
                }
                _ => text.write_char(c),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The same of a path: somebody else may have chosen a part of it.
pub fn path(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

#[cfg(test)]
#[allow(missing_docs, reason = "tests")]
pub mod tests {
    use super::*;

    /// A name that breaks lines, clears the screen, is no UTF-8, and writes from right to left.
    pub const HOSTILE: &[u8] = b"a\n\x1b[2J\"\\\xff\xe2\x80\xae{}";

    #[test]
    fn a_usual_name_is_as_it_is() {
        for name in ["", "system.slice/dev-\\x2d.service", "größe 1", "語"] {
            assert_eq!(shown(name.as_bytes()), name);
        }
    }

    #[test]
    fn a_hostile_name_is_harmless() {
        assert_eq!(shown(HOSTILE), "a\\x0a\\x1b[2J\"\\\\xff\\u{202e}{}");
        for c in (0..=0x20ff).filter_map(char::from_u32) {
            let text = shown(c.to_string().as_bytes());
            assert!(!text.chars().any(char::is_control), "{c:?}");
        }
    }
}
