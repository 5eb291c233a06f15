// SPDX-License-Identifier: GPL-2.0-only
//! What would end a rule's hold on a cgroup: the inverse of `bpf/decide.h`, from the record of a
//! decision and the constants it was made with.  tests/change.rs feeds what it says back into
//! `mthp_decide()`, and one page less of it, too.

use schemars::JsonSchema;
use serde::Serialize;

use super::why::{Level, lacks_room_for_pud, rules};
use crate::model::abi::{Bind, RESERVE, Record, Tunables};
use crate::model::orders::Sizes;
use crate::model::reason::Reason;
use crate::model::rule::Rule;
use crate::model::sentences::{stall, what_fits_is_given};
use crate::model::units::{show_duration, show_size, show_size_up};

/// What ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Until {
    /// The verdict of the cgroup above, which this one goes by.
    Above {},
    /// A window with less stall.
    Calm {
        /// Its length, in microseconds.
        window_us: u64,
        /// Less stall in it than this, in microseconds.
        stall_below_us: u64,
    },
    /// Growth.
    Memory {
        /// anon+shmem, at least.
        memory_bytes: u64,
    },
    /// A process that fills more of what it spans.
    Filled {},
    /// Room at the level that leaves the least.  Others on the path may leave too little as well.
    Room {
        /// In use there, at most, beside page cache that counts as room; null: no usage is low
        /// enough.
        used_bytes: Option<u64>,
        /// The same by now.
        used_bytes_now: u64,
        /// Its limit, at least; null for the machine.
        limit_bytes: Option<u64>,
        /// The next larger size, and what must be left for it; null: there is none between.
        next: Option<Next>,
    },
    /// Another cap.
    Cap {},
}

/// The next larger size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Next {
    /// Its name.
    pub size: String,
    /// What must be left at the level.
    pub room_bytes: u64,
}

/// What ends the hold of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// The rule.
    pub rule: Rule,
    /// In words: one or two sentences.
    pub text: String,
    /// In numbers.
    pub until: Until,
}

/// For each rule that decided, what would end that.
pub fn changes(record: &Record, level: Option<&Level>, t: &Tunables, sizes: &Sizes) -> Vec<Change> {
    let change = |rule: Rule| {
        let until = until(rule, record, t, sizes);
        Change {
            rule,
            text: text(&until, record, level, (t, sizes)),
            until,
        }
    };
    rules(record).into_iter().map(change).collect()
}

/// Until when the rule decides, while all else stays as it is.
pub fn until(rule: Rule, record: &Record, t: &Tunables, sizes: &Sizes) -> Until {
    match rule {
        Rule::Pressure if record.seen == 0 => Until::Above {},
        Rule::Pressure => Until::Calm {
            window_us: t.window_ns / 1000,
            stall_below_us: t.threshold_ns / 1000,
        },
        Rule::Small => Until::Memory {
            memory_bytes: t.min_memory,
        },
        Rule::Sparse => Until::Filled {},
        Rule::Room => room(record, t, sizes),
        Rule::Cap => Until::Cap {},
    }
}

/// The inverse of `mthp_level_room()` and `mthp_room_orders()`: all sizes fit, or the level does not
/// count.  For 1 GiB where it is what does not fit, else for what is smaller.  In pages, and wide
/// enough for any of them.
fn room(record: &Record, t: &Tunables, sizes: &Sizes) -> Until {
    let pages = |bytes: u64| i128::from(bytes >> t.page_shift);
    let bytes = |pages: i128| {
        u64::try_from(pages)
            .ok()
            .and_then(|pages| pages.checked_mul(1 << t.page_shift))
    };
    let machine = record.level_id == 0;
    let (limit, largest) = (pages(record.limit_bytes), i128::from(t.largest_pages));
    // Spare memory of the machine has its page cache in it.
    let cache = if machine {
        0
    } else {
        pages(record.cache_bytes)
    };
    let used = pages(record.used_bytes) - cache;
    // What a PUD takes before its last part comes to be; that all fits is no excuse then.
    let pud = lacks_room_for_pud(record, t);
    let ahead = match pud {
        true => i128::from(t.pud_pages) - largest,
        false => 0,
    };
    let taken_back = !machine && !pud && what_fits_is_given(t);
    let swapped = taken_back.then(|| pages(record.swapped_bytes));
    let reserve = i128::from(RESERVE) * largest;
    let share = i128::from(t.limit_share);
    let (factor, orders) = strictest(record);
    let all = factor * largest;

    let at_most = [
        Some(((limit * share) >> 10) - largest - ahead),
        swapped.map(|swapped| limit - swapped - reserve),
        Some(limit - all - ahead),
    ];
    let at_least = [
        (share > 0).then(|| ((used + ahead + largest).max(0) * 1024 + share - 1) / share),
        swapped.map(|swapped| used + swapped + reserve),
        Some(used + ahead + all),
    ];
    let next = (0..t.largest_pages.checked_ilog2().unwrap_or(0))
        .find(|order| sizes.orders & !orders & (1 << order) != 0)
        .map(|order| (order, factor << order))
        .or_else(|| pud.then_some((sizes.pud()?, ahead + all)))
        .and_then(|(order, room)| {
            Some(Next {
                size: sizes.name(order),
                room_bytes: bytes(room)?,
            })
        });
    Until::Room {
        used_bytes: at_most.into_iter().flatten().max().and_then(bytes),
        used_bytes_now: bytes(used.max(0)).unwrap_or(0),
        limit_bytes: match machine {
            true => None,
            false => at_least.into_iter().flatten().min().and_then(bytes),
        },
        next,
    }
}

