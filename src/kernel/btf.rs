// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's type information, read in one pass, for the few types that the hook is made of.
//!
//! libbpf reads and checks all of it to load programs, and lends it to nobody.  To have it do so
//! twice was a tenth of a start (docs/internals/verifier-cost.md).

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::NonNull;

use nix::libc::c_void;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Names begin so, or they are not found: that leaves out nearly all.
const PREFIX: &[u8] = b"bpf_";

const MAGIC: u16 = 0xeb9f;

/// Kinds of types, as `enum` in include/uapi/linux/btf.h numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A pointer.
    Ptr = 2,
    /// A structure.
    Struct = 4,
    /// An enumeration.
    Enum = 6,
    /// A function.
    Func = 12,
    /// What a function takes and returns.
    FuncProto = 13,
}

/// Bytes that follow the three words of a type: of the type, and of each of its elements.
const SIZES: [(usize, usize); 20] = {
    let mut sizes = [(0, 0); 20];
    sizes[1] = (4, 0); // integer
    sizes[3] = (12, 0); // array
    sizes[4] = (0, 12); // struct
    sizes[5] = (0, 12); // union
    sizes[6] = (0, 8); // enum
    sizes[13] = (0, 8); // function prototype
    sizes[14] = (4, 0); // variable
    sizes[15] = (0, 12); // section
    sizes[17] = (4, 0); // tag of a declaration
    sizes[19] = (0, 12); // enum of 64 bits
    sizes
};

/// The bytes of a file: mapped where the kernel can (Linux 6.16), else read.
enum Bytes {
    Mapped(NonNull<c_void>, usize),
    Read(Vec<u8>),
}

impl Bytes {
    fn of(path: &Path) -> io::Result<Self> {
        let file = std::fs::File::open(path)?;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if let Some(whole) = NonZeroUsize::new(len) {
            // SAFETY: a new mapping, of a file that the kernel never writes again.
            let map = unsafe {
                let (read, private) = (ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE);
                mmap(None, whole, read, private, &file, 0)
            };
            if let Ok(at) = map {
                return Ok(Bytes::Mapped(at, len));
            }
        }
        Ok(Bytes::Read(std::fs::read(path)?))
    }

    fn get(&self) -> &[u8] {
        match self {
            // SAFETY: mapped, of this length, until it is dropped.
            Bytes::Mapped(at, len) => unsafe {
                std::slice::from_raw_parts(at.as_ptr().cast(), *len)
            },
            Bytes::Read(bytes) => bytes,
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Bytes::Mapped(at, len) = *self {
            // SAFETY: mapped by this, and nobody has it any more.
            let _ = unsafe { munmap(at, len) };
        }
    }
}

/// All types.
pub struct Types {
    bytes: Bytes,
    /// Where the strings begin.
    strings: usize,
    /// Where each type is; that of number 0 is `void`, which is nowhere.
    at: Vec<usize>,
    /// Those whose names begin so.
    named: HashMap<(u8, Vec<u8>), u32>,
}

/// One of them.
#[derive(Clone, Copy)]
pub struct Type<'a> {
    types: &'a Types,
    /// Its number.
    pub id: u32,
}

/// A member of a structure.
pub struct Member {
    /// Where it is, in bits; `None`: a bit field.
    pub offset: Option<usize>,
    /// What it is.
    pub ty: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

/// The same as a place or a number of something.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(word(bytes, at)?).ok()
}

/// Kind and number of elements.
fn shape(info: u32) -> (u8, usize) {
    (((info >> 24) & 0x7f) as u8, (info & 0x00ff_ffff) as usize)
}

