// SPDX-License-Identifier: GPL-2.0-only
//! What `explain` says would change a decision is true: each fact that it names is fed back into
//! the decision that the kernel runs, and the last one that is not enough, too.  And what user
//! space works out by itself is what the kernel's code makes of the same.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod host;

use host::Program;
use mthp_ext::kernel::attached::Heartbeat;
use mthp_ext::kernel::lacks::binding;
use mthp_ext::model::abi::{self, Bind, NO_CAP, Record, Tunables};
use mthp_ext::model::orders::Sizes;
use mthp_ext::model::reason::Reason;
use mthp_ext::model::resolve;
use mthp_ext::model::rule::Rule;
use mthp_ext::model::sentences::what_fits_is_given;
use mthp_ext::output::change::{Until, changes, until};
use mthp_ext::output::why::{lacks_room_for_pud, rules};

static PROGRAM: Program = Program::new("change");

/// `BPF_MTHP_ADVISED`.
const ADVISED: u64 = abi::Flags::BPF_MTHP_ADVISED.0 as u64;

/// `struct what_if` of change.c.
#[derive(Clone, Copy)]
#[repr(C)]
struct WhatIf {
    t: Tunables,
    flags: u64,
    memory_bytes: u64,
    memory_known: u64,
    populated: u64,
    sparse: u64,
    pressure: u64,
    lifted: u64,
    machine: u64,
    limit: u64,
    used: u64,
    swapped: u64,
    cache: u64,
    seen: u64,
    stall_ns: u64,
    now_ns: u64,
    scanned_ns: u64,
    oldest_ns: u64,
}

/// `struct answer` of change.c.
#[derive(Clone, Copy)]
#[repr(C)]
struct Answer {
    now: Record,
    falls: u64,
    fits_is_given: u64,
    stale: u64,
}

// SAFETY: integers without padding, as of the C side.
unsafe impl abi::Plain for WhatIf {}
// SAFETY: as above.
unsafe impl abi::Plain for Answer {}

/// What the kernel's code decides for each of them.
fn decide(cases: &[WhatIf]) -> Vec<Answer> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = cases.iter().flat_map(abi::as_bytes).copied().collect();
    std::fs::write(file.path(), bytes).unwrap();
    let out = PROGRAM.run(&[file.path().to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {errors}", out.status);
    let answers = out.stdout.chunks_exact(size_of::<Answer>());
    let answers: Vec<Answer> = answers.map(|a| abi::from_bytes(a).unwrap()).collect();
    assert_eq!(answers.len(), cases.len());
    answers
}

/// xorshift: the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Of any magnitude up to 2^`bits`.
    fn any(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits + 1);
        self.below(1 << bits)
    }

    fn case(&mut self, sizes: &Sizes) -> WhatIf {
        let mut t = resolve::defaults(sizes).unwrap();
        t.rules = u32::try_from(self.below(64)).unwrap() | (1 << Rule::Room as u32);
        t.takes_back = u32::try_from(self.below(2)).unwrap();
        t.bind = Bind(u32::try_from(self.below(4)).unwrap());
        t.limit_share =
            u32::try_from([0, 1, 256, 512, 1000, 1024][self.below(6) as usize]).unwrap();
        t.room_factor = 1 + self.any(20);
        t.min_memory = self.any(40);
        t.sparse_bytes = self.any(2) << 20;
        t.threshold_ns = 1000 * (1 + self.below(t.window_ns / 1000));
        for reason in Reason::ALL {
            let caps = [NO_CAP, 0, 4, 9, 62];
            t.cap[reason as usize] = caps[self.below(5) as usize];
        }
        let limit = self.any(30);
        let mut near = || (limit + self.any(14)).saturating_sub(self.any(30));
        let (used, swapped) = (near(), near());
        let (scanned_ns, oldest_ns) = (self.any(50), self.any(40));
        let now_ns = match self.below(4) {
            0 => scanned_ns + oldest_ns,
            1 => scanned_ns + oldest_ns + 1,
            // Another CPU may have ended a scan since the clock was read.
            2 => self.any(50),
            _ => scanned_ns + self.any(45),
        };
        WhatIf {
            used,
            swapped: swapped * self.below(2),
            t,
            flags: 0,
            memory_bytes: self.any(40),
            memory_known: self.below(2),
            populated: self.below(2),
            sparse: self.below(2),
            pressure: self.below(4) / 3,
            lifted: self.below(4) / 3,
            machine: self.below(4) / 3,
            limit,
            cache: self.below(2) * self.any(28).min(used),
            seen: self.below(2),
            stall_ns: 0,
            now_ns,
            scanned_ns,
            oldest_ns,
        }
    }
}