/// The largest factor that the rule room decided by, and what it left there.
fn strictest(record: &Record) -> (i128, u64) {
    let decided = Reason::ALL.map(|reason| record.decided[reason as usize]);
    let by_room = decided
        .into_iter()
        .filter(|decided| Rule::of(decided.rule) == Some(Rule::Room));
    by_room
        .map(|decided| (i128::from(decided.room_factor.max(1)), decided.orders))
        .max_by_key(|(factor, _)| *factor)
        .unwrap_or((1, 0))
}

fn text(
    until: &Until,
    record: &Record,
    level: Option<&Level>,
    (t, sizes): (&Tunables, &Sizes),
) -> String {
    let advised = if t.bind.0 & Bind::MTHP_BIND_ADVISED.0 == 0 {
        " MADV_HUGEPAGE memory is not bound by it."
    } else {
        ""
    };
    match until {
        Until::Above {} => {
            "Ends with the pressure of the cgroup above: this one's own is not seen.".to_owned()
        }
        Until::Calm {
            window_us,
            stall_below_us,
        } => format!(
            "Ends after {} with less than {} of {} stall.",
            show_duration(window_us * 1000),
            show_duration(stall_below_us * 1000),
            stall(t)
        ),
        Until::Memory { memory_bytes } => format!(
            "Ends at {} of anon+shmem, or with a lower --min-memory.{advised}",
            show_size_up(*memory_bytes)
        ),
        Until::Filled {} => format!(
            "Ends when the process that asks fills half of what it spans; or a quarter of what it grew \
             by, if it wastes less than {}; or some time after the last one that does not.{advised}",
            show_size(t.sparse_bytes)
        ),
        Until::Room {
            used_bytes,
            used_bytes_now,
            limit_bytes,
            next,
        } => {
            let (whose, used) = whose(level);
            let cache = match record.cache_bytes {
                bytes if bytes >= 1 << t.page_shift && record.level_id != 0 => {
                    format!(", without {} of page cache", show_size(bytes))
                }
                _ => String::new(),
            };
            let usage = used_bytes.map(|bytes| {
                let (most, now) = (show_size(bytes), show_size(*used_bytes_now));
                format!("when {used}{cache} falls to {most} (now {now})")
            });
            let limit = limit_bytes.map(|bytes| {
                let lower = if record.level_high == 1 {
                    ", and its memory.max is not below that"
                } else {
                    ""
                };
                format!("when {whose} is {} or more{lower}", show_size_up(bytes))
            });
            let ways: Vec<String> = [usage, limit].into_iter().flatten().collect();
            let next = next.as_ref().map_or_else(String::new, |next| {
                let (left, now) = (show_size_up(next.room_bytes), show_size(record.room_bytes));
                format!(" {} comes back with {left} left (now {now}).", next.size)
            });
            match ways.as_slice() {
                [] => format!("Lasts as long as {whose} is so small.{next}"),
                ways => {
                    // What 1 GiB takes besides is another question.
                    let which = match sizes.pud() {
                        Some(_) if !lacks_room_for_pud(record, t) => {
                            format!("Sizes up to {}", sizes.name(sizes.largest()))
                        }
                        _ => "All sizes".to_owned(),
                    };
                    format!("{which} come back {}.{next}", ways.join(", or "))
                }
            }
        }
        Until::Cap {} => format!("Ends with a larger --cap only.{advised}"),
    }
}

/// The level's limit, and what of it is in use, as words of a sentence.
fn whose(level: Option<&Level>) -> (String, String) {
    match level {
        Some(Level {
            cgroup: Some(cgroup),
            limit,
            ..
        }) => (format!("{limit} of {cgroup}"), format!("usage of {cgroup}")),
        Some(level) if level.limit == "nodes" => (
            "the memory of its nodes".to_owned(),
            "usage of its nodes".to_owned(),
        ),
        _ => ("the machine".to_owned(), "usage of the machine".to_owned()),
    }
}
