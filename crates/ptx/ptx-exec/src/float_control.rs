//! The host's floating-point environment, as kernels expect it.
//!
//! A program may change the control register of its vector unit: `-ffast-math` makes a program
//! flush subnormal numbers to zero, `fesetround` sets the direction of rounding, `feenableexcept`
//! has exceptions raise signals. Threads inherit the register from the thread that makes them.
//! Kernels compute on the program's threads or on threads made by these, so without a defined
//! register the results of a kernel would depend on the program's options.

use std::marker::PhantomData;

/// Round to nearest even, subnormal numbers as they are, all exceptions masked.
#[cfg(target_arch = "x86_64")]
const DEFAULT: u32 = 0x1f80;

/// While it lives, this thread computes in the default floating-point environment, and so do
/// threads that it makes.
///
/// What was set before is restored when it is dropped, in the thread that made it: it cannot be
/// sent to another.
pub(crate) struct DefaultFloats {
    #[cfg(target_arch = "x86_64")]
    saved: u32,
    not_send: PhantomData<*const ()>,
}

impl DefaultFloats {
    pub(crate) fn enter() -> Self {
        #[cfg(target_arch = "x86_64")]
        let saved = control();
        #[cfg(target_arch = "x86_64")]
        set_control(DEFAULT);
        DefaultFloats {
            #[cfg(target_arch = "x86_64")]
            saved,
            not_send: PhantomData,
        }
    }
}

impl Drop for DefaultFloats {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        set_control(self.saved);
    }
}

/// The control register of this thread's vector unit.
#[cfg(target_arch = "x86_64")]
fn control() -> u32 {
    let mut control = 0u32;
    // SAFETY: every x86-64 CPU has the register; the instruction writes four bytes of the variable.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack, preserves_flags)) };
    control
}

/// Sets the control register of this thread's vector unit.
#[cfg(target_arch = "x86_64")]
fn set_control(control: u32) {
    // SAFETY: the register gets its default, which is what compiled code expects, or what the
    // program had put there.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, preserves_flags)) };
}
