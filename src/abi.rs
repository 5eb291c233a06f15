// SPDX-License-Identifier: GPL-2.0-only
//! Mirror of `bpf/abi.h`, of the facts in `bpf/decide.h` and of the numbers in `bpf/hook.h`.
//!
//! The structs are written out rather than generated: a unit test compiles the
//! headers with the host's C compiler and compares every size and offset.

use std::ops::{Index, IndexMut};

use serde::{Serialize, Serializer};

/// First word of [`Tunables`].
pub const MAGIC: u32 = 0x6d74_6870;
/// Version of the layout and its meaning.
pub const ABI: u32 = 8;
/// Every order but 0, which is always allowed.
pub const ALL_ORDERS: u64 = !1;
/// `BPF_MTHP_ADVISED`: the mapping is advised to have large folios.
pub const ADVISED: i64 = 1;
/// Headroom of a cgroup without any limit on its path.
pub const NO_LIMIT: u64 = u64::MAX;
/// Value of `max_order` that caps nothing.
pub const NO_MAX_ORDER: u32 = 63;
/// Number of rules a policy can have.
pub const NR_RULES: usize = 6;

/// Name of the map with the tunables, which is that of their section.
pub const TUNABLES_MAP: &str = ".rodata.mthp";
/// Name of the cgroup storage map.
pub const CGROUPS_MAP: &str = "mthp_cgroups";
/// Name of the ring buffer of changed decisions.
pub const EVENTS_MAP: &str = "mthp_events";
/// Name of the scan program; absent in policies that need no scan.
pub const SCAN_PROG: &str = "mthp_scan";

/// `enum bpf_mthp_reason`: why the kernel asks, by its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in bpf/hook.h")]
pub enum Reason {
    Fault = 1,
    Swapin = 2,
    Khugepaged = 3,
    Collapse = 4,
    Reclaim = 5,
}

impl Reason {
    /// Those that are known here.  A later kernel may have more, which pass unchanged.
    pub const ALL: [Reason; NR_REASONS - 1] = [
        Reason::Fault,
        Reason::Swapin,
        Reason::Khugepaged,
        Reason::Collapse,
        Reason::Reclaim,
    ];

    /// As options and output call it.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Fault => "fault",
            Reason::Swapin => "swapin",
            Reason::Khugepaged => "khugepaged",
            Reason::Collapse => "collapse",
            Reason::Reclaim => "reclaim",
        }
    }

    /// As the kernel calls it.
    pub const fn enumerator(self) -> &'static str {
        match self {
            Reason::Fault => "BPF_MTHP_FAULT",
            Reason::Swapin => "BPF_MTHP_SWAPIN",
            Reason::Khugepaged => "BPF_MTHP_KHUGEPAGED",
            Reason::Collapse => "BPF_MTHP_COLLAPSE",
            Reason::Reclaim => "BPF_MTHP_RECLAIM",
        }
    }
}

/// `MTHP_NR_REASONS`: places of an array by reason.  There is no reason 0.
const NR_REASONS: usize = Reason::Reclaim as usize + 1;

/// An array by reason.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ByReason<T>([T; NR_REASONS]);

impl<T: Copy + Default> ByReason<T> {
    /// What `of` says for each reason.
    pub fn new(of: impl Fn(Reason) -> T) -> Self {
        let mut values = Self([T::default(); NR_REASONS]);
        for reason in Reason::ALL {
            values[reason] = of(reason);
        }
        values
    }

    /// The same for each of them.
    pub fn each(value: T) -> Self {
        Self::new(|_| value)
    }

    /// What `of` makes of each value.
    pub fn map<U: Copy + Default>(&self, of: impl Fn(T) -> U) -> ByReason<U> {
        ByReason::new(|reason| of(self[reason]))
    }

    /// Each reason with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, T)> + '_ {
        Reason::ALL.into_iter().map(|reason| (reason, self[reason]))
    }
}

impl<T> Index<Reason> for ByReason<T> {
    type Output = T;

    fn index(&self, reason: Reason) -> &T {
        &self.0[reason as usize]
    }
}

impl<T> IndexMut<Reason> for ByReason<T> {
    fn index_mut(&mut self, reason: Reason) -> &mut T {
        &mut self.0[reason as usize]
    }
}

impl<T: PartialEq> PartialEq for ByReason<T> {
    fn eq(&self, other: &Self) -> bool {
        Reason::ALL.into_iter().all(|r| self[r] == other[r])
    }
}

impl<T: Eq> Eq for ByReason<T> {}

impl<T: Serialize> Serialize for ByReason<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Reason::ALL.into_iter().map(|r| (r.name(), &self[r])))
    }
}

