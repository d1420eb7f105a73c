//! Macros by which hooks that only observe are written.

/// Defines hooks: `fn name(arguments) |notes| { … }` forwards the call and then, if calls are being
/// recorded, runs the block, which says what the call was. It runs after the real call, in an
/// `unsafe` block, under the contract of every hook ([`crate::hooks`]). A block `before { … }` runs
/// ahead of the real call whether or not calls are being recorded, and its value is dropped when
/// the call is over; `after(result) { … }` runs behind it likewise.
macro_rules! hooks {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(before $before:block)?
        $(after($result:ident) $after:block)?
        |$notes:ident| $describe:block
    )*) => {$(
        $(#[$meta])*
        pub unsafe extern "C" fn $name<const INDEX: usize>($($argument: $type),*) -> CUresult {
            $(
                // Held until the call is over.
                #[allow(clippy::let_unit_value, reason = "some blocks have nothing to hold")]
                let _held = $before;
            )?
            // SAFETY: the contract of every hook; `table` holds these types against the symbol's
            // signature.
            let call = unsafe {
                crate::hooks::call::Call::<unsafe extern "C" fn($($type),*) -> CUresult, INDEX>::new(($($argument,)*))
            };
            let result = crate::hooks::observe::call(
                call,
                // SAFETY: the contract of every hook.
                #[allow(unused_unsafe, reason = "some calls have nothing to read")]
                |$notes| unsafe { $describe },
            );
            $({
                let $result = result;
                $after
            })?
            result
        }
    )*};
}
pub(super) use hooks;

/// Defines `const fn build()`, which gives the table of hooks by index; the compiler holds each
/// hook against the signature of its symbol.
macro_rules! index_table {
    ($($symbol:ident => $module:ident::$hook:ident,)*) => {
        const fn build() -> [Option<Hook>; COUNT] {
            let mut table = [const { None }; COUNT];
            $({
                const HOOK: signature::$symbol = $module::$hook::<{ index::$symbol }>;
                assert!(table[index::$symbol].is_none(), "two hooks for one symbol");
                table[index::$symbol] = Some(Hook { address: HOOK as *const () });
            })*
            table
        }
    };
}
pub(super) use index_table;

/// Makes `hook`, the hook that an action has for the entry point at an index. Few entry points have
/// one: a table of all of them would be 12 KB for each action, in each process.
macro_rules! hook_list {
    ($($symbol:ident => $module:ident::$hook:ident,)*) => {
        /// The hook in place of the ordinary one of the entry point at an index.
        pub(super) fn hook(index: usize) -> Option<Hook> {
            static HOOKS: &[(usize, Hook)] = &[$({
                const HOOK: signature::$symbol = $module::$hook::<{ index::$symbol }>;
                (index::$symbol, Hook { address: HOOK as *const () })
            },)*];
            const { assert!($crate::hooks::macros::are_distinct(&[$(index::$symbol),*])) };
            HOOKS.iter().find_map(|&(of, hook)| (of == index).then_some(hook))
        }
    };
}
pub(super) use hook_list;

/// Whether no index is twice in a list.
pub const fn are_distinct(indices: &[usize]) -> bool {
    let mut at = 0;
    while at < indices.len() {
        let mut other = at + 1;
        while other < indices.len() {
            if indices[at] == indices[other] {
                return false;
            }
            other += 1;
        }
        at += 1;
    }
    true
}
