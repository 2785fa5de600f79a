//! Panics of other people's libraries on damaged input, which users are to see as errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is within [`run`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns; `None` if it panics, which goes unreported.
pub(crate) fn run<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                report(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn panics_become_none_and_only_within() {
        assert_eq!(run(|| 1), Some(1));
        assert_eq!(run(|| run(|| Vec::<u8>::new().remove(0)).is_none()), Some(true));
        assert!(run(|| Vec::<u8>::new().remove(0)).is_none());
        assert_eq!(run(|| 2), Some(2));
    }
}
