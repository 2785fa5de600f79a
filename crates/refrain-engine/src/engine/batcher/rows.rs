//! Who decodes has a row of the step in use.

use refrain_lm::token_bitmask_words;

use super::Batcher;
use crate::Error;
use crate::engine::request::{EngineEvent, call_constraint};
use crate::engine::steps::Admission;
use crate::pace::Pace;
use crate::step::StepExtras;

impl Batcher {
    /// Gives all that decode a row, and those with constraints their next tokens; whether there are any.
    pub(super) fn prepare(&mut self) -> Result<bool, Error> {
        while self.assign_rows()? {
            if !self.steps.extras().allowed {
                return Ok(true);
            }
            // What may come next depends on what comes now.
            let all_polled = self.in_flight.is_empty();
            self.poll_all()?;
            if all_polled && self.allow()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tells the device which tokens may come next where not all may. Those that cannot go on end; whether none did.
    fn allow(&mut self) -> Result<bool, Error> {
        let mut bits = vec![0; token_bitmask_words(self.model.config().vocab_size)];
        let mut none_ended = true;
        for (row, slot_id) in self.steps.rows().to_vec().into_iter().enumerate() {
            let Some((slot, _)) = slot_id else { continue };
            let running = self.slots[slot].as_mut().expect("admitted");
            let Some(constraint) = &mut running.request.constraint else {
                continue;
            };
            bits.fill(0);
            let allowed = call_constraint(|| constraint.fill_mask(&mut bits));
            match allowed {
                Ok(()) if bits.iter().any(|word| *word != 0) => self.steps.allow(row, &bits)?,
                other => {
                    let why = other.err().unwrap_or_else(|| "no token is allowed".to_owned());
                    self.end(slot, EngineEvent::Failed(Error::Constraint(why)));
                    none_ended = false;
                }
            }
        }
        Ok(none_ended)
    }

    /// Gives all that decode a row; whether there are any.
    fn assign_rows(&mut self) -> Result<bool, Error> {
        loop {
            let decoding = || self.running().filter(|(_, running)| running.decodes());
            let extras = decoding().map(|(_, running)| running.request.extras());
            let needed = extras.fold(StepExtras::default(), StepExtras::union);
            let decoding = decoding().count();
            let streams = if self.deterministic { self.slots.len() } else { decoding };
            let rows = streams.next_power_of_two();
            let now = self.steps.rows().len();
            if decoding == 0 {
                return Ok(false);
            }
            if rows > now || 2 * rows <= now || needed != self.steps.extras() {
                if !self.in_flight.is_empty() {
                    self.poll_all()?;
                    continue;
                }
                let kind = (rows, needed);
                self.steps.use_rows(kind, &self.model, &self.states, &self.table)?;
                self.pace = Pace::default();
                self.step_times.interrupt();
            }
            break;
        }
        for slot in 0..self.slots.len() {
            let Some(running) = self.slots[slot].as_ref().filter(|running| running.decodes()) else {
                continue;
            };
            let slot_id = running.slot_id(slot);
            if self.steps.rows().contains(&Some(slot_id)) {
                continue;
            }
            let request = &running.request;
            self.steps.join(Admission {
                slot_id,
                tokens: &request.tokens,
                settings: &request.settings,
                bias: request.options.sampler.bias(self.model.config().vocab_size),
            })?;
        }
        Ok(true)
    }
}
