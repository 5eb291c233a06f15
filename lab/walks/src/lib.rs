// SPDX-License-Identifier: GPL-2.0-only
//! How a guest reaches the TLB model on the host: no-ops with a number in them (lab/tlb/plugin/plugin.c).

/// Commands to the model. Without it, and on any other processor, they do nothing.
pub mod mark {
    use std::arch::asm;

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
        // SAFETY: a no-op, whose operand is not read. No accesses are moved across it.
        unsafe {
            asm!(
                "nop dword ptr [rax + rax + {mark}]",
                mark = const 0x4d54_0000 + NUMBER,
                options(nostack, preserves_flags)
            );
        }
    }
}