/// A case that differs in one fact, and whether the rule still decides then.
struct Claim {
    what: String,
    case: WhatIf,
    rule: Rule,
    /// It is about 1 GiB; else about what is smaller.
    pud: bool,
    decides: bool,
}

impl Claim {
    fn holds(&self, now: &Record) -> bool {
        let of_pud = self.rule == Rule::Room && lacks_room_for_pud(now, &self.case.t);
        let decides = rules(now).contains(&self.rule) && (self.pud || !of_pud);
        decides == self.decides
    }
}

/// The claims of one rule about a case.
fn claims(case: &WhatIf, record: &Record, rule: Rule, sizes: &Sizes) -> Vec<Claim> {
    let pud = lacks_room_for_pud(record, &case.t);
    let mut found = Vec::new();
    let mut claim = |what: &str, decides: bool, change: &dyn Fn(&mut WhatIf)| {
        let mut other = *case;
        change(&mut other);
        if decides {
            // A smaller cap decides in the place of little room.
            other.t.rules &= !(1 << Rule::Cap as u32);
        }
        found.push(Claim {
            what: what.to_owned(),
            case: other,
            rule,
            pud,
            decides,
        });
    };
    let shift = case.t.page_shift;
    match until(rule, record, &case.t, sizes) {
        Until::Above {} => {
            assert_eq!(case.seen, 0);
            claim("calm above", false, &|c| c.pressure = 0);
        }
        Until::Calm { .. } => claim("calm", false, &|c| c.pressure = 0),
        Until::Memory { memory_bytes } => {
            claim("memory", false, &|c| c.memory_bytes = memory_bytes);
            claim("less memory", true, &|c| c.memory_bytes = memory_bytes - 1);
        }
        Until::Filled {} => claim("filled", false, &|c| c.sparse = 0),
        Until::Cap {} => claim("no cap", false, &|c| c.t.cap = [NO_CAP; 6]),
        Until::Room {
            used_bytes,
            used_bytes_now,
            limit_bytes,
            ..
        } => {
            let cache = cache_of(case, record);
            assert_eq!(used_bytes_now >> shift, case.used - cache);
            match used_bytes {
                Some(bytes) => {
                    let used = (bytes >> shift) + cache;
                    assert!(used < case.used, "it decides by now");
                    claim("usage", false, &|c| c.used = used);
                    claim("more usage", true, &|c| c.used = used + 1);
                }
                None => claim("no usage", true, &|c| c.used = cache),
            }
            if let Some(bytes) = limit_bytes {
                assert_eq!(case.machine, 0);
                let limit = bytes >> shift;
                assert!(limit > case.limit, "it decides by now");
                claim("limit", false, &|c| c.limit = limit);
                claim("lower limit", true, &|c| c.limit = limit - 1);
            } else {
                assert_eq!(case.machine, 1);
            }
        }
    }
    let change = changes(record, None, &case.t, sizes);
    let change = change.iter().find(|change| change.rule == rule).unwrap();
    if change.text.contains("MADV_HUGEPAGE memory is not bound") {
        claim("advice", false, &|c| c.flags = ADVISED);
    }
    found
}

/// Page cache that counts as room, in pages: none where it is about 1 GiB.
fn cache_of(case: &WhatIf, record: &Record) -> u64 {
    match case.machine != 0 || lacks_room_for_pud(record, &case.t) {
        true => 0,
        false => case.cache,
    }
}

fn x86() -> Sizes {
    Sizes {
        orders: 0x3fc,
        off: 0,
        page_shift: 12,
    }
}

/// With 1 GiB.
fn x86_pud() -> Sizes {
    Sizes {
        orders: 0x3fc | (1 << 18),
        off: 0,
        page_shift: 12,
    }
}

/// Base pages of 64 KiB.
fn arm() -> Sizes {
    Sizes {
        orders: 0x3ffe,
        off: 0,
        page_shift: 16,
    }
}

/// Random cases with what is decided for them.
fn cases(sizes: &Sizes) -> (Vec<WhatIf>, Vec<Answer>) {
    let mut random = Random(88_172_645_463_325_252);
    let cases: Vec<WhatIf> = (0..40_000).map(|_| random.case(sizes)).collect();
    let answers = decide(&cases);
    (cases, answers)
}

