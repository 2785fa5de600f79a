use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Looks for work in vain after which a thread lets other programs have the processor.
const PATIENCE: u32 = 1000;

/// One at a time: each takes all threads there are.
static WORKING: Mutex<()> = Mutex::new(());

/// Runs `work` on one thread of the pool while the others stay awake between its parallel loops: to wake them
/// for each would cost a small model more than the loops take.
///
/// Calls from several threads take turns; within a parallel loop of the caller's, it is just `work`.
pub fn in_team<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_thread_index().is_some() {
        return work();
    }
    let _turn = WORKING.lock().unwrap_or_else(PoisonError::into_inner);
    let done = AtomicBool::new(false);
    rayon::scope(|scope| {
        let (leader, done) = (rayon::current_thread_index(), &done);
        for _ in 1..rayon::current_num_threads() {
            scope.spawn(move |_| help(leader, done));
        }
        // Set even where the work panics, or the others would stay forever.
        let _done = SetWhenDropped(done);
        work()
    })
}

/// Takes parts of parallel loops until there are no more to come.
fn help(leader: Option<usize>, done: &AtomicBool) {
    let mut vain = 0;
    // The leader may find this as its own next task; it would wait for itself.
    while rayon::current_thread_index() != leader && !done.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(rayon::Yield::Executed) {
            vain = 0;
        } else if vain < PATIENCE {
            vain += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn work_of_several_threads_is_done_by_turns_and_within_loops_at_once() {
        let sum = |n: u64| (0..n).into_par_iter().map(|i| i * i).sum::<u64>();
        let expected = sum(1000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| assert_eq!(in_team(|| sum(1000)), expected)));
            }
        });
        (0..64)
            .into_par_iter()
            .for_each(|_| assert_eq!(in_team(|| sum(1000)), expected));
    }

    #[test]
    fn a_panic_passes_through_and_leaves_the_pool_usable() {
        let panicked = std::panic::catch_unwind(|| in_team(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(in_team(|| 7), 7);
    }
}
