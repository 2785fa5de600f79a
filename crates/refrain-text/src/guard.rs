//! Turns panics of third-party libraries on damaged input into errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside [`catch_panic`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; returns `None` if it panics. Such a panic is not printed.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
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
    use super::catch_panic;

    #[test]
    fn returns_none_only_for_work_that_panics() {
        assert_eq!(catch_panic(|| 1), Some(1));
        assert_eq!(
            catch_panic(|| catch_panic(|| Vec::<u8>::new().remove(0)).is_none()),
            Some(true)
        );
        assert!(catch_panic(|| Vec::<u8>::new().remove(0)).is_none());
        assert_eq!(catch_panic(|| 2), Some(2));
    }
}
