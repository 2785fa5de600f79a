//! Requests for logits or log-probabilities of their prompts: what the model says after each token, not only after the last.

use refrain_lm::Logprobs;

use super::{Batcher, Runner, Running};
use crate::engine::request::{EngineEvent, PickedToken, PromptOutputs};
use crate::prefill::{RowOutput, SHORT_CHUNK};
use crate::{Error, Finish};

/// Bytes of logits that a chunk has on the device, at most.
const MAX_LOGIT_BYTES: usize = 128 << 20;
/// Tokens of a chunk for which `MAX_LOGIT_BYTES` may be exceeded.
const MIN_CHUNK: usize = 16;

impl Running {
    /// Whether it computes outputs of its prompt.
    fn computes_outputs(&self) -> bool {
        self.request.prompt_outputs.is_some() && !self.prefills()
    }
}

impl<R: Runner> Batcher<R> {
    /// Computes a chunk of a prompt whose outputs are requested: that of the request that came first. Such chunks and
    /// others take turns. Returns whether it was its turn.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn report_prompt(&mut self) -> Result<bool, Error> {
        let was_reported = std::mem::take(&mut self.reported_prompt);
        let computes = self.running().filter(|(_, running)| running.computes_outputs());
        let first = computes.min_by_key(|(_, running)| running.request.number);
        let Some(slot) = first.map(|(slot, _)| slot) else {
            return Ok(false);
        };
        if was_reported && self.running().any(|(_, running)| running.prefills()) {
            return Ok(false);
        }
        self.reported_prompt = true;
        // The outputs are read at once, and the time must not count as that of the runs in flight.
        self.poll_all()?;
        self.step_times.interrupt();
        self.compute_outputs(slot)?;
        Ok(true)
    }

    fn compute_outputs(&mut self, slot: usize) -> Result<(), Error> {
        let most = self.chunk_limit().min(self.max_output_rows());
        let running = self.slots[slot].as_ref().expect("found");
        let (outputs, left) = running.request.prompt_outputs.clone().expect("it asks for outputs");
        let most = self.runner.max_chunk_tokens(most, running.prefilled).min(most);
        let end = running.next_end(left.end, self.runner.checkpoints().is_some());
        let tokens = (end - running.prefilled).min(most);
        let output = match outputs {
            PromptOutputs::Logits { .. } => RowOutput::Logits,
            PromptOutputs::Logprobs { .. } => RowOutput::Logprobs,
        };
        let piece = running.piece(slot, tokens);
        let rows = self.runner.rows_after(vec![piece], output, &self.known_table)?;
        self.chunks += 1;
        self.cache_prefix(slot, tokens)?;
        if let Some(at) = rows.iter().position(|row| row.iter().any(|number| number.is_nan())) {
            let position = left.start + at;
            self.end(slot, EngineEvent::Failed(Error::NotANumber { position }));
            return Ok(());
        }
        let request = &mut self.slots[slot].as_mut().expect("found").request;
        match outputs {
            PromptOutputs::Logits { .. } => request.emit(EngineEvent::Logits(rows.concat())),
            PromptOutputs::Logprobs { .. } => {
                let top_logprobs = request.top_logprobs.unwrap_or(0);
                for (row, at) in rows.iter().zip(left.start + 1..) {
                    let mut logprobs = Logprobs::from_row(row);
                    logprobs.top.truncate(top_logprobs);
                    request.emit(EngineEvent::Token(PickedToken {
                        id: request.tokens[at],
                        logprobs: Some(Box::new(logprobs)),
                    }));
                }
            }
        }
        let left = left.start + tokens..left.end;
        request.prompt_outputs = (!left.is_empty()).then_some((outputs, left));
        if request.prompt_outputs.is_none() && request.tokens.len() >= request.limit {
            self.end(slot, EngineEvent::End(Finish::Length));
        }
        Ok(())
    }

    /// Returns how many tokens a chunk with outputs may have.
    fn max_output_rows(&self) -> usize {
        let rows = MAX_LOGIT_BYTES / size_of::<f32>() / self.runner.vocabulary().max(1);
        // Powers of two need no padding.
        1 << rows.clamp(MIN_CHUNK, SHORT_CHUNK).ilog2()
    }
}
