// SPDX-License-Identifier: GPL-2.0-only
//! The counters are exact: what they say of a million page faults, on two processors at the same
//! time, is what the hook's tracepoint was hit for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use common::ext::{Ext, output, status_of};
use common::worker::Worker;
use common::{Group, read, sizes_on, vmstat, world};
use nix::libc;
use serde_json::Value;

const TRACEPOINT: &str = "/sys/kernel/tracing/events/huge_memory/bpf_mthp_choose/id";

/// How often the tracepoint is hit where a filter holds, on all processors.
struct Hits(Vec<OwnedFd>);

impl Hits {
    fn of(filter: &str) -> Self {
        const PERF_TYPE_TRACEPOINT: u64 = 2;
        const PERF_EVENT_IOC_SET_FILTER: u64 = 0x4008_2406;
        let id: u64 = read(TRACEPOINT).trim().parse().unwrap();
        let filter = std::ffi::CString::new(filter).unwrap();
        let open = |cpu: i32| {
            // struct perf_event_attr: type and size, config; all else 0.
            let mut attr = [0u64; 16];
            attr[0] = PERF_TYPE_TRACEPOINT | (128 << 32);
            attr[1] = id;
            // SAFETY: the attributes are as long as they say.
            let fd =
                unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), -1, cpu, -1, 8) };
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: just made by the kernel, owned by nobody else.
            let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) };
            // SAFETY: the text ends with 0 and lives through the call.
            let set =
                unsafe { libc::ioctl(fd.as_raw_fd(), PERF_EVENT_IOC_SET_FILTER, filter.as_ptr()) };
            assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
            fd
        };
        let cpus = std::thread::available_parallelism().unwrap().get();
        Hits((0..i32::try_from(cpus).unwrap()).map(open).collect())
    }

    fn count(&self) -> u64 {
        let each = self.0.iter().map(|fd| {
            let mut count = 0u64;
            // SAFETY: writes the eight bytes of a count.
            let read = unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
            assert_eq!(read, 8);
            count
        });
        each.sum()
    }
}

/// The counts of a size; nothing where it was never asked for.
fn of_size<'a>(by_size: &'a Value, size: &str) -> &'a Value {
    let all = by_size.as_array().unwrap();
    all.iter()
        .find(|one| one["size"] == size)
        .unwrap_or(&Value::Null)
}

#[test]
#[ignore = "needs the lab's VM"]
fn counters_agree_with_the_tracepoint_on_a_million_faults() {
    const ROUNDS: u64 = 16_384;
    world();
    let _sizes = sizes_on(&[16, 64]);
    let group = Group::new("counted");
    let _ext = Ext::run(&group, &["--policy", "fixed", "--cap", "16K"]);
    let id = status_of(&group);
    assert!(id.is_object(), "it is there: {id}");
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&group.path).unwrap());
    let of = |more: &str| Hits::of(&format!("cgroup == {inode} && reason == 1{more}"));
    // 64 KiB, which are denied; and 16 KiB where 64 KiB do not fit any more.
    let (all, large, small) = (of(""), of(" && offered & 16"), of(" && offered == 4"));
    let denied = of(" && offered & 16 && allowed == 4");
    let dropped = vmstat("thp_bpf_dropped");
    let mut workers = [Worker::new(&group), Worker::new(&group)];
    for worker in &mut workers {
        worker.churn_start(ROUNDS);
    }
    for worker in &mut workers {
        worker.finish();
    }
    let line = status_of(&group);
    let hits = all.count();
    assert_eq!(
        vmstat("thp_bpf_dropped"),
        dropped,
        "no answer has more than the offer"
    );
    assert!(hits >= 1_000_000, "{hits}");
    assert_eq!(line["requests"]["fault"], hits, "{line}");
    assert_eq!(line["narrowed"]["fault"]["cap"], denied.count(), "{line}");
    let counts = &line["by_size"]["fault"];
    let count = |size: &str, what: &str| of_size(counts, size)[what].as_u64().unwrap_or(0);
    assert_eq!(count("64K", "requests"), large.count(), "{line}");
    assert_eq!(count("64K", "denied"), denied.count(), "{line}");
    assert_eq!(count("64K", "allowed"), 0, "{line}");
    assert_eq!(count("16K", "requests"), small.count(), "{line}");
    assert_eq!(count("16K", "allowed"), small.count(), "{line}");
    assert!(large.count() > 400_000 && small.count() > 400_000, "{line}");
    let out = output(&["explain", &group.name(), "--json"]);
    let answer: Value = common::schema::answer("explain", &out.stdout);
    let fault = &answer["policies"][0]["decides"]["decisions"]["fault"];
    assert_eq!(fault["by_size"], *counts, "{answer}");
}
