//! The table in three forms, all from the rows of `table`: an array, the indices by name, and a
//! macro that hands the symbols to another macro.

use crate::{COUNT, EntryPoint, Header, StreamMode};

/// Hands the whole table to another macro: `for_each_entry_point!(callback, args…)` expands to
/// `callback! { args… [ (0, cuArray3DCreate), (1, …), … ] }`, an index literal and the symbol for
/// each entry point.
///
/// ```
/// macro_rules! count {
///     ([ $(($index:literal, $symbol:ident),)* ]) => { [$(stringify!($symbol)),*].len() };
/// }
/// assert_eq!(cuda_abi::for_each_entry_point!(count), cuda_abi::COUNT);
/// ```
#[macro_export]
macro_rules! for_each_entry_point {
    ($($callback:ident)::+ $(, $args:tt)* $(,)?) => {
        $crate::entry_point_rows! { entry_point_symbols [$($callback)::+] $($args)* }
    };
}

/// The callback of [`for_each_entry_point!`]; not for other use.
#[doc(hidden)]
#[macro_export]
macro_rules! entry_point_symbols {
    (
        [[$($callback:ident)::+] $($args:tt)*]
        $(($index:literal, $symbol:ident, $base:ident, $version:literal, $stream:ident, $header:ident),)*
    ) => {
        $($callback)::+! { $($args)* [ $(($index, $symbol),)* ] }
    };
}

/// Defines [`ENTRY_POINTS`] and [`index`]; not for other use.
#[doc(hidden)]
#[macro_export]
macro_rules! entry_point_statics {
    ([] $(($index:literal, $symbol:ident, $base:ident, $version:literal, $stream:ident, $header:ident),)*) => {
        /// The description of each entry point, at its index.
        pub static ENTRY_POINTS: [EntryPoint; COUNT] = [$(EntryPoint {
            symbol: stringify!($symbol),
            base: stringify!($base),
            version: $version,
            stream: StreamMode::$stream,
            header: Header::$header,
        }),*];

        /// Each entry point's index in the table, by its symbol.
        #[allow(non_upper_case_globals, missing_docs, reason = "the names are CUDA's, and so is their meaning")]
        pub mod index {
            $(pub const $symbol: usize = $index;)*
        }
    };
}

crate::entry_point_rows!(entry_point_statics);