#[test]
fn what_is_said_to_end_a_rule_ends_it_and_nothing_less_does() {
    for sizes in [x86(), x86_pud(), arm()] {
        let (cases, answers) = cases(&sizes);
        let mut all = Vec::new();
        for (case, answer) in cases.iter().zip(&answers) {
            for rule in rules(&answer.now) {
                all.extend(claims(case, &answer.now, rule, &sizes));
            }
        }
        let answers = decide(&all.iter().map(|claim| claim.case).collect::<Vec<_>>());
        let mut tried = std::collections::BTreeMap::<(Rule, &str), u32>::new();
        for (claim, answer) in all.iter().zip(&answers) {
            assert!(
                claim.holds(&answer.now),
                "{} {}: limit {} used {} swapped {} cache {} share {} factor {} takes back {}",
                claim.rule.name(),
                claim.what,
                claim.case.limit,
                claim.case.used,
                claim.case.swapped,
                claim.case.cache,
                claim.case.t.limit_share,
                claim.case.t.room_factor,
                claim.case.t.takes_back,
            );
            *tried.entry((claim.rule, claim.what.as_str())).or_default() += 1;
        }
        assert!(
            tried.len() >= 13 && tried.values().all(|n| *n > 50),
            "{tried:?}"
        );
    }
}

/// Where that rule is the only one that narrows, large folios are back.
#[test]
fn all_sizes_come_back_where_only_the_room_was_short() {
    for sizes in [x86(), x86_pud()] {
        let (mut cases, _) = cases(&sizes);
        for case in &mut cases {
            case.t.rules = 1 << Rule::Room as u32;
        }
        let answers = decide(&cases);
        let mut enough = Vec::new();
        for (case, answer) in cases.iter().zip(&answers) {
            if rules(&answer.now) != [Rule::Room] {
                continue;
            }
            let until = until(Rule::Room, &answer.now, &case.t, &sizes);
            let Until::Room {
                used_bytes: Some(used),
                ..
            } = until
            else {
                continue;
            };
            let case = WhatIf {
                used: (used >> 12) + cache_of(case, &answer.now),
                ..*case
            };
            let pud = lacks_room_for_pud(&answer.now, &case.t);
            // What is smaller comes back first.
            let back = match (pud, sizes.pud()) {
                (false, Some(_)) => abi::ALL_ORDERS & ((2 << sizes.largest()) - 1),
                _ => abi::ALL_ORDERS,
            };
            enough.push((case, back));
        }
        assert!(enough.len() > 1000, "{}", enough.len());
        let answers = decide(&enough.iter().map(|(case, _)| *case).collect::<Vec<_>>());
        for ((_, back), answer) in enough.iter().zip(answers) {
            for reason in Reason::ALL {
                let orders = answer.now.decided[reason as usize].orders;
                assert_eq!(orders & back, *back, "{}", reason.name());
            }
        }
    }
}

#[test]
fn the_next_size_comes_with_the_room_that_is_named() {
    for sizes in [x86(), x86_pud()] {
        let (cases, answers) = cases(&sizes);
        let (mut enough, mut short) = (Vec::new(), Vec::new());
        for (case, answer) in cases.iter().zip(&answers) {
            if !rules(&answer.now).contains(&Rule::Room) {
                continue;
            }
            let until = until(Rule::Room, &answer.now, &case.t, &sizes);
            let Until::Room {
                next: Some(next), ..
            } = until
            else {
                continue;
            };
            let room = next.room_bytes >> 12;
            let cache = cache_of(case, &answer.now);
            // The least room that a level may leave and still count.
            if room <= case.limit && case.t.limit_share == 0 {
                let used = case.limit - room + cache;
                enough.push((WhatIf { used, ..*case }, next.size.clone()));
                short.push((
                    WhatIf {
                        used: used + 1,
                        ..*case
                    },
                    next.size,
                ));
            }
        }
        assert!(enough.len() > 500, "{}", enough.len());
        for (those, is_enough) in [(enough, true), (short, false)] {
            let answers = decide(&those.iter().map(|(case, _)| *case).collect::<Vec<_>>());
            for ((case, size), answer) in those.iter().zip(&answers) {
                // What is lifted of a fault says nothing about it.
                let lifted = case.lifted != 0 && *size != "1G";
                let by_room = Reason::ALL
                    .into_iter()
                    .filter(|reason| !lifted || *reason != Reason::Fault)
                    .map(|reason| answer.now.decided[reason as usize]);
                let by_room: Vec<_> = by_room.collect();
                let factor = by_room.iter().map(|d| d.room_factor).max().unwrap();
                let strict = by_room.iter().find(|d| d.room_factor == factor).unwrap();
                let order = (0..20).find(|order| sizes.name(*order) == *size).unwrap();
                // A cap may take it away for this reason.
                let capped = case.t.rules & (1 << Rule::Cap as u32) != 0;
                let allowed = strict.orders & (1 << order) != 0;
                assert!(allowed == is_enough || capped, "{size} {is_enough}");
            }
        }
    }
}

