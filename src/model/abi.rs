// SPDX-License-Identifier: GPL-2.0-only
//! The types that the BPF programs and mthp_ext share.
//!
//! They are those of bpf/abi.h and bpf/hook.h: libbpf-cargo writes them down from the type
//! information of the compiled object.

use super::shown::shown;

#[allow(
    warnings,
    clippy::all,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/mthp.skel.rs"));
}

pub use skeleton::types::{
    bpf_mthp_flags as Flags, bpf_mthp_reason as ReasonNumber, mthp_abi as Abi,
    mthp_assignment as Assignment, mthp_bind as Bind, mthp_cgroup as Kept,
    mthp_decision as Decision, mthp_event as Event, mthp_explained as Explained, mthp_gaps as Gaps,
    mthp_load as Load, mthp_named as Named, mthp_own as Own, mthp_record as Record,
    mthp_rule as RuleNumber, mthp_tunables as Tunables, mthp_walk as Walk,
};

/// The compiled object.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mthp.bpf.o"));

/// Version of the layout and its meaning.
pub const ABI: Abi = Abi::MTHP_ABI;
/// Macros are in no type information: each has a copy, which a test compares with the header's.
macro_rules! copies {
    ($($(#[$doc:meta])+ $name:ident is $macro:ident: $type:ty = $value:expr;)+) => {
        $($(#[$doc])+ pub const $name: $type = $value;)+

        #[cfg(test)]
        const COPIES: &[(&str, u64)] = &[$((stringify!($macro), $name as u64)),+];
    };
}

copies! {
    /// Nothing on the path binds.
    NO_LIMIT is MTHP_NO_LIMIT: u64 = u64::MAX;
    /// A cap that caps nothing.
    NO_CAP is MTHP_NO_CAP: u32 = 63;
    /// Folios of the largest size that a limit must have room for to count as none.
    RESERVE is MTHP_RESERVE: u32 = 4;
    /// Every order but 0, which is always allowed.
    ALL_ORDERS is MTHP_ALL_ORDERS: u64 = !1;
    /// Sizes that are counted one by one, from that of [`LEAST_ORDER`] on.
    SIZES is MTHP_NR_SIZES: usize = 13;
    /// The place of a PUD among them, which is of another order.
    PUD_SIZE is MTHP_PUD_SIZE: usize = 12;
    /// The least order of anonymous memory.
    LEAST_ORDER is MTHP_LEAST_ORDER: u32 = 2;
    /// Policies that one attachment serves at a time.
    PROFILES is MTHP_PROFILES: usize = 64;
}

/// Name of the map with the constants of a load, which is that of their section.
pub const CONSTANTS_MAP: &str = ".rodata.mthp";
/// Name of the map with the profiles, which is that of their section, too.
pub const PROFILES_MAP: &str = ".data.mthp";
/// Names of the maps, which are those of their sections, with the age of a scan that is too old,
/// and with the end of the last one: a `u64` of nanoseconds each.
pub const KEPT_MAP: &str = ".rodata.kept";
/// See [`KEPT_MAP`].
pub const SCANNED_MAP: &str = ".data.scanned";
/// Name of the map with what is kept of each cgroup.
pub const STORAGE_MAP: &str = "mthp_cgroups";
/// Name of the ring buffer of changed decisions.
pub const EVENTS_MAP: &str = "mthp_events";
/// Name of the program that scans; only policies with the rule pressure need it.
pub const SCAN_PROG: &str = "mthp_scan";
/// Name of the program that assigns profiles to cgroups; only a configuration needs it.
pub const ASSIGN_PROG: &str = "mthp_assign";
/// Name of the program that says where a cgroup is; only the daemon asks it.
pub const NAME_PROG: &str = "mthp_name";
/// Name of the program that says what is decided for a cgroup, and why.
pub const EXPLAIN_PROG: &str = "mthp_explain";

/// Marks the types above that are passed as bytes: every bit pattern is a value, and there is
/// no padding that has no name.
///
/// # Safety
/// Only for `repr(C)` structs made of integers without implicit padding.
pub unsafe trait Plain: Copy {}
// SAFETY: integers only; the generated types name their padding.
unsafe impl Plain for Tunables {}
// SAFETY: as above.
unsafe impl Plain for Load {}
// SAFETY: as above.
unsafe impl Plain for Assignment {}
// SAFETY: as above.
unsafe impl Plain for Walk {}
// SAFETY: as above.
unsafe impl Plain for Event {}
// SAFETY: as above.
unsafe impl Plain for Explained {}
// SAFETY: as above.
unsafe impl Plain for Named {}

/// Reads a struct from bytes the kernel wrote; `None` if the length is another.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() != size_of::<T>() {
        return None;
    }
    // SAFETY: the length was checked, and any bytes are a valid `T` (Plain).
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The bytes of a struct, as the kernel shall see them.
pub fn as_bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `T` has no padding (Plain), so all its bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Text in a field of bytes that ends with 0, as it is shown.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    shown(&bytes[..end])
}

/// The same the other way round; what does not fit is cut off.
pub fn set_text(bytes: &mut [u8], text: &str) {
    bytes.fill(0);
    let room = bytes.len().saturating_sub(1);
    let end = (0..=text.len().min(room))
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use libbpf_rs::ObjectBuilder;
    use libbpf_rs::btf::Btf;
    use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};

    /// It would not be the same from two directories.
    #[test]
    fn the_object_does_not_name_the_directory_of_the_build() {
        let place = env!("CARGO_MANIFEST_DIR").as_bytes();
        assert!(!OBJECT.windows(place.len()).any(|part| part == place));
        let source = b"bpf/mthp.bpf.c";
        assert!(OBJECT.windows(source.len()).any(|part| part == source));
    }

    use super::*;

    #[test]
    fn bytes_of_another_length_are_refused() {
        assert!(from_bytes::<Event>(&[0; 3]).is_none());
        let tunables = Tunables {
            id: 64,
            window_ns: 7,
            ..Tunables::default()
        };
        let back: Tunables = from_bytes(as_bytes(&tunables)).unwrap();
        assert_eq!(as_bytes(&back), as_bytes(&tunables));
    }

    #[test]
    fn text_is_cut_at_a_character() {
        let mut bytes = [1; 4];
        set_text(&mut bytes, "abä");
        assert_eq!(text(&bytes), "ab");
        set_text(&mut bytes, "xyz");
        assert_eq!(text(&bytes), "xyz");
        assert_eq!(text(b"ab"), "ab");
    }

    /// The compiler that reads the header for the object compares.
    #[test]
    fn constants_are_those_of_the_header() {
        let compiles = |copies: &[(&str, u64)]| {
            let mut source = "#include \"abi.h\"\n".to_owned();
            for (name, value) in copies {
                source += &format!("_Static_assert({name} == {value}ULL, \"\");\n");
            }
            let file = tempfile::Builder::new().suffix(".c").tempfile().unwrap();
            std::fs::write(file.path(), source).unwrap();
            let out = Command::new(env!("CLANG_OF_THE_BUILD"))
                .args(["-fsyntax-only", "-I"])
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf"))
                .arg(file.path())
                .output()
                .expect("the compiler that made the policies");
            let errors = String::from_utf8_lossy(&out.stderr).into_owned();
            out.status.success().then_some(()).ok_or(errors)
        };
        assert_eq!(compiles(COPIES), Ok(()));
        let (name, value) = COPIES[0];
        assert!(compiles(&[(name, value - 1)]).is_err());
    }

    /// One that is not there would be taken for an object without it.
    #[test]
    fn names_are_those_of_the_object() {
        let mut builder = ObjectBuilder::default();
        let open = builder.open_memory(OBJECT).unwrap();
        let maps = [
            CONSTANTS_MAP,
            PROFILES_MAP,
            KEPT_MAP,
            SCANNED_MAP,
            STORAGE_MAP,
            EVENTS_MAP,
        ];
        for name in maps {
            assert!(open.maps().any(|map| map.name() == name), "{name}");
        }
        for name in [SCAN_PROG, ASSIGN_PROG, NAME_PROG, EXPLAIN_PROG] {
            assert!(open.progs().any(|program| program.name() == name), "{name}");
        }
    }

    /// The types that both sides share: those that are named above, and what one is made of.
    fn shared() -> Vec<&'static str> {
        let (_, list) = include_str!("abi.rs")
            .split_once("pub use skeleton::types::{")
            .unwrap();
        let (list, _) = list.split_once("};").unwrap();
        let names = list.split(',').map(|one| one.trim().split(' ').next());
        let mut names: Vec<&str> = names.flatten().filter(|name| !name.is_empty()).collect();
        // The number itself.
        names.retain(|name| *name != "mthp_abi");
        names.push("mthp_stall");
        names.sort_unstable();
        names
    }

    /// Each member with its place, and each number that has a name.
    fn layout() -> String {
        let btf = Btf::from_raw("mthp", OBJECT).unwrap().unwrap();
        let mut text = String::new();
        for name in shared() {
            if let Some(of) = btf.type_by_name::<Enum<'_>>(name) {
                for member in of.iter() {
                    let name = member.name.unwrap().to_string_lossy();
                    text += &format!("{name} {}\n", member.value);
                }
                continue;
            }
            let of: Struct<'_> = btf.type_by_name(name).unwrap();
            for member in of.iter() {
                let MemberAttr::Normal { offset } = member.attr else {
                    panic!("{name} has bits");
                };
                let member = member.name.unwrap().to_string_lossy();
                text += &format!("{name}.{member} {}\n", offset / 8);
            }
        }
        text
    }

    /// FNV-1a.
    fn digest(text: &str) -> u64 {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    /// A layout that changes without its number would be read as another.  What a member means
    /// is in no type information: count up for that, too.
    #[test]
    fn a_layout_has_its_number() {
        let layout = layout();
        for part in ["mthp_tunables.rules 44\n", "mthp_cgroup.stall 0\n"] {
            assert!(layout.contains(part), "{layout}");
        }
        let written = (23, 0x37b9_8b2f_9f79_04e8);
        assert_eq!(
            (ABI.0 & 0xff, digest(&layout)),
            written,
            "count MTHP_ABI up in bpf/abi.h, then write both down here:\n{layout}"
        );
    }

    #[test]
    fn two_that_change_places_are_another_layout() {
        let swapped = layout().replace("count_machine 148\n", "spare_cache 148\n");
        let swapped = swapped.replace("spare_cache 152\n", "count_machine 152\n");
        assert_ne!(digest(&swapped), digest(&layout()));
    }
}
