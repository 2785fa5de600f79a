//! Out of memory: fewer requests are computed at once. None is lost, except one that does not even fit alone.

use super::{Batcher, Runner, Waiting};
use crate::Error;
use crate::engine::request::EngineEvent;
use crate::prefill::SHORT_CHUNK;

/// Requests that end before the limits are raised again.
const ENDS_BEFORE_RETRY: u32 = 8;
/// How often a request that is alone may run out of memory before it fails.
const MAX_ATTEMPTS: u32 = 3;
/// Smallest chunk of a prompt.
const MIN_CHUNK: usize = 16;

/// How much less is computed at once since memory ran out.
pub(super) struct Backpressure {
    /// Tokens of a chunk if memory is not short.
    usual_chunk: usize,
    /// The same with the memory that was found.
    pub max_chunk: usize,
    /// How often requests and tokens of a chunk are halved.
    halvings: u32,
    /// Requests that ended since.
    ends: u32,
    /// The progress when memory last ran out, and how often it has run out since without any.
    tokens: u64,
    failed_attempts: u32,
}

impl Backpressure {
    /// Creates the limits: nothing is halved yet.
    pub fn new(usual_chunk: usize) -> Backpressure {
        Backpressure {
            usual_chunk,
            max_chunk: usual_chunk,
            halvings: 0,
            ends: 0,
            tokens: 0,
            failed_attempts: 0,
        }
    }

    /// Returns how many of `most` requests may be computed at once.
    pub fn streams(&self, most: usize) -> usize {
        most.checked_shr(self.halvings).unwrap_or(0).max(1)
    }

    /// Returns how many tokens a chunk may have.
    pub fn chunk(&self) -> usize {
        self.max_chunk
            .checked_shr(self.halvings)
            .unwrap_or(0)
            .max(self.least_chunk())
    }

    /// Returns how many tokens a chunk may always have.
    fn least_chunk(&self) -> usize {
        MIN_CHUNK.min(self.usual_chunk)
    }

    /// Returns the same if memory is short.
    pub fn shorter_chunk(&self) -> Option<usize> {
        Some(self.chunk()).filter(|chunk| *chunk < self.usual_chunk)
    }

    /// Lets one of `most` requests run at a time.
    pub fn limit_to_one(&mut self, most: usize) {
        (self.halvings, self.ends) = (most.max(1).ilog2(), 0);
    }

    /// Notes that a request has ended.
    pub fn ended(&mut self) {
        self.ends += 1;
        if self.ends >= ENDS_BEFORE_RETRY {
            (self.ends, self.halvings) = (0, self.halvings.saturating_sub(1));
        }
    }
}

impl<R: Runner> Batcher<R> {
    /// Preempts the request that arrived last: it waits again, and its tokens are recomputed later.
    pub(super) fn make_room(&mut self) {
        let last = self.running().max_by_key(|(_, r)| r.request.number);
        let Some(slot) = last.map(|(slot, _)| slot) else {
            return;
        };
        if let Some(request) = self.vacate(slot) {
            self.counted.preemptions += 1;
            self.growth.exceeded();
            self.queue.push_front(request);
        }
    }

