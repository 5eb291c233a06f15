// SPDX-License-Identifier: GPL-2.0-only
//! The types that the BPF programs and mthp_ext share.
//!
//! They are those of bpf/abi.h and bpf/hook.h: libbpf-cargo writes them down from the type
//! information of the compiled object.  Three macros have a copy here, which a test compares.

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
    mthp_decision as Decision, mthp_event as Event, mthp_explained as Explained, mthp_load as Load,
    mthp_named as Named, mthp_own as Own, mthp_record as Record, mthp_rule as RuleNumber,
    mthp_tunables as Tunables, mthp_walk as Walk,
};

/// The compiled object.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mthp.bpf.o"));

/// Version of the layout and its meaning.
pub const ABI: Abi = Abi::MTHP_ABI;
/// `MTHP_NO_LIMIT`: nothing on the path binds.
pub const NO_LIMIT: u64 = u64::MAX;
/// `MTHP_NO_CAP`: a cap that caps nothing.
pub const NO_CAP: u32 = 63;
/// `MTHP_RESERVE`: folios of the largest size that a limit must have room for to count as none.
pub const RESERVE: u32 = 4;
/// Every order but 0, which is always allowed.
pub const ALL_ORDERS: u64 = !1;

/// `MTHP_NR_SIZES`: sizes that are counted one by one, from that of [`LEAST_ORDER`] on.
pub const SIZES: usize = 12;
/// `MTHP_LEAST_ORDER`: the least order of anonymous memory.
pub const LEAST_ORDER: u32 = 2;
/// `MTHP_PROFILES`: policies that one attachment serves at a time.
pub const PROFILES: usize = 64;

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

    /// Macros are in no type information: these stand in the header and above.
    #[test]
    fn constants_are_those_of_the_header() {
        let header = include_str!("../../bpf/abi.h");
        for line in [
            "#define MTHP_ALL_ORDERS\t(~1ULL)\n",
            "#define MTHP_NO_LIMIT\t(~0ULL)\n",
            "#define MTHP_NO_CAP\t63u\n",
            "#define MTHP_RESERVE\t4u\n",
            "#define MTHP_PROFILES\t64\n",
            "#define MTHP_LEAST_ORDER\t2\n",
            "#define MTHP_NR_SIZES\t\t12\n",
        ] {
            assert!(header.contains(line), "{line}");
        }
        assert_eq!((ALL_ORDERS, NO_LIMIT), (!1, !0));
        assert_eq!((NO_CAP, RESERVE, PROFILES), (63, 4, 64));
        assert_eq!((LEAST_ORDER, SIZES), (2, 12));
    }

    /// Each member with its place, and each number that has a name.
    fn layout() -> String {
        let btf = Btf::from_raw("mthp", OBJECT).unwrap().unwrap();
        let mut text = String::new();
        for name in [
            "mthp_load",
            "mthp_tunables",
            "mthp_decision",
            "mthp_record",
            "mthp_event",
            "mthp_explained",
            "mthp_walk",
            "mthp_assignment",
        ] {
            let of: Struct<'_> = btf.type_by_name(name).unwrap();
            for member in of.iter() {
                let MemberAttr::Normal { offset } = member.attr else {
                    panic!("{name} has bits");
                };
                let member = member.name.unwrap().to_string_lossy();
                text += &format!("{name}.{member} {}\n", offset / 8);
            }
        }
        for name in ["mthp_rule", "mthp_bind", "mthp_own"] {
            let of: Enum<'_> = btf.type_by_name(name).unwrap();
            for member in of.iter() {
                let name = member.name.unwrap().to_string_lossy();
                text += &format!("{name} {}\n", member.value);
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
        assert!(layout.contains("mthp_tunables.rules 44\n"), "{layout}");
        let written = (17, 0x4b16_c45d_37fd_cec4);
        assert_eq!(
            (ABI.0 & 0xff, digest(&layout)),
            written,
            "count MTHP_ABI up in bpf/abi.h, then write both down here:\n{layout}"
        );
    }

    #[test]
    fn two_that_change_places_are_another_layout() {
        let swapped = layout().replace("count_machine 152\n", "spare_cache 152\n");
        let swapped = swapped.replace("spare_cache 156\n", "count_machine 156\n");
        assert_ne!(digest(&swapped), digest(&layout()));
    }
}