impl Types {
    /// Reads them from a file.
    ///
    /// # Errors
    /// The kernel's errno, or [`ErrorKind::InvalidData`] for what is no type information.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = Bytes::of(path)?;
        Self::parse(bytes).ok_or_else(|| {
            let what = "it is no type information that this mthp_ext can read";
            io::Error::new(ErrorKind::InvalidData, what)
        })
    }

    fn parse(bytes: Bytes) -> Option<Self> {
        let all = bytes.get();
        let head = number(all, 4)?;
        if all.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let mut next = head.checked_add(number(all, 8)?)?;
        let end = next.checked_add(number(all, 12)?)?;
        let strings = head.checked_add(number(all, 16)?)?;
        let (mut at, mut named) = (vec![0], HashMap::new());
        while next < end {
            let (kind, elements) = shape(word(all, next + 4)?);
            if [Kind::Struct, Kind::Enum, Kind::Func]
                .map(|k| k as u8)
                .contains(&kind)
            {
                let name = all.get(strings.checked_add(number(all, next)?)?..)?;
                if name.starts_with(PREFIX) {
                    let len = name.iter().position(|&byte| byte == 0)?;
                    let id = u32::try_from(at.len()).ok()?;
                    named.entry((kind, name[..len].to_vec())).or_insert(id);
                }
            }
            at.push(next);
            let (own, each) = *SIZES.get(usize::from(kind))?;
            next = next.checked_add(12 + own + each * elements)?;
        }
        (next == end && end <= all.len()).then_some(Types {
            strings,
            at,
            named,
            bytes,
        })
    }

    /// The first one of this kind and name, which begins with "bpf_".
    pub fn find(&self, kind: Kind, name: &str) -> Option<Type<'_>> {
        debug_assert!(name.as_bytes().starts_with(PREFIX), "{name}");
        let id = *self.named.get(&(kind as u8, name.as_bytes().to_vec()))?;
        Some(Type { types: self, id })
    }

    /// That of a number, if it is of this kind.
    pub fn of(&self, id: u32, kind: Kind) -> Option<Type<'_>> {
        let found = Type { types: self, id };
        (found.shape()?.0 == kind as u8).then_some(found)
    }

    /// That of a number.
    pub fn any(&self, id: u32) -> Type<'_> {
        Type { types: self, id }
    }

    /// Is there an enumerator of this name, in whatever enumeration?
    pub fn has_enumerator(&self, name: &str) -> bool {
        let each = (1..self.at.len()).filter_map(|id| self.of(u32::try_from(id).ok()?, Kind::Enum));
        each.into_iter().any(|e| e.value(name).is_some())
    }

    fn word(&self, at: usize) -> Option<u32> {
        word(self.bytes.get(), at)
    }

    /// Is it the name at this place?
    fn is(&self, offset: u32, name: &str) -> bool {
        let at = usize::try_from(offset)
            .ok()
            .and_then(|o| self.strings.checked_add(o));
        let found = at.and_then(|at| self.bytes.get().get(at..));
        let rest = found.and_then(|found| found.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

impl Type<'_> {
    fn at(&self) -> Option<usize> {
        let id = usize::try_from(self.id).ok().filter(|&id| id != 0)?;
        self.types.at.get(id).copied()
    }

    fn shape(&self) -> Option<(u8, usize)> {
        Some(shape(self.types.word(self.at()? + 4)?))
    }

    /// Has it this name?
    pub fn is(&self, name: &str) -> bool {
        let offset = self.at().and_then(|at| self.types.word(at));
        offset.is_some_and(|offset| self.types.is(offset, name))
    }

    /// What it points to, or returns; of a function what it takes and returns.  0: `void`.
    pub fn refers(&self) -> Option<u32> {
        self.types.word(self.at()? + 8)
    }

    /// Places of its elements, each of which begins with the place of its name.
    fn elements(&self) -> impl Iterator<Item = usize> {
        let (kind, len) = self.shape().unwrap_or_default();
        let (own, each) = SIZES.get(usize::from(kind)).copied().unwrap_or_default();
        let first = self.at().unwrap_or_default() + 12 + own;
        (0..len).map(move |n| first + n * each)
    }

    fn element(&self, name: &str) -> Option<usize> {
        self.elements().find(|&at| {
            self.types
                .word(at)
                .is_some_and(|offset| self.types.is(offset, name))
        })
    }

    /// Of a structure: a member.
    pub fn member(&self, name: &str) -> Option<Member> {
        let at = self.element(name)?;
        let offset = self.types.word(at + 8)?;
        // Where it has bit fields, the upper eight bits have their width.
        let fields = self.types.word(self.at()? + 4)? >> 31 != 0;
        let is_field = fields && offset >> 24 != 0;
        Some(Member {
            offset: usize::try_from(offset).ok().filter(|_| !is_field),
            ty: self.types.word(at + 4)?,
        })
    }

    /// Of an enumeration: the value of an enumerator.
    pub fn value(&self, name: &str) -> Option<i64> {
        let value = self.types.word(self.element(name)? + 4)?;
        Some(i64::from(i32::from_ne_bytes(value.to_ne_bytes())))
    }

    /// Of what a function takes and returns: the types of its parameters.
    pub fn parameters(&self) -> Vec<u32> {
        self.elements()
            .filter_map(|at| self.types.word(at + 4))
            .collect()
    }
}
