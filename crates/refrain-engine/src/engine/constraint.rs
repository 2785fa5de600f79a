//! A request's constraint, whose masks are computed by other threads while the device computes what comes before
//! sampling.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::recovery::guarded;
use super::request::TokenConstraint;

/// Longest wait for a mask. Unoptimised builds are slower.
const MASK_TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });
/// The same where no other request waits.
const SINGLE_MASK_TIMEOUT: Duration = Duration::from_secs(600);
/// Bounds of the number of threads that compute masks.
const MIN_THREADS: usize = 2;
const MAX_THREADS: usize = 8;

/// A constraint, and the mask of the next token if it is known.
pub(super) struct Constraint {
    state: State,
    restricts: bool,
}

enum State {
    Idle(Box<dyn TokenConstraint>),
    Computing(Receiver<Computed>),
    /// With the bits of the allowed next tokens.
    Ready(Box<dyn TokenConstraint>, Vec<u32>),
    /// It failed, or a thread still computes a mask that nobody waits for.
    Failed(String),
}

/// A constraint with the mask of the next token, or why there is none.
type Computed = (Box<dyn TokenConstraint>, Result<Vec<u32>, String>);

/// A mask to compute, and where it goes.
struct Job {
    constraint: Box<dyn TokenConstraint>,
    words: usize,
    result: SyncSender<Computed>,
}

impl Job {
    fn run(mut self) {
        let mut mask = vec![0; self.words];
        let filled = call(|| self.constraint.fill_mask(&mut mask));
        let mask = filled.and_then(|()| {
            if mask.iter().all(|word| *word == 0) {
                return Err("no token is allowed".to_owned());
            }
            Ok(mask)
        });
        // The request may have ended.
        drop(self.result.send((self.constraint, mask)));
    }
}

/// The threads that compute masks, started when the first one is needed. They end by themselves.
pub(super) struct MaskThreads {
    /// Words of a mask.
    words: usize,
    timeout: Duration,
    jobs: Option<Sender<Job>>,
}

impl MaskThreads {
    /// Creates none yet, for masks of so many words. `single` says whether there is one request at a time.
    pub fn new(words: usize, single: bool) -> MaskThreads {
        MaskThreads {
            words,
            timeout: if single { SINGLE_MASK_TIMEOUT } else { MASK_TIMEOUT },
            jobs: None,
        }
    }

    /// Returns when masks that are waited for from now on are too late.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    fn run(&mut self, job: Job) {
        let jobs = self.jobs.get_or_insert_with(start_threads);
        // Without any thread, this one computes it.
        if let Err(job) = jobs.send(job) {
            job.0.run();
        }
    }
}

fn start_threads() -> Sender<Job> {
    let (jobs, taken) = channel::<Job>();
    let taken = Arc::new(Mutex::new(taken));
    let cores = std::thread::available_parallelism().map_or(MIN_THREADS, |cores| cores.get() / 2);
    for _ in 0..cores.clamp(MIN_THREADS, MAX_THREADS) {
        let taken = taken.clone();
        let thread = std::thread::Builder::new().name("masks".to_owned());
        let started = thread.spawn(move || {
            let next = || taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
            while let Ok(job) = next() {
                job.run();
            }
        });
        if started.is_err() {
            break;
        }
    }
    jobs
}

impl Constraint {
    pub fn new(constraint: Box<dyn TokenConstraint>) -> Constraint {
        Constraint::idle(constraint)
    }

    fn idle(constraint: Box<dyn TokenConstraint>) -> Constraint {
        match call(|| Ok(constraint.restricts())) {
            Ok(restricts) => Constraint {
                restricts,
                state: State::Idle(constraint),
            },
            Err(why) => Constraint::failed(why),
        }
    }

    /// A constraint that reports why it failed when its mask is asked for.
    fn failed(why: String) -> Constraint {
        Constraint {
            state: State::Failed(why),
            restricts: true,
        }
    }

    /// Whether it restricts the next token.
    pub fn restricts(&self) -> bool {
        self.restricts
    }

    /// Has a thread compute the mask of the next token, if it is needed and not known.
    pub fn compute_mask(&mut self, threads: &mut MaskThreads) {
        if !self.restricts {
            return;
        }
        let (result, computed) = sync_channel(1);
        match std::mem::replace(&mut self.state, State::Computing(computed)) {
            State::Idle(constraint) => threads.run(Job {
                constraint,
                words: threads.words,
                result,
            }),
            other => self.state = other,
        }
    }

