// SPDX-License-Identifier: GPL-2.0-only
//! A module's type information, which goes on where the kernel's ends, as one whole.
//!
//! Ids and offsets of names in it count on from those of the kernel.  So types behind types
//! and names behind names make BTF that stands for itself.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

/// Raw BTF: types and strings of a file.
struct Sections<'f> {
    types: &'f [u8],
    strings: &'f [u8],
}

/// Its least header: magic, version, flags, and the length of itself; then four words.
const HEADER: usize = 24;
const MAGIC: u16 = 0xeb9f;

fn sections(file: &[u8]) -> Option<Sections<'_>> {
    let word = |at: usize| {
        let bytes = file.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    let magic = u16::from_ne_bytes(file.get(..2)?.try_into().ok()?);
    let body = file.get(word(4)?..).filter(|_| magic == MAGIC)?;
    let part = |at: usize| {
        let begin = word(at)?;
        body.get(begin..begin.checked_add(word(at + 4)?)?)
    };
    Some(Sections {
        types: part(8)?,
        strings: part(16)?,
    })
}

fn join(base: &[u8], module: &[u8]) -> Option<Vec<u8>> {
    let (base, module) = (sections(base)?, sections(module)?);
    let types = u32::try_from(base.types.len() + module.types.len()).ok()?;
    let strings = u32::try_from(base.strings.len() + module.strings.len()).ok()?;
    let mut whole = Vec::with_capacity(HEADER + types as usize + strings as usize);
    whole.extend(MAGIC.to_ne_bytes());
    // Version 1, no flags.
    whole.extend([1, 0]);
    for word in [HEADER as u32, 0, types, types, strings] {
        whole.extend(word.to_ne_bytes());
    }
    for part in [base.types, module.types, base.strings, module.strings] {
        whole.extend(part);
    }
    Some(whole)
}

/// Both, in a file that has no name and goes with its descriptor.
///
/// # Errors
/// If a file cannot be read, or is no BTF.
pub fn joined(base: &Path, module: &Path) -> io::Result<File> {
    let whole = join(&fs::read(base)?, &fs::read(module)?);
    let whole = whole.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no BTF"))?;
    let mut file = File::from(memfd_create("btf", MemfdFlags::CLOEXEC)?);
    file.write_all(&whole)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF with these types and strings; behind its header is what this version does not know.
    fn btf(types: &[u8], strings: &[u8]) -> Vec<u8> {
        let mut raw = MAGIC.to_ne_bytes().to_vec();
        raw.extend([1, 0]);
        let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
        for word in [32, 0, types_len, types_len, strings_len, 7, 7] {
            raw.extend(u32::to_ne_bytes(word));
        }
        raw.extend(types);
        raw.extend(strings);
        raw
    }

    #[test]
    fn a_modules_types_and_names_follow_the_kernels() {
        let base = btf(b"TYPES OF THE KERNEL ", b"\0int\0");
        let whole = join(&base, &btf(b"MORE", b"cgroup_id\0")).unwrap();
        let both = sections(&whole).unwrap();
        assert_eq!(both.types, b"TYPES OF THE KERNEL MORE");
        assert_eq!(both.strings, b"\0int\0cgroup_id\0");
        assert_eq!(whole.len(), HEADER + both.types.len() + both.strings.len());
    }

    #[test]
    fn what_is_cut_off_is_no_btf() {
        let whole = btf(b"TYPE", b"\0");
        assert!(sections(&whole).is_some());
        for len in 0..whole.len() {
            assert!(sections(&whole[..len]).is_none(), "{len}");
        }
        assert!(sections(b"\x7fELF and more than twenty-four bytes").is_none());
    }
}
