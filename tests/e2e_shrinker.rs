// SPDX-License-Identifier: GPL-2.0-only
//! The shrinker of underused folios, alone and beside a policy: the case of
//! the mail that proposed it, cell by cell.

mod common;

use common::ext::Ext;
use common::worker::Worker;
use common::{Group, MIB, THP, keyed, max_ptes_none, record, vmstat, world, write};

/// The mail's: stress --vm-bytes 40M --vm-stride 50K, memory.max = 20M.
const REGION: u64 = 40 * MIB;
const STRIDE: u64 = 50 << 10;
const LIMIT: u64 = 20 * MIB;

/// Pages of a folio of 2 MiB, and the fewest and most that the stride touches.
const FOLIO: u64 = 512;
const FOLIO_BYTES: u64 = FOLIO * 4096;
const TOUCHED: std::ops::RangeInclusive<u64> = 40..=41;
/// More empty pages than this, and the folio is split.
const MAX_PTES_NONE: [u64; 5] = [409, 450, 470, 500, 511];

fn touched_pages() -> u64 {
    REGION.div_ceil(STRIDE)
}

/// Sets both knobs; dropped: as the kernel boots.
struct Knobs;

impl Knobs {
    fn set(shrink: bool, none: u64) -> Self {
        write(
            format!("{THP}/shrink_underused"),
            if shrink { "1" } else { "0" },
        );
        max_ptes_none(none);
        Knobs
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        let _ = std::fs::write(format!("{THP}/shrink_underused"), "1");
        let _ = std::fs::write(format!("{THP}/khugepaged/max_ptes_none"), "511");
    }
}

/// How a cell ended.
#[derive(Debug)]
struct Cell {
    shrink: bool,
    max_ptes_none: u64,
    killed: bool,
    splits: u64,
    peak: u64,
    /// Of the region: bytes resident, pages mapped to the zero page, in huge
    /// folios.  Zero if killed.
    resident: u64,
    zeroes: u64,
    huge: u64,
}

fn cell(parent: &Group, shrink: bool, max_ptes_none: u64) -> Cell {
    let _knobs = Knobs::set(shrink, max_ptes_none);
    let group = parent.child(&format!("c{}-{max_ptes_none}", u8::from(shrink)));
    group.set("memory.max", &LIMIT.to_string());
    group.set("memory.swap.max", "0");
    let splits = vmstat("thp_underused_split_page");
    let mut worker = Worker::new(&group);
    worker.map(REGION);
    let lives = worker.touch_sparsely(STRIDE);
    let killed = keyed(&group.get("memory.events"), "oom_kill") > 0;
    assert_ne!(lives, killed, "only the OOM killer ends it: {killed}");
    let mut cell = Cell {
        shrink,
        max_ptes_none,
        killed,
        splits: vmstat("thp_underused_split_page") - splits,
        peak: group.bytes("memory.peak"),
        resident: 0,
        zeroes: 0,
        huge: 0,
    };
    if lives {
        (cell.zeroes, cell.resident, cell.huge) =
            (worker.zero_pages(), worker.resident(), worker.huge());
        assert!(worker.is_intact(STRIDE), "contents survive: {cell:?}");
    }
    drop(worker);
    group.remove();
    cell
}

fn table(parent: &Group, policy: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    for shrink in [false, true] {
        for max_ptes_none in MAX_PTES_NONE {
            let cell = cell(parent, shrink, max_ptes_none);
            record(&serde_json::json!({
                "name": "shrinker_cell", "policy": policy, "shrink": cell.shrink,
                "max_ptes_none": cell.max_ptes_none, "killed": cell.killed, "splits": cell.splits,
                "peak": cell.peak, "resident": cell.resident, "zeroes": cell.zeroes, "huge": cell.huge,
            }));
            cells.push(cell);
        }
    }
    cells
}

/// Where the shrinker is on and the stride leaves more empty pages in a folio
/// than `max_ptes_none`, folios are split: 471 of 512 are empty.
fn splits_enough(cell: &Cell) -> bool {
    cell.shrink && cell.max_ptes_none <= 470
}

