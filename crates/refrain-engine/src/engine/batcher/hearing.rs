//! What comes of the runs of a batch.

use std::time::Instant;

use refrain_lm::sample::{FINISHED, NOT_A_NUMBER};

use super::{Batcher, Seat, Waiting};
use crate::engine::request::{EngineEvent, PickedToken, asked};
use crate::{Error, Finish};

impl Batcher {
    /// Waits for all submits and passes on what they report.
    pub(super) fn hear_all(&mut self) -> Result<(), Error> {
        while !self.in_flight.is_empty() {
            self.hear()?;
        }
        Ok(())
    }

    /// Waits for the oldest submit and passes on what it reports.
    pub(super) fn hear(&mut self) -> Result<(), Error> {
        let Some(heard) = self.in_flight.pop_front() else {
            return Ok(());
        };
        for (number, run) in heard.runs.iter().enumerate() {
            let chunk = heard.chunk.filter(|_| number == 0);
            if let Some(chunk) = chunk {
                self.pace.delay(self.rounds.of_chunk(chunk));
            }
            let looks = self.steps.wait(run, &self.pace)?;
            let now = Instant::now();
            match chunk {
                Some(_) => self.pace.passed(now),
                None => self.pace.found(looks, 1, now),
            }
            self.rounds.ended(chunk, now);
            let before = self.counted.generated_tokens;
            for (row, seat) in heard.rows.iter().enumerate() {
                if let Some(seat) = *seat
                    && self.is_seated(seat)
                {
                    self.take(seat, heard.first + number as u64, row)?;
                }
            }
            self.counted.decode_steps += u64::from(self.counted.generated_tokens > before);
        }
        Ok(())
    }

    fn is_seated(&self, (slot, number): Seat) -> bool {
        self.slots[slot].as_ref().is_some_and(|r| r.request.number == number)
    }

    /// Takes what run number `run` reported of a request in a row.
    fn take(&mut self, (slot, _): Seat, run: u64, row: usize) -> Result<(), Error> {
        let word = self.steps.reported(run, row)?;
        let running = self.slots[slot].as_mut().expect("seated");
        running.ahead -= 1;
        let request = &mut running.request;
        // All that may fail of the device comes before the request changes: it may have to go on from here.
        let mut likelihoods = None;
        if let Some(likeliest) = request.likeliest {
            likelihoods = self.steps.likelihoods(run, row)?.map(Box::new);
            if let Some(likelihoods) = &mut likelihoods {
                likelihoods.likeliest.truncate(likeliest);
            }
        }
        let position = request.tokens.len() - 1;
        let end = match word {
            NOT_A_NUMBER => EngineEvent::Failed(Error::NotANumber { position }),
            // The device ends a text where the host does; this is for what only the device knows.
            FINISHED => EngineEvent::End(request.at_limit),
            id if request.options.stop_ids.contains(&id) => {
                self.counted.generated_tokens += 1;
                EngineEvent::End(Finish::Stop)
            }
            id => {
                self.counted.generated_tokens += 1;
                running.fed += 1;
                request.tokens.push(id);
                request.tell(EngineEvent::Token(PickedToken { id, likelihoods }));
                let taken = request
                    .constraint
                    .as_mut()
                    .map(|constraint| asked(|| constraint.take(id)));
                match taken.transpose() {
                    Err(why) => EngineEvent::Failed(Error::Constraint(why)),
                    Ok(Some(true)) => EngineEvent::End(Finish::Stop),
                    Ok(_) if request.tokens.len() < request.limit => return Ok(()),
                    Ok(_) => EngineEvent::End(request.at_limit),
                }
            }
        };
        self.end(slot, end);
        Ok(())
    }

    /// Ends the request in a slot with a last word.
    pub(super) fn end(&mut self, slot: usize, last: EngineEvent) {
        if let Some(mut request) = self.vacate(slot) {
            self.squeeze.ended();
            request.tell(last);
        }
    }

    /// Frees a slot and its row; what its pages hold is remembered.
    pub(super) fn vacate(&mut self, slot: usize) -> Option<Waiting> {
        let running = self.slots[slot].take()?;
        self.steps.leave(running.seat(slot));
        let held = running.fed.min(running.request.tokens.len() - 1);
        self.pool.remember(&running.request.tokens[..held], &running.pages);
        self.pool.give_back(&running.pages);
        Some(running.request)
    }
}
