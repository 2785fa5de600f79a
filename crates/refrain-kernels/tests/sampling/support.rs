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

    /// Returns the operands' specs.
    pub fn operands(&self) -> [OperandSpec; 9] {
        let (s, v) = (self.sequences(), self.vocabulary);
        let mut logits = OperandSpec::contiguous(DType::F32, &[s, v]);
        if self.logits.len() == v {
            logits.layout.strides[0] = 0;
        }
        let words = |width: usize| OperandSpec::contiguous(DType::U32, &[s, width]);
        let list = |dtype| OperandSpec::contiguous(dtype, &[s]);
        [
            logits,
            words(Settings::WORDS),
            list(DType::U32),
            list(DType::I32),
            words(self.history.len() / s),
            words(v),
            words(self.outbox.len() / s),
            OperandSpec::contiguous(DType::F32, &[s, self.bias.len() / s]),
            list(DType::U32),
        ]
    }
}

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
        arena.add(bytemuck::cast_slice(&batch.words()));
        arena.add(bytemuck::cast_slice(&batch.tokens));
        arena.add(bytemuck::cast_slice(&batch.positions));
        arena.add(bytemuck::cast_slice(&batch.history));
        arena.add(bytemuck::cast_slice(&batch.counts));
        arena.add(bytemuck::cast_slice(&batch.outbox));
        arena.add(bytemuck::cast_slice(&batch.bias));
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
        self.words(8)
    }

    /// Reads the batch back; fails if read-only operands were written.
    pub fn read(&self) -> Batch {
        assert_eq!(self.arena.read(0), bytemuck::cast_slice::<f32, u8>(&self.batch.logits));
        assert_eq!(self.words(1), self.batch.words());
        assert_eq!(self.arena.read(7), bytemuck::cast_slice::<f32, u8>(&self.batch.bias));
        Batch {
            tokens: self.words(2),
            positions: self.words(3).into_iter().map(|p| p as i32).collect(),
            history: self.words(4),
            counts: self.words(5),
            outbox: self.words(6),
            ..self.batch.clone()
        }
    }

    fn words(&self, operand: usize) -> Vec<u32> {
        bytemuck::pod_collect_to_vec(&self.arena.read(operand))
    }
}
