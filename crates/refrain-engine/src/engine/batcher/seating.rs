//! Who decodes has a row of the step in use.

use refrain_lm::words_of_bits;

use super::Batcher;
use crate::Error;
use crate::engine::request::{EngineEvent, asked};
use crate::engine::steps::Newcomer;
use crate::pace::Pace;
use crate::step::StepExtras;

impl Batcher {
    /// Gives all that decode a row, and those with constraints their next tokens; whether there are any.
    pub(super) fn prepare(&mut self) -> Result<bool, Error> {
        while self.seat_all()? {
            if !self.steps.extras().allowed {
                return Ok(true);
            }
            // What may come next depends on what comes now.
            let all_heard = self.in_flight.is_empty();
            self.hear_all()?;
            if all_heard && self.allow()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tells the device which tokens may come next where not all may. Those that cannot go on end; whether none did.
    fn allow(&mut self) -> Result<bool, Error> {
        let mut bits = vec![0; words_of_bits(self.model.config().vocab_size)];
        let mut none_ended = true;
        for (row, seat) in self.steps.rows().to_vec().into_iter().enumerate() {
            let Some((slot, _)) = seat else { continue };
            let running = self.slots[slot].as_mut().expect("seated");
            let Some(constraint) = &mut running.request.constraint else {
                continue;
            };
            bits.fill(0);
            let allowed = asked(|| constraint.allow(&mut bits));
            match allowed {
                Ok(()) if bits.iter().any(|word| *word != 0) => self.steps.allow(row, &bits)?,
                other => {
                    let why = other.err().unwrap_or_else(|| "no token may come next".to_owned());
                    self.end(slot, EngineEvent::Failed(Error::Constraint(why)));
                    none_ended = false;
                }
            }
        }
        Ok(none_ended)
    }

    /// Gives all that decode a row; whether there are any.
    fn seat_all(&mut self) -> Result<bool, Error> {
        loop {
            let decoding = || self.running().filter(|(_, running)| running.decodes());
            let extras = decoding().map(|(_, running)| running.request.extras());
            let needed = extras.fold(StepExtras::default(), StepExtras::and);
            let decoding = decoding().count();
            let streams = if self.deterministic { self.slots.len() } else { decoding };
            let rows = streams.next_power_of_two();
            let now = self.steps.rows().len();
            if decoding == 0 {
                return Ok(false);
            }
            if rows > now || 2 * rows <= now || needed != self.steps.extras() {
                if !self.in_flight.is_empty() {
                    self.hear_all()?;
                    continue;
                }
                let kind = (rows, needed);
                self.steps.use_rows(kind, &self.model, &self.states, &self.table)?;
                self.pace = Pace::default();
                self.rounds.interrupt();
            }
            break;
        }
        for slot in 0..self.slots.len() {
            let Some(running) = self.slots[slot].as_ref().filter(|running| running.decodes()) else {
                continue;
            };
            let seat = running.seat(slot);
            if self.steps.rows().contains(&Some(seat)) {
                continue;
            }
            let request = &running.request;
            self.steps.join(Newcomer {
                seat,
                tokens: &request.tokens,
                settings: &request.settings,
                bias: request.options.sampler.bias(self.model.config().vocab_size),
            })?;
        }
        Ok(true)
    }
}