/// `struct mthp_tunables`: constants of a loaded policy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in bpf/abi.h")]
pub struct Tunables {
    pub magic: u32,
    pub abi: u32,
    pub rules: u32,
    pub page_shift: u32,
    pub narrow_advised: u32,
    pub psi_full: u32,
    pub limit_share: u32,
    pub bind_khugepaged: u32,
    pub largest_pages: u32,
    pub max_hold: u32,
    pub narrow_collapse: u32,
    pub max_order: ByReason<u32>,
    pub count_cache: u32,
    pub sparse_share: u32,
    pub sample_mask: u32,
    pub pressure_order: u32,
    pub pad: u32,
    pub threshold_ns: u64,
    pub calm_ns: u64,
    pub window_ns: u64,
    pub min_memory: u64,
    pub headroom_factor: u64,
    pub host_factor: u64,
    pub sparse_bytes: u64,
}

/// `struct mthp_stall`: a cgroup's pressure verdict and what it rests on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "documented in bpf/abi.h")]
pub struct Stall {
    pub anchor_ns: u64,
    pub anchor_stall_ns: u64,
    pub stall_ns: u64,
    pub elapsed_ns: u64,
    pub high: u32,
    pub seen: u32,
    pub hold: u32,
    pub calm: u32,
}

/// `struct mthp_cgroup`: what the programs keep per cgroup.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "documented in bpf/abi.h")]
pub struct CgroupState {
    pub stall: Stall,
    pub scanned_ns: u64,
    pub memory_bytes: u64,
    pub usage_pages: u64,
    pub now_bytes: u64,
    pub host_bytes: u64,
    pub cache_bytes: u64,
    pub room_bytes: u64,
    pub cache_beyond: i64,
    pub memory_known: u32,
    pub populated: u32,
    pub sparse: u32,
    pub unlimited: u32,
    pub reported: ByReason<u64>,
    pub reported_ns: u64,
    pub suppressed: u64,
    pub asked: ByReason<u64>,
    pub narrowed: ByReason<[u64; NR_RULES]>,
}

/// `struct mthp_walk`: how far a scan has come.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in bpf/abi.h")]
pub struct Walk {
    pub root_id: u64,
    pub passed: u64,
    pub met: u64,
    pub listed: u32,
    pub next: u32,
}

/// `struct mthp_event`: one changed decision.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "documented in bpf/abi.h")]
pub struct Event {
    pub t_ns: u64,
    pub cgroup_id: u64,
    pub from: ByReason<u64>,
    pub to: ByReason<u64>,
    pub stall_ns: u64,
    pub elapsed_ns: u64,
    pub memory_bytes: u64,
    pub headroom_bytes: u64,
    pub host_bytes: u64,
    pub suppressed: u64,
    pub rules: u32,
    pub memory_known: u32,
    pub hold: u32,
    pub pad: u32,
}

/// `struct mthp_facts`: input of the decision.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "documented in bpf/decide.h")]
pub struct Facts {
    pub orders: u64,
    pub flags: u64,
    pub memory_bytes: u64,
    pub headroom_bytes: u64,
    pub host_bytes: u64,
    pub reason: u32,
    pub pressure: u32,
    pub memory_known: u32,
    pub populated: u32,
    pub sparse: u32,
    pub pad: u32,
}

