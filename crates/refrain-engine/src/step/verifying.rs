//! The step that verifies drafts: each sequence has its current token and a draft of the next ones, and samples after
//! each.

use refrain::{Array, DType, Device, Error, concatenate};
use refrain_lm::sample;
use refrain_models::{Batch, LayerState};

use super::state::output_counts;
use super::{DecodeState, StepExtras};

/// Column of a draft's first token.
const FIRST_TOKEN: usize = 2;

/// What a step verified: tokens that follow those of its batch.
pub(super) struct VerifiedTokens {
    /// u32 `[S · (1 + k)]`: the tokens that were sampled.
    pub tokens: Array,
    /// i32 `[S · (1 + k)]`: the positions of the batch's tokens that are kept; negative for the others.
    pub kept: Array,
    /// The outputs of the program.
    pub outputs: Vec<Array>,
}

/// The drafts of S sequences, with room for k tokens each.
#[derive(Clone)]
pub(crate) struct DraftStates {
    /// u32 `[S, 2 + k]`: number of tokens, number of first ones that are accepted whatever is sampled, and the tokens.
    pub drafts: Array,
}

impl DraftStates {
    /// Allocates them for `tokens` tokens of each sequence.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(device: &Device, sequences: usize, tokens: usize) -> Result<DraftStates, Error> {
        Ok(DraftStates {
            drafts: Array::state(device, DType::U32, &[sequences, FIRST_TOKEN + tokens])?,
        })
    }

    /// Fills all drafts with one token.
    ///
    /// # Errors
    /// If the device fails.
    pub fn fill(&self, token: u32) -> Result<(), Error> {
        let [sequences, columns] = [0, 1].map(|axis| self.drafts.dim(axis));
        let mut row = vec![token; columns];
        row[..FIRST_TOKEN].copy_from_slice(&[(columns - FIRST_TOKEN) as u32, 0]);
        self.drafts.write_state(0, bytemuck::cast_slice(&row.repeat(sequences)))
    }

    /// Returns a number of each draft's tokens, i32 `[S, 1]`: 0 of all of them, 1 of those accepted in any case.
    fn counts(&self, column: usize) -> Array {
        self.drafts.slice(1, column, column + 1).astype(DType::I32)
    }

    /// Returns which sequences' draft tokens at `index` are accepted, given the tokens `[S]` that were sampled there.
    fn accepted(&self, index: usize, sampled: &Array) -> Array {
        let column = FIRST_TOKEN + index;
        let tokens = self.drafts.slice(1, column, column + 1).reshape(&[-1]);
        let exceeds = |numbers: Array| numbers.reshape(&[-1]).gt(index as i32);
        let is_right = sampled.eq(tokens).bit_or(exceeds(self.counts(1)));
        is_right.bit_and(exceeds(self.counts(0)))
    }

    /// Returns tokens, positions and sequences `[S · (1 + k)]`: each sequence's current token, its draft, and
    /// padding.
    pub fn append_to(&self, state: &DecodeState) -> [Array; 3] {
        let [sequences, columns] = [0, 1].map(|axis| self.drafts.dim(axis));
        let width = 1 + columns - FIRST_TOKEN;
        let column = [sequences as isize, 1];
        let [tokens, positions, numbers] =
            [&state.tokens, &state.positions, &state.sequences].map(|array| array.reshape(&column));
        let tokens = concatenate(&[&tokens, &self.drafts.slice(1, FIRST_TOKEN, columns)], 1);
        let index = Array::arange(self.drafts.device(), DType::I32, width).reshape(&[1, width as isize]);
        let exists = index.le(self.counts(0)).bit_and(positions.ge(0));
        let positions = exists.select(&(&positions + &index), -1);
        // Fused kernels read them without strides. As a copy, all layers share it.
        let numbers = numbers.broadcast_to(&[sequences, width]).contiguous();
        [tokens, positions, numbers].map(|array| array.reshape(&[-1]))
    }
}