#[test]
fn a_verdict_falls_after_the_window_that_is_named() {
    let sizes = x86();
    let (mut cases, _) = cases(&sizes);
    cases.retain(|case| case.seen == 1);
    for case in &mut cases {
        case.t.rules = 1 << Rule::Pressure as u32;
        case.pressure = 1;
    }
    let answers = decide(&cases);
    for (case, answer) in cases.iter_mut().zip(&answers) {
        let Until::Calm {
            window_us,
            stall_below_us,
        } = until(Rule::Pressure, &answer.now, &case.t, &sizes)
        else {
            panic!("{:?}", case.t);
        };
        assert_eq!(window_us * 1000, case.t.window_ns);
        case.stall_ns = stall_below_us * 1000;
    }
    assert!(decide(&cases).iter().all(|answer| answer.falls == 0));
    for case in &mut cases {
        case.stall_ns -= 1;
    }
    assert!(decide(&cases).iter().all(|answer| answer.falls == 1));
}

/// What user space says beside the record, of the same values.
#[test]
fn what_is_worked_out_here_is_what_the_kernel_side_works_out() {
    let (cases, answers) = cases(&x86());
    let mut said = [0; 2];
    for (case, answer) in cases.iter().zip(&answers) {
        let fits = what_fits_is_given(&case.t);
        assert_eq!(fits, answer.fits_is_given != 0, "{:?}", case.t);
        let (now, scanned, oldest) = (case.now_ns, case.scanned_ns, case.oldest_ns);
        let heartbeat = Heartbeat::at(now, scanned, oldest);
        let stale = heartbeat.is_some_and(|heartbeat| !heartbeat.beats());
        let when = format!("{now} after {scanned}, at most {oldest}");
        assert_eq!(stale, answer.stale != 0, "{when}");
        for (count, is_so) in said.iter_mut().zip([fits, stale]) {
            *count += usize::from(is_so);
        }
    }
    let some = |count: &usize| (500..cases.len() - 500).contains(count);
    assert!(said.iter().all(some), "{said:?}");
}

/// A rule may narrow a reason where some facts make it do so; these make each of them.
#[test]
fn the_rules_that_bind_a_reason_are_those_that_can_narrow_it() {
    let sizes = x86();
    let (made, _) = cases(&sizes);
    let mut random = Random(2_463_534_242);
    let mut alone = Vec::new();
    for mut case in made.into_iter().take(8_000) {
        case.t.bind_khugepaged = u32::try_from(random.below(2)).unwrap();
        case.t.min_memory *= random.below(2);
        let rule = Rule::ALL[random.below(5) as usize];
        case.t.rules &= 1 << rule as u32;
        let case = WhatIf {
            flags: 0,
            memory_bytes: 0,
            memory_known: 1,
            populated: 1,
            sparse: 1,
            pressure: 1,
            lifted: 0,
            machine: 1,
            // Without any it is not known.
            limit: 1,
            used: 1,
            ..case
        };
        alone.push((rule, case));
    }
    let answers = decide(&alone.iter().map(|(_, case)| *case).collect::<Vec<_>>());
    let mut counts = std::collections::BTreeMap::<(Rule, bool), u32>::new();
    for ((rule, case), answer) in alone.iter().zip(&answers) {
        for reason in Reason::ALL {
            let narrows = Rule::of(answer.now.decided[reason as usize].rule) == Some(*rule);
            let what = format!("{} at {}: {:?}", rule.name(), reason.name(), case.t);
            assert_eq!(binding(&case.t, reason).has(*rule), narrows, "{what}");
            *counts.entry((*rule, narrows)).or_default() += 1;
        }
    }
    assert!(
        counts.len() == 10 && counts.values().all(|n| *n > 50),
        "{counts:?}"
    );
}
