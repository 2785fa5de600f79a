//! Recovery from a failed device: the model is reloaded, and requests continue from their tokens.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::batcher::Batcher;
use super::request::{EngineEvent, Waiting};
use super::runner::DeviceRunner;
use super::{EngineOptions, Shared, lock};
use crate::{Error, Model};

/// Reloads the model after its device failed with the given error. It is called on the engine's thread, which has
/// released everything on the device before.
pub type Reload = Box<dyn FnMut(&Error) -> Result<Model, Box<dyn std::error::Error + Send + Sync>> + Send>;

/// How often the model is reloaded onto a device that generates no further token.
const MAX_ATTEMPTS: u32 = 5;
/// Pause before the second reload; it doubles before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Reloads the model and hands it the requests.
pub(super) struct Recovery {
    pub reload: Option<Reload>,
    options: EngineOptions,
    /// Reloads since the last token.
    attempts: u32,
    /// Tokens generated when the device last failed.
    tokens: u64,
}

impl Recovery {
    pub fn new(reload: Option<Reload>, options: EngineOptions) -> Recovery {
        Recovery {
            reload,
            options,
            attempts: 0,
            tokens: 0,
        }
    }

    /// Returns a batcher with the requests of one whose device failed. Returns `None` if the engine fails; then all
    /// requests were told why.
    pub fn go_on(
        &mut self,
        failed: Batcher<DeviceRunner>,
        mut error: Error,
        shared: &Shared,
    ) -> Option<Batcher<DeviceRunner>> {
        let (requests, mut counted) = failed.into_requests();
        if counted.generated_tokens > self.tokens {
            self.attempts = 0;
        }
        self.tokens = counted.generated_tokens;
        shared.recovering.store(true, Ordering::Relaxed);
        while let Some(reload) = self.reload.as_mut().filter(|_| self.attempts < MAX_ATTEMPTS) {
            std::thread::sleep(FIRST_PAUSE * ((1 << self.attempts) - 1));
            self.attempts += 1;
            let reloaded = guarded(|| reload(&error));
            let model = reloaded.and_then(|model| model.map_err(|why| Error::Engine(why.to_string())));
            match model.and_then(|model| Batcher::new(&model, &self.options)) {
                Ok(mut batcher) => {
                    counted.restarts += 1;
                    batcher.take_over(requests, counted);
                    *lock(&shared.load) = batcher.load();
                    shared.recovering.store(false, Ordering::Relaxed);
                    return Some(batcher);
                }
                Err(why) => error = why,
            }
        }
        shared.failed.store(true, Ordering::Relaxed);
        fail(requests, &error.to_string());
        None
    }
}

/// Reports a failure to each request.
pub(super) fn fail(requests: impl IntoIterator<Item = Waiting>, why: &str) {
    for mut request in requests {
        request.emit(EngineEvent::Failed(Error::Engine(why.to_owned())));
    }
}

/// Returns the result of `work`; a panic becomes an error.
///
/// # Errors
/// If it panics.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| Error::Bug(panic_message(&*panic).to_owned()))
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}
