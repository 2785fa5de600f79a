//! Batches of sequences for sampling tests.

use refrain_kernels::sample::{self, SampleState, Settings};
use refrain_kernels::{DType, OperandSpec, Traits};

use crate::common::{Arena, Random};

/// Sequences with their states, settings and logits.
#[derive(Clone)]
pub struct Batch {
    pub vocabulary: usize,
    /// `[S, V]`, or `[V]` shared by all sequences.
    pub logits: Vec<f32>,
    pub settings: Vec<Settings>,
    /// `[S, V]`, or empty.
    pub bias: Vec<f32>,
    pub tokens: Vec<u32>,
    pub positions: Vec<i32>,
    pub history: Vec<u32>,
    pub counts: Vec<u32>,
    pub outbox: Vec<u32>,
}

/// Entries of each sequence's ring.
pub const RING: usize = 3;
/// Slots on the device that no sequence has.
const UNUSED_SLOTS: usize = 2;

impl Batch {
    /// Returns sequences with these settings and logits. The current token is at a random position of a random history
    /// of `context` tokens.
    pub fn new(
        random: &mut Random,
        logits: Vec<f32>,
        vocabulary: usize,
        settings: Vec<Settings>,
        context: usize,
    ) -> Batch {
        let sequences = settings.len();
        let mut batch = Batch {
            vocabulary,
            logits,
            bias: vec![],
            tokens: vec![0; sequences],
            positions: (0..sequences).map(|_| random.below(context) as i32).collect(),
            history: (0..sequences * context)
                .map(|_| random.below(vocabulary.min(20)) as u32)
                .collect(),
            counts: vec![],
            outbox: (0..sequences).flat_map(|_| [random.below(9) as u32, 7, 7, 7]).collect(),
            settings,
        };
        for s in 0..sequences {
            let seen = &batch.history[s * context..][..batch.positions[s] as usize + 1];
            batch.tokens[s] = seen[seen.len() - 1];
            batch
                .counts
                .extend(sample::initial_counts(seen, &batch.settings[s], vocabulary));
        }
        batch
    }

    pub fn sequences(&self) -> usize {
        self.settings.len()
    }

    pub fn logits_of(&self, sequence: usize) -> &[f32] {
        let first = if self.logits.len() == self.vocabulary {
            0
        } else {
            sequence * self.vocabulary
        };
        &self.logits[first..][..self.vocabulary]
    }

    fn words(&self) -> Vec<u32> {
        let words = |s: &Settings| s.encode().expect("few stop tokens");
        self.settings.iter().flat_map(words).collect()
    }

    /// Runs a step with the reference; returns the reported tokens.
    pub fn step(&mut self) -> Vec<u32> {
        let logits: Vec<f32> = (0..self.sequences()).flat_map(|s| self.logits_of(s).to_vec()).collect();
        let (words, bias) = (self.words(), self.bias.clone());
        let mut state = SampleState {
            tokens: &mut self.tokens,
            positions: &mut self.positions,
            history: &mut self.history,
            counts: &mut self.counts,
            outbox: &mut self.outbox,
        };
        sample::reference(&logits, &words, &bias, &mut state)
    }

    fn slots(&self) -> usize {
        self.sequences() + UNUSED_SLOTS
    }

    /// Returns the slot of each sequence on the device, in another order than the sequences.
    fn slot_numbers(&self) -> Vec<u32> {
        (0..self.sequences()).map(|s| (self.slots() - 1 - s) as u32).collect()
    }

    /// Returns the rows of slots, given those of sequences; rows of unused slots are `unused`.
    fn scatter<T: Copy>(&self, rows: &[T], unused: T) -> Vec<T> {
        let width = rows.len() / self.sequences();
        let mut scattered = vec![unused; self.slots() * width];
        for (row, slot) in self.slot_numbers().into_iter().enumerate() {
            scattered[slot as usize * width..][..width].copy_from_slice(&rows[row * width..][..width]);
        }
        scattered
    }