    /// Continues after memory ran out in a step: discards all programs, and preempts all requests. Fewer are admitted
    /// then. A request that repeatedly runs out of memory alone fails.
    ///
    /// # Errors
    /// If something else fails, or if there was no request.
    pub fn preempt(&mut self, error: Error) -> Result<(), Error> {
        if self.running().next().is_none() {
            return Err(error);
        }
        match self.poll_all() {
            // Outputs that were not read are computed again.
            Err(why) if why.is_out_of_memory() => self.in_flight.clear(),
            polled => polled?,
        }
        let running: Vec<usize> = self.running().map(|(slot, _)| slot).collect();
        let streams = self.slots.len();
        let progress = self.counted.progress();
        let made_no_progress = std::mem::replace(&mut self.backpressure.tokens, progress) == progress;
        self.backpressure.failed_attempts = if made_no_progress {
            self.backpressure.failed_attempts + 1
        } else {
            1
        };
        let least =
            self.backpressure.streams(streams) == 1 && self.backpressure.chunk() == self.backpressure.least_chunk();
        let mut requests: Vec<Waiting> = running.iter().filter_map(|slot| self.vacate(*slot)).collect();
        requests.sort_by_key(|request| request.number);
        self.counted.preemptions += requests.len() as u64;
        // The outputs of runs in flight may have ended all requests.
        if least && self.backpressure.failed_attempts >= MAX_ATTEMPTS && !requests.is_empty() {
            self.backpressure.failed_attempts = 0;
            let mut refused = requests.remove(0);
            refused.emit(EngineEvent::Failed(Error::NoMemory(error.to_string())));
        }
        self.backpressure.ends = 0;
        self.backpressure.max_chunk = self.backpressure.max_chunk.min(SHORT_CHUNK);
        if !least {
            self.backpressure.halvings += 1;
            while self.backpressure.streams(streams) >= running.len().max(2) {
                self.backpressure.halvings += 1;
            }
        }
        requests
            .into_iter()
            .rev()
            .for_each(|request| self.queue.push_front(request));
        self.runner.release();
        self.step_times.interrupt();
        self.chunk = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Finish;
    use crate::engine::batcher::test_support::{alone, ask, batcher, model};

    fn full() -> Error {
        let (asked, limit) = (2, 1);
        refrain::Error::from(refrain_vulkan::Error::BufferTooLarge {
            requested: asked,
            limit,
        })
        .into()
    }

    #[test]
    fn preemption_at_random_points_changes_no_text() {
        if !refrain_testing::drawn(8) {
            return;
        }
        let model = model();
        let mut batcher = batcher(&model, 4);
        let polled: Vec<_> = (0..12).map(|number| ask(&mut batcher, number, 20)).collect();
        let (mut random, mut preemptions, mut narrowed) = (1u64, 0, false);
        while !batcher.is_idle() {
            batcher.step().expect("goes on");
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if (random >> 33).is_multiple_of(23) && batcher.running().count() > 0 {
                batcher.preempt(full()).expect("goes on");
                preemptions += 1;
                narrowed |= batcher.backpressure.streams(4) == 1;
            }
        }
        assert!(preemptions > 3 && narrowed, "{preemptions}");
        assert!(batcher.load().preemptions >= preemptions, "{:?}", batcher.load());
        for (number, polled) in polled.into_iter().enumerate() {
            let number = number as u64;
            let tokens = polled.try_iter().filter_map(|event| match event {
                EngineEvent::Token(token) => Some(token.id),
                EngineEvent::End(Finish::Length) => None,
                other => panic!("{number}: {other:?}"),
            });
            assert_eq!(tokens.collect::<Vec<_>>(), alone(&model, number, 20), "{number}");
        }
        (0..64).for_each(|_| batcher.backpressure.ended());
        assert_eq!(
            (batcher.backpressure.streams(4), batcher.backpressure.chunk()),
            (4, SHORT_CHUNK)
        );
    }

    #[test]
    fn refuses_a_request_that_fails_alone_and_serves_the_next() {
        let model = model();
        let mut batcher = batcher(&model, 4);
        let [first, second] = [0, 1].map(|number| ask(&mut batcher, number, 3));
        let mut event = None;
        for _ in 0..10 {
            batcher.admit().expect("has room");
            batcher.preempt(full()).expect("a request to preempt");
            event = first.try_recv().ok();
            if event.is_some() {
                break;
            }
        }
        assert!(
            matches!(event, Some(EngineEvent::Failed(Error::NoMemory(_)))),
            "{event:?}"
        );
        while !batcher.is_idle() {
            batcher.step().expect("goes on");
        }
        let events: Vec<_> = second.try_iter().collect();
        assert_eq!(events.len(), 4, "three tokens and an end: {events:?}");
        assert!(batcher.preempt(full()).is_err(), "no request to preempt");
    }
}