    /// Waits for the mask of the next token. Returns `None` if all tokens may come next.
    ///
    /// # Errors
    /// Why the text cannot continue.
    pub fn allowed(&mut self, threads: &mut MaskThreads, deadline: Instant) -> Result<Option<&[u32]>, String> {
        self.compute_mask(threads);
        if let State::Computing(computed) = &self.state {
            let left = deadline.saturating_duration_since(Instant::now());
            let computed = computed.recv_timeout(left).map_err(|why| match why {
                RecvTimeoutError::Timeout => "the grammar takes too long to find the allowed tokens".to_owned(),
                RecvTimeoutError::Disconnected => "the allowed tokens cannot be computed".to_owned(),
            });
            *self = match computed {
                Ok((constraint, Ok(mask))) => match Constraint::idle(constraint) {
                    Constraint {
                        state: State::Idle(constraint),
                        restricts,
                    } => Constraint {
                        state: State::Ready(constraint, mask),
                        restricts,
                    },
                    failed => failed,
                },
                Ok((_, Err(why))) | Err(why) => Constraint::failed(why),
            };
        }
        match &self.state {
            State::Ready(_, mask) => Ok(Some(mask)),
            State::Failed(why) => Err(why.clone()),
            State::Idle(_) | State::Computing(_) => Ok(None),
        }
    }

    /// Accepts a token. Returns whether the text is complete.
    ///
    /// # Errors
    /// Why the text cannot continue.
    pub fn accept(&mut self, token: u32) -> Result<bool, String> {
        let state = std::mem::replace(&mut self.state, State::Failed(String::new()));
        let mut constraint = match state {
            State::Idle(constraint) | State::Ready(constraint, _) => constraint,
            State::Failed(why) => return Err(why),
            State::Computing(_) => return Err("a token was sampled before its mask was known".to_owned()),
        };
        let accepted = call(|| constraint.accept(token));
        *self = match &accepted {
            Ok(_) => Constraint::idle(constraint),
            Err(why) => Constraint::failed(why.clone()),
        };
        accepted
    }
}

/// Calls a constraint. If it panics, only its own request fails.
fn call<T>(constraint: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    guarded(constraint).unwrap_or_else(|bug| Err(bug.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Allows token `token`, once `ready` returns.
    struct Single<F> {
        token: u32,
        ready: F,
    }

    impl<F: FnMut() + Send> TokenConstraint for Single<F> {
        fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
            (self.ready)();
            bits[0] = 1 << self.token;
            Ok(())
        }

        fn accept(&mut self, token: u32) -> Result<bool, String> {
            assert_eq!(token, self.token);
            Ok(true)
        }
    }

    fn single(token: u32, ready: impl FnMut() + Send + 'static) -> Constraint {
        Constraint::new(Box::new(Single { token, ready }))
    }

    fn mask(constraint: &mut Constraint, threads: &mut MaskThreads, deadline: Instant) -> Result<Vec<u32>, String> {
        let mask = constraint.allowed(threads, deadline)?;
        Ok(mask.expect("it restricts").to_vec())
    }

    #[test]
    fn masks_are_computed_at_the_same_time() {
        let mut threads = MaskThreads::new(1, false);
        let barrier = Arc::new(Barrier::new(2));
        let mut both = [3, 5].map(|token| {
            let barrier = barrier.clone();
            single(token, move || {
                barrier.wait();
            })
        });
        both.iter_mut()
            .for_each(|constraint| constraint.compute_mask(&mut threads));
        let deadline = threads.deadline();
        for (constraint, token) in both.iter_mut().zip([3, 5]) {
            assert_eq!(mask(constraint, &mut threads, deadline), Ok(vec![1 << token]));
            assert_eq!(constraint.accept(token), Ok(true));
        }
    }

    #[test]
    fn slow_and_broken_constraints_fail_alone() {
        let mut threads = MaskThreads::new(1, false);
        threads.timeout = Duration::from_millis(10);
        let (release, released) = channel::<()>();
        let mut slow = single(1, move || released.recv().unwrap_or_default());
        let mut broken = single(2, || panic!("a bug"));
        let mut other = single(3, || ());
        let deadline = threads.deadline();
        assert!(
            mask(&mut slow, &mut threads, deadline)
                .unwrap_err()
                .contains("takes too long")
        );
        threads.timeout = MASK_TIMEOUT;
        let deadline = threads.deadline();
        assert!(mask(&mut broken, &mut threads, deadline).unwrap_err().contains("a bug"));
        assert_eq!(mask(&mut other, &mut threads, deadline), Ok(vec![8]));
        assert!(mask(&mut slow, &mut threads, deadline).is_err());
        assert!(broken.accept(2).is_err());
        drop(release);
    }
}
