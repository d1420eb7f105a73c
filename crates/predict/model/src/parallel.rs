//! Work that is shared among threads. What is done to an item depends on the item alone, so results
//! are the same for any number of threads.

/// Runs `work` for each of `items` and its position, on at most `threads` threads, neighbours on
/// one.
pub(crate) fn in_parallel<T: Send>(threads: usize, items: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
    let share = items.len().div_ceil(threads.max(1)).max(1);
    let run = |first: usize, items: &mut [T]| {
        items.iter_mut().enumerate().for_each(|(index, item)| work(first + index, item));
    };
    std::thread::scope(|scope| {
        let mut shares = items.chunks_mut(share).enumerate();
        let own = shares.next();
        let run = &run;
        for (index, items) in shares {
            scope.spawn(move || run(index * share, items));
        }
        own.into_iter().for_each(|(_, items)| run(0, items));
    });
}
