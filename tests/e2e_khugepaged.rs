// SPDX-License-Identifier: GPL-2.0-only
//! khugepaged's scan: what it passes over, what that costs, and in which order
//! huge pages come. The mail's three tasks, in three guests: on the kernel of
//! the series and, with KHUGEPAGED_BEFORE set, on a stock one from before the
//! scan was improved, where other counts are expected.

mod common;

use std::time::{Duration, Instant};

use common::trace::{
    Scan, Trace, cpu_ns, finish_scan, full_scans, has_progress, pages_to_scan, pass,
};
use common::worker::{MADV_FREE, MADV_HUGEPAGE, Worker};
use common::{Group, MIB, THP, eventually, record, write};

const PMD: u64 = 2 * MIB;
/// Pages of a range of 2 MiB.
const RANGE: u64 = 512;
/// The kernel's own default: eight ranges, then it sleeps.
const PAGES_TO_SCAN: u64 = 8 * RANGE;

/// Memory of the three tasks and of the mapping without pages.
#[derive(Clone, Copy)]
struct Sizes {
    task: u64,
    empty: u64,
    /// Of a task, of 2 MiB.
    ranges: u64,
}

/// The mail has tasks of 128 MiB, as has the benchmark; the test is content with less.
fn sizes() -> Sizes {
    let mib = std::env::var("KHUGEPAGED_TASK_MIB").map_or(32, |mib| {
        mib.parse()
            .unwrap_or_else(|e| panic!("KHUGEPAGED_TASK_MIB={mib}: {e}"))
    });
    Sizes {
        task: mib * MIB,
        empty: 2 * mib * MIB,
        ranges: mib * MIB / PMD,
    }
}

/// The kernel is from before the scan was improved.
fn before() -> bool {
    std::env::var_os("KHUGEPAGED_BEFORE").is_some()
}

/// 2 MiB is the only size, and only for memory that asks for it: the other
/// processes of the guest are not registered.
fn world() {
    common::only_in_the_lab();
    write(format!("{THP}/khugepaged/scan_sleep_millisecs"), "3600000");
    for kib in (2..9).map(|order| 4 << order) {
        write(format!("{THP}/hugepages-{kib}kB/enabled"), "never");
    }
    write(format!("{THP}/hugepages-2048kB/enabled"), "inherit");
    write(format!("{THP}/enabled"), "madvise");
    pages_to_scan(PAGES_TO_SCAN);
    assert_ne!(has_progress(), before(), "which kernel is this?");
}

/// A process with small pages, of which khugepaged learns now.
fn task(group: &Group) -> Worker {
    let mut worker = Worker::new(group);
    worker.fill(sizes().task);
    assert_eq!(worker.huge(), 0);
    assert_eq!(worker.advise(MADV_HUGEPAGE), 0);
    worker
}

fn passes_until(worker: &mut Worker, huge: u64) -> u64 {
    let enough = (1..=200).find(|_| {
        pass();
        worker.huge() == huge
    });
    enough.unwrap_or_else(|| panic!("200 passes are not enough"))
}

fn report(name: &str, passes: u64, scans: &[Scan]) {
    let scans: Vec<_> = scans
        .iter()
        .map(|s| serde_json::json!({"ranges": s.ranges, "progress": s.progress}))
        .collect();
    record(&serde_json::json!({
        "name": name, "before": before(), "task_bytes": sizes().task, "pages_to_scan": PAGES_TO_SCAN,
        "passes": passes, "scans": scans,
    }));
}

