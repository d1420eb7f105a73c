//! Does every entry point get its arguments as the program gave them?
//!
//! Each function of the table is called with random arguments, once directly in the fake driver and
//! once through `libcuda.so.1`; the driver tells what arrived in registers and on the stack. What
//! belongs to the arguments must be the same. Pointers point to zeroed memory, since hooks look at
//! structures that the real driver would look at too.
//!
//! Under the library with a flush, [`crate::flushes`] sees that it ran before each call that has no
//! hook.

use crate::driver::{address, fake};
use crate::flushes;
use apex_random::Random;
use cuda_abi::types::*;
use std::ffi::CString;

/// As in the fake driver.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Echo {
    index: u64,
    registers: [u64; 6],
    vectors: [u64; 8],
    stack: [u64; 24],
}

/// The result of the fake driver's entry points that echo.
const ECHO: CUresult = 999;

/// Zeroed memory for pointers to point to, large enough for every structure of the driver's.
static ZEROS: [u64; 4096] = [0; 4096];

/// A type of argument.
trait Argument: Copy {
    /// Whether it goes into a vector register.
    const IS_FLOAT: bool = false;

    fn random(random: &mut Random) -> Self;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Argument for $integer {
            fn random(random: &mut Random) -> $integer {
                random.bits() as $integer
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, usize, i32, i64);

impl Argument for f32 {
    const IS_FLOAT: bool = true;

    fn random(random: &mut Random) -> f32 {
        random.bits() as f32
    }
}

impl<T> Argument for *mut T {
    fn random(random: &mut Random) -> *mut T {
        (&raw const ZEROS[random.bits() as usize % 512]).cast_mut().cast()
    }
}

impl<T> Argument for *const T {
    fn random(random: &mut Random) -> *const T {
        <*mut T>::random(random)
    }
}

/// Structures that are passed by value, and functions.
macro_rules! by_value {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            fn random(random: &mut Random) -> $type {
                let mut bytes = [0u64; size_of::<$type>().div_ceil(8)];
                bytes.fill_with(|| random.bits() | 1);
                // SAFETY: any bytes are a value of these types (an address that is not null, for
                // functions), and there are enough.
                unsafe { std::mem::transmute_copy(&bytes) }
            }
        }
    )*};
}
by_value!(CUmemLocation, CUipcMemHandle, CUipcEventHandle, CUeglFrame);
by_value!(CUhostFn, CUstreamCallback, CUoccupancyB2DSize, CUgraphRecaptureCallback);
by_value!(CUcoredumpStatusCallback, CUlogsCallback, CUasyncCallback);

/// A function type of the driver's.
trait Signature: Copy {
    /// Calls both functions with the same random arguments and compares what arrived, which `look`
    /// tells.
    ///
    /// # Safety
    /// Both are functions of this signature.
    unsafe fn compare(
        self,
        through: Self,
        look: &dyn Fn() -> Echo,
        random: &mut Random,
    ) -> Result<(), String>;
}

/// An argument's size and whether it is a float.
type Shape = (usize, bool);

/// The words in which arguments arrive, each with the mask of its bits that count, by the System V
/// ABI: floats in vector registers, what takes up to two words in registers if there are enough
/// left, everything else on the stack.
fn words(echo: &Echo, shapes: &[Shape]) -> Vec<(u64, u64)> {
    let (mut registers, mut vectors, mut stack) =
        (echo.registers.iter(), echo.vectors.iter(), echo.stack.iter());
    let mut found = Vec::new();
    for &(size, is_float) in shapes {
        let count = size.div_ceil(8);
        let from = match () {
            () if is_float => &mut vectors,
            () if count <= 2 && registers.len() >= count => &mut registers,
            () => &mut stack,
        };
        // The upper bytes of small integers are nobody's.
        let mask = if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
        found.extend(from.take(count).map(|&word| (word & mask, mask)));
    }
    found
}

