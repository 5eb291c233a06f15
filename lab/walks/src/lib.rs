// SPDX-License-Identifier: GPL-2.0-only
//! How a guest reaches the TLB model on the host: no-ops with a number in them (lab/tlb/plugin/plugin.c).

/// Commands to the model. Without it they do nothing, and on processors other than x86-64 they are none.
pub mod mark {
    /// The window of a program that marks itself.
    pub const PROGRAM: u32 = 0;
    /// The window of the benchmark suite; those of programs inside it do not count by themselves.
    pub const SUITE: u32 = 1;

    /// From here on the model follows all accesses. What comes before costs nothing.
    pub fn arm() {
        mark::<0x100>();
    }

    /// The measured time begins.
    pub fn begin<const WINDOW: u32>() {
        match WINDOW {
            SUITE => mark::<{ 0x200 + SUITE }>(),
            _ => mark::<{ 0x200 + PROGRAM }>(),
        }
    }

    /// It ends, and the model reports.
    pub fn end<const WINDOW: u32>() {
        match WINDOW {
            SUITE => mark::<{ 0x300 + SUITE }>(),
            _ => mark::<{ 0x300 + PROGRAM }>(),
        }
    }

    #[inline(always)]
    fn mark<const NUMBER: u32>() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a no-op, whose operand is not read. No accesses are moved across it.
        unsafe {
            std::arch::asm!(
                "nop dword ptr [rax + rax + {mark}]",
                mark = const 0x4d54_0000 + NUMBER,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// The slot after `slot` in a cycle through all `slots`, a power of 2 (Hull and Dobell): the same for every run.
pub fn next(slot: usize, slots: usize) -> usize {
    (slot as u64)
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407) as usize
        & (slots - 1)
}

#[cfg(test)]
mod cycle {
    use super::next;

    #[test]
    fn the_dependent_order_meets_every_slot() {
        let slots = 1 << 12;
        let mut seen = vec![false; slots];
        let mut slot = 0;
        for _ in 0..slots {
            assert!(!std::mem::replace(&mut seen[slot], true));
            slot = next(slot, slots);
        }
        assert_eq!(slot, 0);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::mark;

    #[test]
    fn a_mark_is_the_instruction_that_the_plugin_looks_for() {
        // The plugin says what it looks for in hexadecimal: the number, and the commands from 1 on in this order.
        let plugin = include_str!("../../tlb/plugin/plugin.c");
        assert!(plugin.contains("#define MARK 0x4d540000u"));
        assert!(plugin.contains("MARK_ARM = 1, MARK_BEGIN, MARK_END"));
        for (function, command) in [
            (mark::arm as fn(), 1),
            (mark::begin::<{ mark::SUITE }>, 2),
            (mark::end::<{ mark::SUITE }>, 3),
        ] {
            let label = u8::from(command > 1);
            // SAFETY: code may be read, and that of a function with a prologue and a return is as long in this crate.
            let code = unsafe { std::slice::from_raw_parts(function as *const u8, 16) };
            let wanted = [0x0f, 0x1f, 0x84, 0, label, command, 0x54, 0x4d];
            assert!(
                code.windows(8).any(|bytes| bytes == wanted),
                "{command}: {code:x?}"
            );
        }
    }
}
