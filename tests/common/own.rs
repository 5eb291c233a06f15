// SPDX-License-Identifier: GPL-2.0-only
//! What users bring along: policies and BPF objects, in files of their own.

use std::fs;
use std::path::PathBuf;

use mthp_ext::model::abi;
use tempfile::TempDir;

/// A configuration with huge pages for the root.  What an override gives `tiny` has base pages.
pub const OPEN: &str = "policy = 'open'
[policies.open]
rules = ['cap']
cap = '2M'
[policies.tiny]
base = 'open'
cap = '4K'
";

/// [`OPEN`] and this override.
pub fn tiny(cgroups: &str) -> String {
    format!("{OPEN}[[override]]\ncgroups = '{cgroups}'\npolicy = 'tiny'\n")
}

/// A file in a directory of its own.  Dropped: both are removed.
pub struct OwnFile {
    dir: TempDir,
    path: PathBuf,
}

impl OwnFile {
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let own = OwnFile { dir, path };
        own.write(content);
        own
    }

    pub fn write(&self, content: impl AsRef<[u8]>) {
        fs::write(&self.path, content).unwrap();
    }

    pub fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub fn dir(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }
}

/// Where `part` begins in `object`.
fn places(object: &[u8], part: &[u8]) -> Vec<usize> {
    let all = object.windows(part.len()).enumerate();
    all.filter(|(_, bytes)| *bytes == part)
        .map(|(at, _)| at)
        .collect()
}

/// The built-in object with other names in the place of these: nobody finds what they name.
pub fn object_without(names: &[&str]) -> Vec<u8> {
    let mut object = abi::OBJECT.to_vec();
    for name in names {
        let found = places(&object, name.as_bytes());
        assert!(!found.is_empty(), "the object has {name}");
        for at in found {
            object[at + name.len() - 1] = b'x';
        }
    }
    object
}

/// The built-in object, as if no memory were left to keep anything of a cgroup: what is kept is
/// looked up, and never made.
pub fn object_without_state() -> Vec<u8> {
    let mut object = abi::OBJECT.to_vec();
    // r4 = BPF_LOCAL_STORAGE_GET_F_CREATE; call bpf_cgrp_storage_get
    let made = [0xb7, 4, 0, 0, 1, 0, 0, 0, 0x85, 0, 0, 0, 210, 0, 0, 0];
    let [place] = places(&object, &made)[..] else {
        panic!("made in several places, or in another way");
    };
    object[place + 4] = 0;
    object
}