impl DecodeState {
    /// Samples after the current token and after each token of a draft, given logits `[S · (1 + k), V]` of a batch. A
    /// token of a draft is accepted if it was sampled. Behind one that is not, a sequence counts as finished until the
    /// end, so that its state stays. Recurrent layers were computed with deferred updates, which are made here with the
    /// tokens that are kept: those after which a token was sampled.
    pub(super) fn verify(
        &self,
        logits: &Array,
        batch: &Batch,
        layers: &mut [LayerState],
        extras: StepExtras,
    ) -> VerifiedTokens {
        let states = self.drafts.as_ref().expect("a step with drafts");
        let (count, width) = (self.tokens.count(), 1 + extras.draft_tokens);
        let rows = Array::arange(logits.device(), DType::I32, count);
        let all = logits.reshape(&[count as isize, width as isize, -1]);
        let (settings, bias) = (&self.slots.settings, Some(&self.slots.bias));
        let mut sequences = self.sampled_sequences();
        let mut ring = self.logprob_ring(extras).cloned();
        let mut tokens: Vec<Array> = vec![];
        let column = [count as isize, 1];
        // Of the tokens that are kept; negative for the others.
        let mut kept = vec![batch.positions().reshape(&[count as isize, -1]).slice(1, 0, 1)];
        for index in 0..width {
            if let Some(sampled) = tokens.last() {
                let accepted = states.accepted(index - 1, sampled);
                let positions = &sequences.positions;
                let stopped = accepted.select(positions, suspended(positions));
                sequences.positions = positions.write_rows(&stopped, &rows);
                kept.push(stopped.reshape(&column));
            }
            let logits = all.slice(1, index, index + 1).reshape(&[count as isize, -1]);
            let (reported, next) = sample(&logits, settings, &sequences, bias);
            ring = ring.map(|ring| ring.keep(&output_counts(&next), &logits, &reported));
            sequences = next;
            tokens.push(reported);
        }
        let positions = &sequences.positions;
        let resumed = positions.lt(-1).select(-2 - positions, positions);
        let positions = positions.write_rows(&resumed, &rows);
        let kept = concatenate(&kept.iter().collect::<Vec<_>>(), 1).reshape(&[-1]);
        layers.iter_mut().for_each(|layer| layer.commit(&kept));
        let recurrent = LayerState::recurrent(layers).into_iter().cloned();
        let outputs = [tokens[width - 1].clone(), logits.clone(), positions]
            .into_iter()
            .chain(ring.map(|ring| ring.rows))
            .chain(recurrent)
            .collect();
        let columns: Vec<Array> = tokens.iter().map(|token| token.reshape(&column)).collect();
        let tokens = concatenate(&columns.iter().collect::<Vec<_>>(), 1).reshape(&[-1]);
        VerifiedTokens { tokens, kept, outputs }
    }
}

/// Returns negative numbers in place of positions, which sampling takes for those of finished sequences: -2 - p.
fn suspended(positions: &Array) -> Array {
    positions.lt(0).select(positions, -2 - positions)
}

#[cfg(test)]
mod tests {
    use refrain::Device;
    use refrain_models::{Checkpoint, Pages};
    use refrain_vulkan::DeviceInfo;

    use crate::step::{DecodeStep, SlotStates, StepExtras, StepOptions, page_table};
    use crate::{LoadOptions, Model};

    /// Each delta net reads its states before sampling and updates them behind it: in one step each for few tokens.
    #[test]
    fn recurrent_states_are_updated_behind_the_last_sample() {
        let device = Device::vulkan(refrain_vulkan::Device::null_without_contents(DeviceInfo::mock("card")));
        let checkpoint = Checkpoint::synthetic("tiny-hybrid:f16").expect("a checkpoint");
        let model = Model::load(&checkpoint, &device, &LoadOptions::default()).expect("loads");
        let config = model.config();
        let nets = (0..config.layers).filter(|&layer| config.is_recurrent(layer)).count();
        let pages = Pages {
            size: 64,
            per_sequence: 4,
            context: 256,
        };
        let states = model.decoder().new_states(model.cache_types(), pages, 4).expect("fits");
        let slots = SlotStates::new(&device, 4, config.vocab_size, 256).expect("fits");
        let table = page_table(&device, 4, pages).expect("fits");
        let extras = StepExtras {
            draft_tokens: 3,
            ..StepExtras::default()
        };
        for (rows, rule, updates) in [(1, "delta_net", 1), (2, "delta_net", 1), (4, "gated_delta", 2)] {
            let options = StepOptions::default();
            let step = DecodeStep::trace(&model, &states, (rows, &slots), &table, pages, options).expect("lowers");
            let step = step
                .trace_with_extras(&model, &states, pages, extras, None)
                .expect("lowers");
            let steps = step.print_after("regions").expect("lowers");
            let count = |of: &str| steps.matches(of).count();
            assert!(nets > 0, "{rows} rows: {steps}");
            assert_eq!(count(&format!("= {rule} results only")), nets, "{rows} rows: {steps}");
            assert_eq!(count("results only"), updates * nets, "{rows} rows: {steps}");
            assert_eq!(count("state only"), updates * nets, "{rows} rows: {steps}");
            let (last_sample, first_update) = (steps.rfind("= sample"), steps.find("state only"));
            assert!(
                last_sample.is_some() && last_sample < first_update,
                "{rows} rows: {steps}"
            );
        }
    }
}
