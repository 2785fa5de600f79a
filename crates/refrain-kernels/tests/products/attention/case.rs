//! A test case: random operands, the reference's results, and the comparison.

use refrain_kernels::attention::BlockRows;
use refrain_kernels::matmul::{SliceRows, WeightRows};
use refrain_kernels::tuning::Tuning;
use refrain_kernels::{DType, OperandSpec, Traits, Values, attention};

use crate::common::Random;
use crate::support::{assert_close_or_nan, floats, outcome_with, stored};

/// A paged state, sequences, and tokens at given positions.
#[derive(Clone)]
pub struct Case {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Head dimension of values, if it differs from that of keys.
    pub value_dim: Option<usize>,
    /// Types of q, keys, values and the result.
    pub dtypes: [DType; 4],
    pub positions: Vec<i32>,
    pub sequences: Vec<u32>,
    /// Pages of each sequence.
    pub pages: Vec<u32>,
    pub sequence_count: usize,
    pub slots: usize,
    /// Type of the attention sinks, if any.
    pub sinks: Option<DType>,
    pub params: attention::AttentionParams,
    /// Whether some keys hold infinity, as those beyond the range of f16 do.
    pub infinite_keys: bool,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            value_dim: None,
            dtypes: [DType::F32; 4],
            positions: vec![0, 5, 31, 17, -1, 30],
            sequences: vec![0, 0, 0, 1, 1, 1],
            // Pages of both sequences are interleaved and unordered.
            pages: vec![6, 0, 4, 2, 1, 7, 3, 5],
            sequence_count: 2,
            slots: 64,
            sinks: None,
            params: attention::AttentionParams {
                scale: 0.3,
                page_size: 8,
                window: None,
                decode: false,
                blocks: [None; 2],
            },
            infinite_keys: false,
        }
    }
}

impl Case {
    pub fn q(&self) -> OperandSpec {
        OperandSpec::contiguous(self.dtypes[0], &[self.positions.len(), self.heads, self.head_dim])
    }

    pub fn out(&self) -> OperandSpec {
        OperandSpec::contiguous(self.dtypes[3], &[self.positions.len(), self.heads, self.value_dim()])
    }

    fn value_dim(&self) -> usize {
        self.value_dim.unwrap_or(self.head_dim)
    }

    /// Returns the operand of keys or values and what is stored. `values` become those that are read back.
    fn in_blocks(&self, i: usize, floats: OperandSpec, values: &mut [f32], dim: usize) -> (OperandSpec, Values) {
        let Some(format) = self.params.blocks[i] else {
            return (floats, Values::F32(values.to_vec()));
        };
        let words = format.encode(values, dim);
        let rows = BlockRows::new(format, self.kv_heads, dim, &words);
        let slots = values.chunks_exact_mut(rows.columns());
        slots.enumerate().for_each(|(slot, out)| rows.read(slot, out));
        let shape = [self.slots, self.kv_heads, format.words(dim)];
        (OperandSpec::contiguous(DType::U32, &shape), Values::U32(words))
    }

    /// Compares with the reference. Returns whether matrix cores were used.
    pub fn check(&self, tuning: &Tuning, traits: &Traits) -> bool {
        self.check_into(tuning, traits, &self.q(), &self.out())
    }

    pub fn check_into(&self, tuning: &Tuning, traits: &Traits, q: &OperandSpec, out: &OperandSpec) -> bool {
        let tokens = self.positions.len();
        let what = format!(
            "{tokens} tokens, {} over {} heads of {} and {}, {:?}, {:?}, subgroups of {}",
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.value_dim(),
            self.dtypes,
            self.params,
            traits.subgroup_size
        );
        let [keys, values] = [(1, self.head_dim), (2, self.value_dim())]
            .map(|(i, dim)| OperandSpec::contiguous(self.dtypes[i], &[self.slots, self.kv_heads, dim]));
        let mut random = Random::new(self.slots as u64);
        let [q_values, mut key_values, mut value_values] =
            [q, &keys, &values].map(|o| stored(o, &floats(&mut random, o.layout.count())));
        if self.infinite_keys {
            // One value of each fifth position's keys.
            let step = 5 * self.kv_heads * self.head_dim;
            key_values
                .iter_mut()
                .step_by(step)
                .for_each(|value| *value = f32::INFINITY);
        }
        let (keys, stored_keys) = self.in_blocks(0, keys, &mut key_values, self.head_dim);
        let (values, stored_values) = self.in_blocks(1, values, &mut value_values, self.value_dim());
        let positions = OperandSpec::contiguous(DType::I32, &[tokens]);
        let sequences = OperandSpec::contiguous(DType::U32, &[tokens]);
        let pages = OperandSpec::contiguous(
            DType::U32,
            &[self.sequence_count, self.pages.len() / self.sequence_count],
        );
        let sinks = self.sinks.map(|dtype| OperandSpec::contiguous(dtype, &[self.heads]));
        // Some sinks outweigh all scores, some are negligible.
        let sink_values = (0..self.heads).map(|head| [1.5, -200.0, 0.25, 300.0][head % 4]);
        let sink_values = Vec::from_iter(sink_values);
        let operands = [q, &keys, &values, &positions, &sequences, &pages, out];
        let (calls, workspace) = attention::calls_tuned(tuning, traits, operands, sinks.as_ref(), &self.params)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let columns = [self.head_dim, self.value_dim()].map(|dim| self.kv_heads * dim);
        let expected = attention::reference(
            &attention::AttentionInputs {
                q: &q_values,
                keys: &SliceRows::new(&key_values, columns[0]),
                values: &SliceRows::new(&value_values, columns[1]),
                positions: &self.positions,
                sequences: &self.sequences,
                pages: &self.pages,
                sinks: sinks.as_ref().map(|_| &sink_values[..]),
                heads: self.heads,
                kv_heads: self.kv_heads,
                pages_per_sequence: self.pages.len() / self.sequence_count,
            },
            &self.params,
        );
        let mut inputs = vec![
            (q, Values::F32(q_values)),
            (&keys, stored_keys),
            (&values, stored_values),
            (&positions, Values::I32(self.positions.clone())),
            (&sequences, Values::U32(self.sequences.clone())),
            (&pages, Values::U32(self.pages.clone())),
        ];
        inputs.extend(sinks.as_ref().map(|sinks| (sinks, Values::F32(sink_values))));
        let actual = outcome_with(&calls, &inputs, out, workspace.as_ref());
        let on_matrix_cores = calls[0].kernel.name.starts_with("attention.matrix");
        // Matrix cores use f16.
        let halves = on_matrix_cores && out.dtype == DType::F32;
        assert_close_or_nan(&actual, expected, if halves { DType::F16 } else { out.dtype }, &what);
        on_matrix_cores
    }
}