/// hot1 is huge, cold was freed lazily, a third has no pages; then comes hot2.
#[test]
#[ignore = "needs the lab's VM"]
fn hot_memory_does_not_wait_for_what_cannot_collapse() {
    world();
    let Sizes {
        task: bytes,
        empty: nothing,
        ranges,
    } = sizes();
    let group = Group::new("tasks");
    let mut hot1 = task(&group);
    passes_until(&mut hot1, bytes);
    finish_scan();

    let mut cold = task(&group);
    assert_eq!(cold.advise(MADV_FREE), 0);
    let mut empty = Worker::new(&group);
    // A mapping that was never touched is not one of khugepaged's.
    empty.map(nothing);
    empty.touch(4096);
    assert_eq!(empty.advise(MADV_HUGEPAGE), 0);
    let mut hot2 = task(&group);

    let trace = Trace::start();
    let passes = passes_until(&mut hot2, bytes);
    let scans = trace.scans();
    report("khugepaged_hot2", passes, &scans);
    // First come, first scanned.
    let [first, second, third, fourth] = &scans[..] else {
        panic!("four processes ask for huge pages: {scans:#?}");
    };
    // Once hot2 is huge, the rest of the last pass goes round again.
    let rounds = second.all_ranges() / ranges;
    assert!((1..=2).contains(&rounds), "{second:?}");
    let without_pages = nothing / PMD - 1;
    // Older kernels have another name for it.
    let none = third.ranges("no_pte_table") + third.ranges("pmd_none");
    assert_eq!(none, rounds * without_pages, "{third:?}");
    assert_eq!(third.ranges("succeeded"), 1, "{third:?}");
    assert_eq!(fourth.ranges("succeeded"), ranges, "{fourth:?}");
    assert_eq!(cold.huge(), 0);
    let full = |ranges: u64| ranges * RANGE / PAGES_TO_SCAN;
    if before() {
        // The lazily freed pages are scanned like all others.
        assert_eq!(second.ranges("page_lazyfree"), 0, "{second:?}");
        assert_eq!(
            second.ranges("lack_referenced_page"),
            rounds * ranges,
            "{second:?}"
        );
        // What cannot be collapsed costs as much as what can. The scan may have been anywhere in hot1.
        let least = full(2 * ranges + nothing / PMD);
        assert!(passes >= least, "{passes}: {scans:#?}");
        return;
    }
    assert_eq!(
        first.ranges("page_pmd_mapped"),
        rounds * ranges,
        "{first:?}"
    );
    assert_eq!(
        second.ranges("page_lazyfree"),
        rounds * ranges,
        "{second:?}"
    );
    let one_page = without_pages + RANGE;
    for (scan, least) in [
        (first, rounds * ranges),
        (second, rounds * ranges),
        (third, one_page),
    ] {
        // One for each range, and the rest for the mappings of the process.
        assert!(
            (least..least + RANGE / 2).contains(&scan.progress),
            "{scan:?}"
        );
    }
    assert!(fourth.progress >= ranges * RANGE, "{fourth:?}");
    assert!(passes <= full(ranges) + 2, "{passes}: {scans:#?}");
}

/// Nothing is left to collapse: what does each later full scan cost?
#[test]
#[ignore = "needs the lab's VM"]
fn an_idle_full_scan_is_short() {
    const SLEEP_MS: u64 = 100;
    world();
    let Sizes {
        task: bytes,
        ranges,
        ..
    } = sizes();
    let group = Group::new("tasks");
    let mut tasks = [task(&group), task(&group), task(&group)];
    for task in &mut tasks {
        passes_until(task, bytes);
    }
    finish_scan();
    let trace = Trace::start();
    let passes = finish_scan();
    let scans = trace.scans();
    report("khugepaged_full_scan", passes, &scans);
    drop(trace);
    let huge: u64 = scans
        .iter()
        .map(|scan| scan.ranges("page_pmd_mapped"))
        .sum();
    assert_eq!(huge, 3 * ranges, "{scans:#?}");
    if before() {
        assert!(
            passes >= huge * RANGE / PAGES_TO_SCAN,
            "{passes}: {scans:#?}"
        );
    } else {
        assert_eq!(passes, 1, "{scans:#?}");
    }

    // The time of one, shown: it sleeps after each pass.
    write(
        format!("{THP}/khugepaged/scan_sleep_millisecs"),
        &SLEEP_MS.to_string(),
    );
    let next = |after: u64| eventually("a full scan", || full_scans() > after);
    next(full_scans());
    let (start, at, cpu) = (Instant::now(), full_scans(), cpu_ns());
    next(at + 3);
    let scans = full_scans() - at;
    let each = start.elapsed() / u32::try_from(scans).unwrap();
    let cpu = (cpu_ns() - cpu) / scans;
    pass();
    record(&serde_json::json!({
        "name": "khugepaged_full_scan_time", "before": before(), "scan_sleep_millisecs": SLEEP_MS,
        "full_scan_ms": u64::try_from(each.as_millis()).unwrap(), "cpu_ns": cpu,
    }));
    // It works, and sleeps between.
    assert!(
        cpu > 0 && Duration::from_nanos(cpu) < each,
        "{cpu} {each:?}"
    );
}