/// Marks the structs above: every bit pattern is a value, and there is no padding.
///
/// # Safety
/// Only for `repr(C)` structs made of integers without implicit padding.
pub unsafe trait Plain: Copy {}
// SAFETY: integers only, explicit padding; the layout test below checks it.
unsafe impl Plain for Tunables {}
// SAFETY: as above.
unsafe impl Plain for CgroupState {}
// SAFETY: as above.
unsafe impl Plain for Walk {}
// SAFETY: as above.
unsafe impl Plain for Event {}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::process::Command;

    /// Compiles a C program against the headers and returns the numbers it prints.
    fn measured(expressions: &[String]) -> Vec<usize> {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("abi.c");
        let program = dir.path().join("abi");
        let prints: Vec<String> = expressions
            .iter()
            .map(|e| format!("printf(\"%zu\\n\", (size_t)({e}));\n"))
            .collect();
        let prints = prints.concat();
        std::fs::write(
            &source,
            format!(
                "#include <stdio.h>\n#include <stddef.h>\n#include \"decide.h\"\nint main(void)\n{{\n{prints}return 0;\n}}\n"
            ),
        )
        .unwrap();
        let bpf = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");
        let status = Command::new("cc")
            .args(["-I", bpf, "-o"])
            .args([&program, &source])
            .status()
            .expect("the host's C compiler");
        assert!(status.success(), "the headers compile on the host");
        let out = Command::new(&program).output().unwrap();
        String::from_utf8(out.stdout)
            .unwrap()
            .lines()
            .map(|l| l.parse().unwrap())
            .collect()
    }

    macro_rules! layout {
        ($test:ident, $c:literal, $rust:ty, [$($field:ident),* $(,)?]) => {
            #[test]
            fn $test() {
                let mut c = vec![format!("sizeof(struct {})", $c)];
                let mut rust = vec![size_of::<$rust>()];
                $(
                    c.push(format!("offsetof(struct {}, {})", $c, stringify!($field)));
                    rust.push(offset_of!($rust, $field));
                )*
                assert_eq!(measured(&c), rust);
                let value = <$rust>::default();
                let mut fields = 0;
                $(fields += size_of_val(&value.$field);)*
                assert_eq!(fields, size_of::<$rust>(), "no padding");
            }
        };
    }

    layout!(
        tunables_match_the_header,
        "mthp_tunables",
        Tunables,
        [
            magic,
            abi,
            rules,
            page_shift,
            narrow_advised,
            psi_full,
            limit_share,
            bind_khugepaged,
            largest_pages,
            max_hold,
            narrow_collapse,
            max_order,
            count_cache,
            sparse_share,
            sample_mask,
            pressure_order,
            pad,
            threshold_ns,
            calm_ns,
            window_ns,
            min_memory,
            headroom_factor,
            host_factor,
            sparse_bytes,
        ]
    );
    layout!(
        stall_matches_the_header,
        "mthp_stall",
        Stall,
        [
            anchor_ns,
            anchor_stall_ns,
            stall_ns,
            elapsed_ns,
            high,
            seen,
            hold,
            calm,
        ]
    );
    layout!(
        cgroup_state_matches_the_header,
        "mthp_cgroup",
        CgroupState,
        [
            stall,
            scanned_ns,
            memory_bytes,
            usage_pages,
            now_bytes,
            host_bytes,
            cache_bytes,
            room_bytes,
            cache_beyond,
            memory_known,
            populated,
            sparse,
            unlimited,
            reported,
            reported_ns,
            suppressed,
            asked,
            narrowed,
        ]
    );
    layout!(
        walk_matches_the_header,
        "mthp_walk",
        Walk,
        [root_id, passed, met, listed, next]
    );
    layout!(
        event_matches_the_header,
        "mthp_event",
        Event,
        [
            t_ns,
            cgroup_id,
            from,
            to,
            stall_ns,
            elapsed_ns,
            memory_bytes,
            headroom_bytes,
            host_bytes,
            suppressed,
            rules,
            memory_known,
            hold,
            pad,
        ]
    );
    layout!(
        facts_match_the_header,
        "mthp_facts",
        Facts,
        [
            orders,
            flags,
            memory_bytes,
            headroom_bytes,
            host_bytes,
            reason,
            pressure,
            memory_known,
            populated,
            sparse,
            pad,
        ]
    );

    #[test]
    fn constants_match_the_header() {
        let c = [
            "MTHP_MAGIC",
            "MTHP_ABI",
            "MTHP_NO_MAX_ORDER",
            "MTHP_NR_REASONS",
            "MTHP_NR_RULES",
            "BPF_MTHP_ADVISED",
        ];
        let c: Vec<String> = c.iter().map(|&name| name.to_owned()).collect();
        let rust = [
            MAGIC as usize,
            ABI as usize,
            NO_MAX_ORDER as usize,
            NR_REASONS,
            NR_RULES,
            ADVISED as usize,
        ];
        assert_eq!(measured(&c), rust);
    }

    #[test]
    fn reasons_have_the_numbers_of_the_header() {
        let c = Reason::ALL.map(|reason| reason.enumerator().to_owned());
        let rust = Reason::ALL.map(|reason| reason as usize);
        assert_eq!(measured(&c), rust);
    }

    #[test]
    fn an_array_by_reason_has_no_reason_0() {
        let mut masks = ByReason::each(3_u64);
        masks.0[0] = 5;
        assert_eq!(masks, ByReason::each(3));
        assert_ne!(masks, ByReason::new(|r| u64::from(r != Reason::Swapin) * 3));
        assert_eq!(masks.iter().count(), Reason::ALL.len());
        assert_eq!(
            serde_json::to_string(&masks).unwrap(),
            r#"{"fault":3,"swapin":3,"khugepaged":3,"collapse":3,"reclaim":3}"#
        );
    }

    #[test]
    fn bytes_of_another_length_are_refused() {
        assert!(from_bytes::<Event>(&[0; 3]).is_none());
        let t = Tunables {
            magic: MAGIC,
            abi: ABI,
            ..Tunables::default()
        };
        assert_eq!(from_bytes::<Tunables>(as_bytes(&t)), Some(t));
    }
}
