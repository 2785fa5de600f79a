use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Idle iterations after which a helper thread yields the processor to other programs.
const MAX_IDLE_SPINS: u32 = 1000;

/// Held by the caller that uses the pool: each takes all threads.
static POOL_LOCK: Mutex<()> = Mutex::new(());

/// Runs `work` on one thread of the pool while the other threads stay awake between its parallel loops. Waking them for
/// each loop would cost a small model more than the loop itself.
///
/// Calls from several threads run one after another. Inside a parallel loop of the caller, this just runs `work`.
pub fn with_awake_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_thread_index().is_some() {
        return work();
    }
    let _guard = POOL_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let done = AtomicBool::new(false);
    rayon::scope(|scope| {
        let (leader, done) = (rayon::current_thread_index(), &done);
        for _ in 1..rayon::current_num_threads() {
            scope.spawn(move |_| help(leader, done));
        }
        // Set even if the work panics; otherwise the helpers would never return.
        let _done = SetOnDrop(done);
        work()
    })
}

/// Executes parts of parallel loops until the work is done.
fn help(leader: Option<usize>, done: &AtomicBool) {
    let mut idle = 0;
    // The leader may pick this task up itself and would then wait for itself.
    while rayon::current_thread_index() != leader && !done.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(rayon::Yield::Executed) {
            idle = 0;
        } else if idle < MAX_IDLE_SPINS {
            idle += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn concurrent_and_nested_calls_run_to_completion() {
        let sum = |n: u64| (0..n).into_par_iter().map(|i| i * i).sum::<u64>();
        let expected = sum(1000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| assert_eq!(with_awake_pool(|| sum(1000)), expected)));
            }
        });
        (0..64)
            .into_par_iter()
            .for_each(|_| assert_eq!(with_awake_pool(|| sum(1000)), expected));
    }

    #[test]
    fn panics_propagate_and_leave_the_pool_usable() {
        let panicked = std::panic::catch_unwind(|| with_awake_pool(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(with_awake_pool(|| 7), 7);
    }
}