    /// Returns the rows of sequences, given those of slots; fails if rows of unused slots were written.
    fn gather(&self, rows: &[u32]) -> Vec<u32> {
        let width = rows.len() / self.slots();
        assert!(rows[..UNUSED_SLOTS * width].iter().all(|word| *word == UNUSED));
        let row = |slot: u32| rows[slot as usize * width..][..width].to_vec();
        self.slot_numbers().into_iter().flat_map(row).collect()
    }

    /// Returns the operands' specs.
    pub fn operands(&self) -> [OperandSpec; 10] {
        let (s, v, n) = (self.sequences(), self.vocabulary, self.slots());
        let mut logits = OperandSpec::contiguous(DType::F32, &[s, v]);
        if self.logits.len() == v {
            logits.layout.strides[0] = 0;
        }
        let words = |rows: usize, width: usize| OperandSpec::contiguous(DType::U32, &[rows, width]);
        let list = |dtype| OperandSpec::contiguous(dtype, &[s]);
        [
            logits,
            words(n, Settings::WORDS),
            list(DType::U32),
            list(DType::I32),
            words(n, self.history.len() / s),
            words(n, v),
            words(s, self.outbox.len() / s),
            list(DType::U32),
            OperandSpec::contiguous(DType::F32, &[n, self.bias.len() / s]),
            list(DType::U32),
        ]
    }
}

/// Words of unused slots.
const UNUSED: u32 = 0xffff_ffff;

/// A batch in the device's memory.
pub struct OnDevice {
    arena: Arena,
    calls: Vec<refrain_kernels::Call>,
    batch: Batch,
}

impl OnDevice {
    pub fn new(batch: &Batch, traits: &Traits) -> OnDevice {
        let operands = batch.operands();
        let (calls, workspace) = sample::calls(traits, operands.each_ref()).expect("supported");
        let mut arena = Arena::new();
        arena.add(bytemuck::cast_slice(&batch.logits));
        arena.add(bytemuck::cast_slice(&batch.scatter(&batch.words(), UNUSED)));
        arena.add(bytemuck::cast_slice(&batch.tokens));
        arena.add(bytemuck::cast_slice(&batch.positions));
        arena.add(bytemuck::cast_slice(&batch.scatter(&batch.history, UNUSED)));
        arena.add(bytemuck::cast_slice(&batch.scatter(&batch.counts, UNUSED)));
        arena.add(bytemuck::cast_slice(&batch.outbox));
        arena.add(bytemuck::cast_slice(&batch.slot_numbers()));
        arena.add(bytemuck::cast_slice(
            &batch.scatter(&batch.bias, f32::from_bits(UNUSED)),
        ));
        arena.add(&vec![0xff; 4 * batch.sequences()]);
        arena.add(&vec![0xff; 4 * workspace.layout.count()]);
        OnDevice {
            arena,
            calls,
            batch: batch.clone(),
        }
    }

    /// Runs a step; returns the reported tokens.
    pub fn step(&self) -> Vec<u32> {
        self.arena.run(&self.calls);
        self.words(9)
    }

    /// Reads the batch back; fails if read-only operands were written.
    pub fn read(&self) -> Batch {
        assert_eq!(self.arena.read(0), bytemuck::cast_slice::<f32, u8>(&self.batch.logits));
        assert_eq!(self.batch.gather(&self.words(1)), self.batch.words());
        assert_eq!(self.words(7), self.batch.slot_numbers());
        let bias = self.batch.gather(&self.words(8));
        assert_eq!(bias, bytemuck::cast_slice::<f32, u32>(&self.batch.bias));
        Batch {
            tokens: self.words(2),
            positions: self.words(3).into_iter().map(|p| p as i32).collect(),
            history: self.batch.gather(&self.words(4)),
            counts: self.batch.gather(&self.words(5)),
            outbox: self.words(6),
            ..self.batch.clone()
        }
    }

    fn words(&self, operand: usize) -> Vec<u32> {
        bytemuck::pod_collect_to_vec(&self.arena.read(operand))
    }
}