macro_rules! signatures {
    ($(($($argument:ident),*))*) => {$(
        #[allow(non_snake_case, unused_variables, reason = "one name for the type and the value")]
        impl<$($argument: Argument),*> Signature for unsafe extern "C" fn($($argument),*) -> CUresult {
            unsafe fn compare(self, through: Self, look: &dyn Fn() -> Echo, random: &mut Random) -> Result<(), String> {
                let shapes: &[Shape] = &[$((size_of::<$argument>(), $argument::IS_FLOAT)),*];
                $(let $argument = $argument::random(random);)*
                // SAFETY: by contract.
                let (direct, meant) = unsafe { (self($($argument),*), look()) };
                // SAFETY: by contract.
                let (through, arrived) = unsafe { (through($($argument),*), look()) };
                if (direct, through) != (ECHO, ECHO) {
                    return Err(format!("returned {direct} and {through}"));
                }
                let (meant, arrived) = (words(&meant, shapes), words(&arrived, shapes));
                if meant == arrived { Ok(()) } else { Err(format!("{meant:x?} became {arrived:x?}")) }
            }
        }
    )*};
}
signatures! {
    () (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G) (A, B, C, D, E, F, G, H) (A, B, C, D, E, F, G, H, I) (A, B, C, D, E, F, G, H, I, J) (A, B, C, D, E, F, G, H, I, J, K) (A, B, C, D, E, F, G, H, I, J, K, L) (A, B, C, D, E, F, G, H, I, J, K, L, M) (A, B, C, D, E, F, G, H, I, J, K, L, M, N) (A, B, C, D, E, F, G, H, I, J, K, L, M, N, O) (A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P) (A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q) (A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R)
}

macro_rules! compare_all {
    ([$(($index:literal, $symbol:ident),)*]) => {
        fn compare(symbol: &str, direct: usize, look: &dyn Fn() -> Echo, random: &mut Random) -> Option<Result<(), String>> {
            match symbol {
                $(stringify!($symbol) => compare_all!(@ $symbol direct look random),)*
                _ => None,
            }
        }
    };
    (@ cuEGLApiInit $($rest:ident)*) => { None };
    (@ cuMemGetAttribute $($rest:ident)*) => { None };
    (@ cuMemGetAttribute_v2 $($rest:ident)*) => { None };
    (@ $symbol:ident $direct:ident $look:ident $random:ident) => {
        Some(
            // SAFETY: both addresses are of functions of this name and signature.
            unsafe {
                let through = address(stringify!($symbol));
                if through.is_null() {
                    Err("not exported".to_owned())
                } else {
                    let direct = std::mem::transmute::<usize, cuda_abi::signature::$symbol>($direct);
                    let through = std::mem::transmute::<*mut std::ffi::c_void, cuda_abi::signature::$symbol>(through);
                    direct.compare(through, $look, $random)
                }
            },
        )
    };
}
cuda_abi::for_each_entry_point!(compare_all);

/// Prints how many entry points were compared, and if there is a flush before how many it ran.
/// Fails if one differs.
pub fn every_entry_point_gets_its_arguments() {
    fake::<extern "C" fn()>(c"fake_only_echo")();
    let echo: unsafe extern "C" fn(usize, *mut Echo) = fake(c"fake_echo");
    let mut random = Random::new(7);
    let has_flush = flushes::watch();
    let (mut compared, mut flushed, mut wrong) = (0, 0, Vec::new());
    for (index, entry) in cuda_abi::ENTRY_POINTS.iter().enumerate() {
        let look = || {
            let mut found = Echo::default();
            // SAFETY: valid for writing; there is one thread.
            unsafe { echo(index, &mut found) };
            found
        };
        let direct: usize = fake(&CString::new(entry.symbol).expect("no zero in a symbol"));
        let outcomes: Option<Vec<_>> =
            (0..4).map(|_| compare(entry.symbol, direct, &look, &mut random)).collect();
        let Some(outcomes) = outcomes else { continue };
        compared += 1;
        flushed += u32::from(flushes::since_last_asked() == outcomes.len() as u64);
        wrong.extend(
            outcomes.into_iter().filter_map(Result::err).map(|how| format!("{}: {how}", entry.symbol)),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    if has_flush { println!("{compared} {flushed}") } else { println!("{compared}") }
}
