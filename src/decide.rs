// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own decision function and defaults, from the C headers of bpf/.

use crate::abi::{self, ByReason, Facts, Reason, Tunables};

unsafe extern "C" {
    fn mthp_decide_host(facts: *const Facts, tunables: *const Tunables, rules: *mut u32) -> u64;

    safe static mthp_defaults: Tunables;
    safe static mthp_defaults_reactive: Tunables;
}

/// Defaults of the tunables (bpf/abi.h), but for the policy `reactive`.
pub fn defaults() -> &'static Tunables {
    &mthp_defaults
}

/// Those of the policy `reactive`.
pub fn defaults_of_reactive() -> &'static Tunables {
    &mthp_defaults_reactive
}

/// The rules, in the order of `enum mthp_rule`, which is also the order in
/// which they are named as *the* cause when several narrow.
pub const RULES: [&str; abi::NR_RULES] = [
    "pressure",
    "small",
    "sparse",
    "headroom",
    "host",
    "max-order",
];

/// Bits of all rules, by name in [`RULES`].
pub fn rule_names(bits: u32) -> Vec<&'static str> {
    RULES
        .iter()
        .enumerate()
        .filter(|(i, _)| bits & (1 << i) != 0)
        .map(|(_, name)| *name)
        .collect()
}

/// The name of the cause: the first rule that narrows, or `none`.
pub fn why(bits: u32) -> &'static str {
    rule_names(bits).first().copied().unwrap_or("none")
}

/// Allowed orders for each reason, and the bits of all rules that narrow any.
pub fn decide(facts: &Facts, tunables: &Tunables) -> (ByReason<u64>, u32) {
    let mut orders = ByReason::default();
    let mut all = 0;
    for reason in Reason::ALL {
        let facts = Facts {
            reason: reason as u32,
            ..*facts
        };
        let mut rules = 0;
        // SAFETY: pure C function; all three pointers are valid for the call.
        orders[reason] = unsafe { mthp_decide_host(&facts, tunables, &mut rules) };
        all |= rules;
    }
    (orders, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_copy_decides() {
        let tunables = Tunables {
            rules: 1,
            page_shift: 12,
            ..Tunables::default()
        };
        let facts = Facts {
            orders: abi::ALL_ORDERS,
            pressure: 1,
            ..Facts::default()
        };
        let (orders, rules) = decide(&facts, &tunables);
        let all_but_collapse = |reason| match reason {
            Reason::Collapse => abi::ALL_ORDERS,
            _ => 0,
        };
        assert_eq!(orders, ByReason::new(all_but_collapse));
        assert_eq!(why(rules), "pressure");
        assert_eq!(why(0), "none");
    }
}
