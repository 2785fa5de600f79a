//! Requests for logits or log-probabilities of their prompts: what the model says after each token, not only after the last.

use refrain_lm::Logprobs;

use super::{Batcher, Runner, Running};
use crate::engine::request::{EngineEvent, PickedToken, PromptOutputs};
use crate::prefill::{RowOutput, SHORT_CHUNK};
use crate::{Error, Finish};

/// Bytes of logits that a chunk has on the device, at most.
const MAX_LOGIT_BYTES: usize = 128 << 20;
/// Tokens of a chunk for which `MAX_LOGIT_BYTES` may be exceeded, and the time between two tokens of texts.
const MIN_CHUNK: usize = 16;
/// Tokens of a chunk beside texts before any was timed.
const FIRST_CHUNK: usize = 64;

impl<R: Runner> Batcher<R> {
    /// Computes a chunk of a prompt whose outputs are requested: that of the request that came first. Such chunks and
    /// others take turns. Returns whether it was its turn.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn report_prompt(&mut self) -> Result<bool, Error> {
        let was_reported = std::mem::take(&mut self.reported_prompt);
        let Some(slot) = self.next_outputs(was_reported) else {
            return Ok(false);
        };
        self.reported_prompt = true;
        // The outputs are read at once, and the time must not count as that of the runs in flight.
        self.poll_all()?;
        self.step_times.interrupt();
        self.compute_outputs(slot)?;
        Ok(true)
    }

    /// Returns the slot of the request whose outputs are computed next; `None` if there is none, or it is the turn of others.
    fn next_outputs(&self, was_reported: bool) -> Option<usize> {
        let ready = self
            .running()
            .filter(|(_, running)| self.output_chunk(running).is_some());
        let (slot, _) = ready.min_by_key(|(_, running)| running.request.number)?;
        let mut others = self.running().filter(|(other, _)| *other != slot);
        let waits = was_reported && others.any(|(_, running)| running.prefills());
        (!waits).then_some(slot)
    }

    fn compute_outputs(&mut self, slot: usize) -> Result<(), Error> {
        let running = self.slots[slot].as_ref().expect("found");
        let (outputs, left) = running.request.prompt_outputs.clone().expect("it asks for outputs");
        let Some((tokens, wanted)) = self.output_chunk(running) else {
            return Ok(());
        };
        let output = match outputs {
            PromptOutputs::Logits { .. } => RowOutput::Logits,
            PromptOutputs::Logprobs { .. } => RowOutput::Logprobs,
        };
        if tokens > SHORT_CHUNK {
            let fitting = self.runner.fit_chunk(tokens, wanted)?;
            if fitting < tokens {
                // The next chunk is shorter.
                self.backpressure.max_chunk = fitting;
                return Ok(());
            }
        }
        let piece = running.piece(slot, tokens);
        let begun = self.runner.now();
        let rows = self.runner.rows_after(vec![piece], wanted, output, &self.known_table)?;
        self.output_time = Some(self.runner.now().saturating_duration_since(begun) / tokens as u32);
        self.chunks += 1;
        self.cache_prefix(slot, tokens)?;
        let width = rows.len() / wanted;
        if let Some(at) = rows.iter().position(|number| number.is_nan()) {
            let position = left.start + at / width;
            self.end(slot, EngineEvent::Failed(Error::NotANumber { position }));
            return Ok(());
        }
        self.counted.reported_tokens += wanted as u64;
        let request = &mut self.slots[slot].as_mut().expect("found").request;
        match outputs {
            PromptOutputs::Logits { .. } => request.emit(EngineEvent::Logits(rows)),
            PromptOutputs::Logprobs { .. } => {
                let top_logprobs = request.top_logprobs.unwrap_or(0);
                for (row, at) in rows.chunks_exact(width).zip(left.start + 1..) {
                    let mut logprobs = Logprobs::from_row(row);
                    logprobs.top.truncate(top_logprobs);
                    request.emit(EngineEvent::Token(PickedToken {
                        id: request.tokens[at],
                        logprobs: Some(Box::new(logprobs)),
                    }));
                }
            }
        }
        let left = left.start + wanted..left.end;
        request.prompt_outputs = (!left.is_empty()).then_some((outputs, left));
        if request.prompt_outputs.is_none() && request.tokens.len() >= request.limit {
            self.end(slot, EngineEvent::End(Finish::Length));
        }
        Ok(())
    }

    /// Returns how many tokens the next chunk of a prompt has if outputs are computed in it, and of how many of them. Outputs
    /// of a last token are computed together with what comes before it.
    fn output_chunk(&self, running: &Running) -> Option<(usize, usize)> {
        let (outputs, left) = running.request.prompt_outputs.as_ref()?;
        let most = self.output_limit();
        let most = match outputs {
            PromptOutputs::Logits { .. } if left.len() == 1 => most,
            _ => most.min(self.max_output_rows()),
        };
        let most = self.runner.max_chunk_tokens(most, running.prefilled).min(most);
        let end = running.next_end(left.end, self.runner.checkpoints().is_some());
        let tokens = (end - running.prefilled).min(most);
        let wanted = (running.prefilled + tokens).saturating_sub(left.start);
        // The tokens of others must not change how a prompt is computed.
        let is_joined = wanted == 1 && !self.deterministic;
        let is_ready = wanted > 0 && (is_joined || !running.prefills());
        is_ready.then_some((tokens, wanted))
    }

    /// Returns how many tokens a chunk with outputs may have, for the time that it takes.
    fn output_limit(&self) -> usize {
        if self.deterministic || !self.running().any(|(_, running)| running.decodes()) {
            return self.chunk_limit();
        }
        let most = self.backpressure.chunk().min(SHORT_CHUNK);
        let Some(time) = self.output_time else {
            return most.min(FIRST_CHUNK);
        };
        let tokens = self.target_gap.as_nanos() / time.as_nanos().max(1);
        (tokens as usize).clamp(MIN_CHUNK.min(most), most)
    }

    /// Returns how many tokens a chunk with several outputs may have.
    fn max_output_rows(&self) -> usize {
        let rows = MAX_LOGIT_BYTES / size_of::<f32>() / self.runner.vocabulary().max(1);
        // Powers of two need no padding.
        1 << rows.clamp(MIN_CHUNK, SHORT_CHUNK).ilog2()
    }
}
