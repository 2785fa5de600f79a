//! Recovery from errors: a request that fails alone is found, and after a failed device the model is reloaded. Requests
//! continue from their tokens.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::batcher::Batcher;
use super::calls::Command;
use super::request::{EngineEvent, Waiting};
use super::runner::DeviceRunner;
use super::{EngineLoad, EngineOptions, Shared, lock};
use crate::{Error, Model};

/// Reloads the models after their device failed with the given error. It is called on the engine's thread, which has
/// released everything on the device before.
pub type Reload = Box<dyn FnMut(&Error) -> Result<ReloadedModels, Box<dyn std::error::Error + Send + Sync>> + Send>;

/// Models on a device that was opened again.
pub struct ReloadedModels {
    /// The model.
    pub model: Model,
    /// The draft model. Without it, texts go on without its drafts.
    pub draft: Option<Model>,
}

impl From<Model> for ReloadedModels {
    fn from(model: Model) -> ReloadedModels {
        ReloadedModels { model, draft: None }
    }
}

/// How often the model is reloaded onto a device that generates no further token, before requests fail.
const MAX_ATTEMPTS: u32 = 5;
/// Pause before the second reload; it doubles before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Pause between reloads after requests have failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Reloads the model and hands it the requests.
pub(super) struct Recovery {
    reload: Option<Reload>,
    /// Without a draft model, which belongs to the batcher.
    options: EngineOptions,
    first_pause: Duration,
    pause_after_failure: Duration,
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
            first_pause: FIRST_PAUSE,
            pause_after_failure: PAUSE_AFTER_FAILURE,
            attempts: 0,
            tokens: 0,
        }
    }

    /// Returns a batcher with the requests of one that failed. Returns `None` if the device does not come back; then all
    /// requests were told why.
    pub fn go_on(
        &mut self,
        failed: Batcher<DeviceRunner>,
        mut error: Error,
        shared: &Shared,
    ) -> Option<Batcher<DeviceRunner>> {
        let (model, running) = (failed.model().clone(), failed.running_numbers());
        let draft = failed.draft_model();
        let (mut requests, mut counted) = failed.into_requests();
        if !error.is_device_failure()
            && let Some(batcher) = self.isolate((&model, draft.clone()), &running, (&mut requests, counted), &error)
        {
            return Some(batcher);
        }
        // The memory of the models is free before they are loaded again.
        drop((model, draft));
        if counted.progress() > self.tokens {
            self.attempts = 0;
        }
        self.tokens = counted.progress();
        shared.recovering.store(true, Ordering::Relaxed);
        while self.reload.is_some() && self.attempts < MAX_ATTEMPTS {
            std::thread::sleep(self.first_pause * ((1 << self.attempts) - 1));
            self.attempts += 1;
            match self.reload(&error) {
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

    /// After an error that is not the device's, continues on the same device. The request that was running alone fails.
    /// If several were running, they run one at a time, so that the one to blame is found. Returns `None` if none was.
    fn isolate(
        &self,
        (model, draft): (&Model, Option<Model>),
        running: &[u64],
        (requests, counted): (&mut VecDeque<Waiting>, EngineLoad),
        error: &Error,
    ) -> Option<Batcher<DeviceRunner>> {
        if running.is_empty() {
            return None;
        }
        let options = EngineOptions {
            draft,
            ..self.options.clone()
        };
        let mut batcher = Batcher::new(model, &options).ok()?;
        if let [number] = running {
            let index = requests.iter().position(|request| request.number == *number);
            fail(index.and_then(|index| requests.remove(index)), &error.to_string());
        }
        batcher.take_over(std::mem::take(requests), counted);
        batcher.run_one_at_a_time();
        Some(batcher)
    }

    /// After all requests failed: reloads the model now and then. New requests fail meanwhile. Returns `None` once the
    /// engine is dropped, or if there is nothing to reload.
    pub fn wait_for_device(
        &mut self,
        requests: &Receiver<Command>,
        counted: EngineLoad,
        shared: &Shared,
    ) -> Option<Batcher<DeviceRunner>> {
        let error = Error::EngineFailed;
        self.reload.as_ref()?;
        loop {
            match requests.recv_timeout(self.pause_after_failure) {
                Ok(command) => fail(command.into_request(), &error.to_string()),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    if let Ok(mut batcher) = self.reload(&error) {
                        let restarts = counted.restarts + 1;
                        batcher.take_over(VecDeque::new(), EngineLoad { restarts, ..counted });
                        *lock(&shared.load) = batcher.load();
                        self.attempts = 0;
                        shared.recovering.store(false, Ordering::Relaxed);
                        shared.failed.store(false, Ordering::Relaxed);
                        return Some(batcher);
                    }
                }
            }
        }
    }

    /// Reloads the models.
    fn reload(&mut self, error: &Error) -> Result<Batcher<DeviceRunner>, Error> {
        let reload = self.reload.as_mut().ok_or(Error::EngineFailed)?;
        let reloaded = guarded(|| reload(error))?;
        let ReloadedModels { model, draft } = reloaded.map_err(|why| Error::Engine(why.to_string()))?;
        let options = EngineOptions {
            draft,
            ..self.options.clone()
        };
        Batcher::new(&model, &options)
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::super::batcher::test_support::{TestRequest, batcher, model};
    use super::super::speculation::Speculation;
    use super::*;

    fn recovery(reload: Reload) -> Recovery {
        let options = EngineOptions {
            context: 256,
            streams: 4,
            cache_tokens: 1024,
            ..EngineOptions::default()
        };
        Recovery {
            first_pause: Duration::from_micros(10),
            pause_after_failure: Duration::from_millis(1),
            ..Recovery::new(Some(reload), options)
        }
    }

    fn lost() -> Error {
        let lost = refrain_vulkan::Error::DeviceLost {
            during: "a test".to_owned(),
        };
        Error::from(refrain::Error::from(lost))
    }

    #[test]
    fn a_request_that_fails_alone_fails_alone() {
        let model = model();
        let mut batcher = batcher(&model, 4);
        let mut recovery = recovery(Box::new(|why| panic!("{why}: the device did not fail")));
        let events: Vec<_> = (0..6)
            .map(|number| {
                let request = TestRequest {
                    number,
                    prompt: (3..13 + number as u32).collect(),
                    tokens: 8,
                    // More than a device supports, which the engine checks before.
                    stop_ids: if number == 2 { (0..17).collect() } else { vec![] },
                    ..TestRequest::default()
                };
                request.submit(&mut batcher).0
            })
            .collect();
        let shared = Shared::default();
        while !batcher.is_idle() {
            if let Err(error) = batcher.step() {
                batcher = recovery.go_on(batcher, error, &shared).expect("continues");
            }
        }
        for (number, events) in events.iter().enumerate() {
            let events: Vec<EngineEvent> = events.try_iter().collect();
            match &events[..] {
                [EngineEvent::Failed(error)] => {
                    assert_eq!(number, 2, "{error}");
                    assert!(error.to_string().contains("17 stop tokens"), "{error}");
                }
                [tokens @ .., EngineEvent::End(_)] => assert_eq!((tokens.len(), number == 2), (8, false)),
                other => panic!("{number}: {other:?}"),
            }
        }
        assert_eq!(batcher.load().restarts, 0);
    }

    /// After an error that is not the device's, the draft model drafts on. After a failure of the device, one that was
    /// loaded again does.
    #[test]
    fn a_draft_model_is_kept_or_reloaded() {
        let draft = model();
        let mut with_draft = [true, false].into_iter();
        let mut recovery = recovery(Box::new(move |_| {
            let draft = with_draft.next().unwrap_or(false).then(model);
            Ok(ReloadedModels { model: model(), draft })
        }));
        recovery.options.speculation = Speculation::Model;
        let options = EngineOptions {
            draft: Some(draft),
            ..recovery.options.clone()
        };
        let mut batcher = Batcher::new(&model(), &options).expect("fits");
        drop(options);
        let request = |number: u64| TestRequest {
            number,
            prompt: vec![5; 9],
            tokens: 20,
            ..TestRequest::default()
        };
        let mut events: Vec<_> = (0..2).map(|number| request(number).submit(&mut batcher).0).collect();
        batcher.step().expect("runs");
        let shared = Shared::default();
        let mut batcher = recovery.go_on(batcher, Error::EmptyPrompt, &shared).expect("continues");
        assert!(batcher.draft_model().is_some());
        batcher.step().expect("runs");
        for has_draft in [true, false] {
            batcher = recovery.go_on(batcher, lost(), &shared).expect("continues");
            assert_eq!(batcher.draft_model().is_some(), has_draft);
            batcher.step().expect("runs");
        }
        events.push(request(2).submit(&mut batcher).0);
        while !batcher.is_idle() {
            batcher.step().expect("runs");
        }
        for events in events {
            assert_eq!(events.try_iter().count(), 21, "tokens, and an end");
        }
    }

    #[test]
    fn a_device_that_comes_back_late_is_used_again() {
        let first = model();
        let mut calls = 0;
        let mut recovery = recovery(Box::new(move |_| {
            calls += 1;
            if calls > 8 {
                Ok(model().into())
            } else {
                Err("not there yet".into())
            }
        }));
        let mut batcher = batcher(&first, 4);
        let request = TestRequest {
            prompt: vec![5; 9],
            tokens: 3,
            ..TestRequest::default()
        };
        let (events, _) = request.clone().submit(&mut batcher);
        batcher.step().expect("runs");
        let shared = Shared::default();
        assert!(recovery.go_on(batcher, lost(), &shared).is_none());
        assert!(shared.failed.load(Ordering::Relaxed));
        assert!(events.try_iter().any(|event| matches!(event, EngineEvent::Failed(_))));
        let (sender, requests) = channel();
        let counted = EngineLoad::default();
        let mut batcher = recovery
            .wait_for_device(&requests, counted, &shared)
            .expect("comes back");
        assert!(!shared.failed.load(Ordering::Relaxed));
        let (events, _) = request.submit(&mut batcher);
        while !batcher.is_idle() {
            batcher.step().expect("runs");
        }
        assert_eq!(events.try_iter().count(), 4, "tokens, and an end");
        drop(sender);
        assert!(
            recovery.wait_for_device(&requests, counted, &shared).is_none(),
            "the engine is dropped"
        );
    }
}
