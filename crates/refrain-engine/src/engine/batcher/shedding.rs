//! What becomes of requests when memory runs out in a round: fewer are computed at once, and none is lost but one for which
//! there is none even alone.

use refrain::Device;

use super::{Batcher, Waiting};
use crate::Error;
use crate::engine::request::EngineEvent;
use crate::prompts::{SHORT_CHUNK, usual_chunk};

/// Requests that come to their ends before more is tried again.
const ENDS: u32 = 8;
/// How often a request that is alone may find no memory before it is refused.
const ATTEMPTS: u32 = 3;
/// The fewest tokens of a prompt that are taken in at once.
const NARROWEST: usize = 16;

/// How much less is done at once, since memory ran out.
pub(super) struct Squeeze {
    /// Tokens that a chunk has where memory is not short.
    pub widest: usize,
    /// Streams and tokens of a chunk are halved so often.
    halvings: u32,
    /// Requests that have ended since.
    ends: u32,
    /// Tokens that had been picked when memory last ran out, and how often it has since without any.
    tokens: u64,
    in_vain: u32,
}

impl Squeeze {
    /// None, on a device.
    pub fn new(device: &Device) -> Squeeze {
        Squeeze {
            widest: usual_chunk(device),
            halvings: 0,
            ends: 0,
            tokens: 0,
            in_vain: 0,
        }
    }

    /// Requests that may be computed at once, of so many.
    pub fn streams(&self, most: usize) -> usize {
        most.checked_shr(self.halvings).unwrap_or(0).max(1)
    }

    /// Tokens that a chunk may have.
    pub fn chunk(&self) -> usize {
        self.widest.checked_shr(self.halvings).unwrap_or(0).max(NARROWEST)
    }

    /// Notes that a request has come to its end.
    pub fn ended(&mut self) {
        self.ends += 1;
        if self.ends >= ENDS {
            (self.ends, self.halvings) = (0, self.halvings.saturating_sub(1));
        }
    }
}

impl Batcher {
    /// Goes on after memory ran out in a round: programs are let go, all requests wait again, and fewer of them come back at
    /// once. One that was alone and found none again and again is told so.
    ///
    /// # Errors
    /// If something else fails; if there was no request to blame.
    pub fn shed(&mut self, error: Error) -> Result<(), Error> {
        match self.hear_all() {
            // What is not heard is computed again.
            Err(why) if why.is_out_of_memory() => self.in_flight.clear(),
            heard => heard?,
        }
        let running: Vec<usize> = self.running().map(|(slot, _)| slot).collect();
        let streams = self.slots.len();
        let picked = self.counted.generated_tokens;
        let is_in_vain = std::mem::replace(&mut self.squeeze.tokens, picked) == picked;
        self.squeeze.in_vain = if is_in_vain { self.squeeze.in_vain + 1 } else { 1 };
        let least = self.squeeze.streams(streams) == 1 && self.squeeze.chunk() == NARROWEST;
        let mut requests: Vec<Waiting> = running.iter().filter_map(|slot| self.vacate(*slot)).collect();
        requests.sort_by_key(|request| request.number);
        if requests.is_empty() {
            return Err(error);
        }
        self.counted.preemptions += requests.len() as u64;
        if least && self.squeeze.in_vain >= ATTEMPTS {
            self.squeeze.in_vain = 0;
            let mut refused = requests.remove(0);
            refused.tell(EngineEvent::Failed(Error::NoMemory(error.to_string())));
        }
        self.squeeze.ends = 0;
        self.squeeze.widest = self.squeeze.widest.min(SHORT_CHUNK);
        if !least {
            self.squeeze.halvings += 1;
            while self.squeeze.streams(streams) >= running.len().max(2) {
                self.squeeze.halvings += 1;
            }
        }
        requests
            .into_iter()
            .rev()
            .for_each(|request| self.queue.push_front(request));
        self.steps.release();
        self.prompts.release();
        self.rounds.interrupt();
        self.chunk = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::batcher::trial::{ask, batcher, model, options, prompt};
    use crate::{Finish, GenerateOptions, Session};

    fn full() -> Error {
        let (asked, limit) = (2, 1);
        refrain::Error::from(refrain_vulkan::Error::BufferTooLarge { asked, limit }).into()
    }

    #[test]
    fn texts_are_the_same_whenever_memory_runs_out() {
        let model = model();
        let mut batcher = batcher(&model, 4);
        let heard: Vec<_> = (0..12).map(|number| ask(&mut batcher, number, 20)).collect();
        let (mut random, mut sheds, mut narrowed) = (1u64, 0, false);
        while !batcher.is_idle() {
            batcher.turn().expect("goes on");
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if (random >> 33).is_multiple_of(23) && batcher.running().count() > 0 {
                batcher.shed(full()).expect("goes on");
                sheds += 1;
                narrowed |= batcher.squeeze.streams(4) == 1;
            }
        }
        assert!(sheds > 3 && narrowed, "{sheds}");
        assert!(batcher.load().preemptions >= sheds, "{:?}", batcher.load());
        for (number, heard) in heard.into_iter().enumerate() {
            let number = number as u64;
            let mut session = Session::new(&model, 256).expect("fits");
            let options = GenerateOptions {
                max_tokens: Some(20),
                ..options(number)
            };
            let alone = session.generate(&prompt(number), &options).expect("begins");
            let alone: Vec<u32> = alone.collect::<Result<_, _>>().expect("goes on");
            let tokens = heard.try_iter().filter_map(|event| match event {
                EngineEvent::Token(token) => Some(token.id),
                EngineEvent::End(Finish::Length) => None,
                other => panic!("{number}: {other:?}"),
            });
            assert_eq!(tokens.collect::<Vec<_>>(), alone, "{number}");
        }
        (0..64).for_each(|_| batcher.squeeze.ended());
        assert_eq!((batcher.squeeze.streams(4), batcher.squeeze.chunk()), (4, SHORT_CHUNK));
    }

    #[test]
    fn a_request_that_finds_no_memory_even_alone_is_refused_and_the_next_has_its_turn() {
        let model = model();
        let mut batcher = batcher(&model, 4);
        let [first, second] = [0, 1].map(|number| ask(&mut batcher, number, 3));
        let mut told = None;
        for _ in 0..10 {
            batcher.admit().expect("has room");
            batcher.shed(full()).expect("somebody is to blame");
            told = first.try_recv().ok();
            if told.is_some() {
                break;
            }
        }
        assert!(
            matches!(told, Some(EngineEvent::Failed(Error::NoMemory(_)))),
            "{told:?}"
        );
        while !batcher.is_idle() {
            batcher.turn().expect("goes on");
        }
        let events: Vec<_> = second.try_iter().collect();
        assert_eq!(events.len(), 4, "three tokens and an end: {events:?}");
        assert!(batcher.shed(full()).is_err(), "nobody is to blame");
    }
}