fn judge_without(cell: &Cell) {
    assert_eq!(cell.killed, !splits_enough(cell), "{cell:?}");
    if cell.killed {
        assert_eq!(cell.splits, 0, "{cell:?}");
        return;
    }
    // Ten folios of 2 MiB fill the limit. The other ranges came to be by splits of those before them, or got
    // smaller folios when reclaim had just given too little for another one.
    let all = REGION / FOLIO_BYTES;
    assert!(
        cell.splits >= all / 2 && cell.splits + cell.huge / FOLIO_BYTES <= all,
        "{cell:?}"
    );
    // The empty pages of the split ones are mapped to the zero page and were given back.
    let (least, most) = (FOLIO - TOUCHED.end(), FOLIO - TOUCHED.start());
    let zeroes = cell.splits * least..=cell.splits * most;
    assert!(zeroes.contains(&cell.zeroes), "{cell:?}");
    assert!(cell.resident <= REGION - cell.zeroes * 4096, "{cell:?}");
    assert!(cell.resident >= touched_pages() * 4096, "{cell:?}");
    assert!(cell.peak <= LIMIT, "{cell:?}");
}

fn judge_with(cell: &Cell) {
    assert!(!cell.killed, "{cell:?}");
    // There is little that would have to be split.
    assert!(cell.resident < LIMIT * 3 / 4, "{cell:?}");
    assert!(cell.resident >= touched_pages() * 4096, "{cell:?}");
    assert!(cell.peak <= LIMIT, "{cell:?}");
}

/// Without a policy, cells that split enough survive; with the default one all do,
/// and no cell is worse off.
#[test]
#[ignore = "needs the lab's VM"]
fn the_default_policy_saves_every_cell() {
    world();
    let parent = Group::new("shrinker");
    let without = table(&parent, "none");
    let ext = Ext::run(&parent, &[]);
    let with = table(&parent, "default");
    drop(ext);
    for (alone, beside) in without.iter().zip(&with) {
        judge_without(alone);
        judge_with(beside);
        let worse = !alone.killed && beside.resident > alone.resident;
        assert!(!worse, "{alone:?} {beside:?}");
    }
}

/// Without any limit, reclaim finds underused folios and memory falls to what
/// is used; a policy attached too late for the faults does not stand in the way.
#[test]
#[ignore = "needs the lab's VM"]
fn reclaim_takes_the_empty_pages_back() {
    world();
    let parent = Group::new("shrinker");
    for policy in [false, true] {
        let _knobs = Knobs::set(true, 409);
        let group = parent.child(if policy { "policy" } else { "none" });
        let mut worker = Worker::new(&group);
        worker.map(REGION);
        assert!(worker.touch_sparsely(STRIDE));
        assert_eq!(worker.huge(), REGION);
        let _ext = policy.then(|| Ext::run(&group, &["--cap", "4K"]));
        let anon = |group: &Group| keyed(&group.get("memory.stat"), "anon");
        let before = anon(&group);
        // memory.stat lags behind by what each processor has not passed on yet.
        assert!(before + MIB >= REGION, "{before}");
        let splits = vmstat("thp_underused_split_page");
        // More than there is: it is the way that counts, EAGAIN the usual end.
        let _ = std::fs::write(group.path.join("memory.reclaim"), REGION.to_string());
        let folios = REGION / FOLIO_BYTES;
        assert_eq!(vmstat("thp_underused_split_page") - splits, folios);
        assert_eq!(worker.resident(), touched_pages() * 4096);
        let after = anon(&group);
        assert!(
            before - after + MIB >= worker.zero_pages() * 4096,
            "{before} {after}"
        );
        assert_eq!(worker.zero_pages(), folios * FOLIO - touched_pages());
        assert!(worker.is_intact(STRIDE));
        // Written again, a page is a page: the folio does not come back by itself.
        worker.touch(REGION);
        assert_eq!((worker.huge(), worker.zero_pages()), (0, 0));
        drop(worker);
        group.remove();
    }
}
