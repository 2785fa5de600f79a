//! A test case: random operands, the results of the separate steps, and the comparison.

use refrain_kernels::attention::{self, BlockFormat, BlockRows, DecodeParams, HeadPreparation};
use refrain_kernels::matmul::{SliceRows, WeightRows};
use refrain_kernels::rms_norm::{self, Norm};
use refrain_kernels::tuning::Tuning;
use refrain_kernels::{DType, OperandSpec, Traits, Values, rope, slots, write_rows};

use crate::common::{self, Arena, Random};
use crate::support::{assert_close, assert_close_or_nan, encode, floats, stored};

/// Decode attention: sizes and fused steps.
#[derive(Clone)]
pub struct Case {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Head dimension of values, if it differs from that of keys.
    pub value_dim: Option<usize>,
    pub page_size: u32,
    /// Pages per sequence.
    pub table: usize,
    pub positions: Vec<i32>,
    pub window: Option<u32>,
    pub rope: Option<rope::RopeParams>,
    pub norms: [Option<Norm>; 2],
    pub state: DType,
    /// Block format of keys and values, in place of `state`.
    pub blocks: Option<BlockFormat>,
    /// Whether each head has an attention sink.
    pub sinks: bool,
    /// Whether each query head is followed by a gate.
    pub gated: bool,
    /// Whether some keys hold infinity, as those beyond the range of f16 do.
    pub infinite_keys: bool,
}

pub const NORM: Option<Norm> = Some(Norm {
    eps: 1e-6,
    weighted: true,
});

pub fn halves(dims: usize) -> Option<rope::RopeParams> {
    Some(rope::RopeParams {
        dims,
        interleaved: false,
        scale: 1.0,
    })
}

impl Case {
    /// Qwen3's structure with small sizes.
    pub fn typical() -> Case {
        Case {
            heads: 8,
            kv_heads: 2,
            head_dim: 32,
            value_dim: None,
            page_size: 16,
            table: 12,
            positions: vec![100],
            window: None,
            rope: halves(32),
            norms: [NORM, NORM],
            state: DType::F16,
            blocks: None,
            sinks: false,
            gated: false,
            infinite_keys: false,
        }
    }

    fn value_dim(&self) -> usize {
        self.value_dim.unwrap_or(self.head_dim)
    }

    pub fn params(&self) -> DecodeParams {
        DecodeParams {
            attention: attention::AttentionParams {
                scale: 1.0 / (self.head_dim as f32).sqrt(),
                page_size: self.page_size,
                window: self.window,
                decode: true,
                blocks: [self.blocks; 2],
            },
            heads: HeadPreparation {
                rope: self.rope,
                q_norm: self.norms[0],
                k_norm: self.norms[1],
            },
            sinks: self.sinks,
            gated: self.gated,
        }
    }

    /// A state of heads of `d` values, with its values.
    fn state(&self, slots: usize, d: usize, random: &mut Random) -> (OperandSpec, Values) {
        let values = floats(random, slots * self.kv_heads * d);
        if let Some(format) = self.blocks {
            let operand = OperandSpec::contiguous(DType::U32, &[slots, self.kv_heads, format.words(d)]);
            return (operand, Values::U32(format.encode(&values, d)));
        }
        let operand = OperandSpec::contiguous(self.state, &[slots, self.kv_heads, d]);
        let values = stored(&operand, &values);
        (operand, Values::F32(values))
    }

    /// The operands except the result, with their values. Queries, keys and values are side by side.
    pub fn operands(&self) -> Vec<(OperandSpec, Values)> {
        let mut random = Random::new(self.head_dim as u64);
        let (t, d, value_dim) = (self.positions.len(), self.head_dim, self.value_dim());
        let slots = t * self.table * self.page_size as usize;
        let width = (self.heads + self.kv_heads) * d + self.kv_heads * value_dim;
        let mut columns = 0;
        let mut part = |[heads, d]: [usize; 2], random: &mut Random| {
            let mut operand = OperandSpec::contiguous(DType::F32, &[t, heads, d]);
            operand.layout.strides[0] = width;
            operand.layout.offset = columns;
            columns += heads * d;
            (operand, Values::F32(floats(random, t * heads * d)))
        };
        let heads = [[self.heads, d], [self.kv_heads, d], [self.kv_heads, value_dim]];
        let mut parts = heads.map(|heads| part(heads, &mut random));
        let gate_shape = [t, self.heads, value_dim];
        let gate_values = floats(&mut random, gate_shape.iter().product());
        let mut gate = (
            OperandSpec::contiguous(DType::F32, &gate_shape),
            Values::F32(gate_values),
        );
        if self.gated {
            let both = d + value_dim;
            for (operand, start) in [(&mut parts[0].0, 0), (&mut gate.0, d)] {
                operand.layout.strides = vec![self.heads * both, both, 1].into();
                operand.layout.offset = start;
            }
        }
        let mut operands = vec![
            self.state(slots, d, &mut random),
            self.state(slots, value_dim, &mut random),
        ];
        if let (true, Values::F32(keys)) = (self.infinite_keys, &mut operands[0].1) {
            // One value of each fifth position's keys.
            let step = 5 * self.kv_heads * d;
            keys.iter_mut().step_by(step).for_each(|value| *value = f32::INFINITY);
        }
        operands.extend(parts);
        operands.push((
            OperandSpec::contiguous(DType::I32, &[t]),
            Values::I32(self.positions.clone()),
        ));
        let sequences = (0..t as u32).rev().collect();
        operands.push((OperandSpec::contiguous(DType::U32, &[t]), Values::U32(sequences)));
        // Every page belongs to one sequence; pages are unordered.
        let count = (t * self.table) as u32;
        let pages = (0..count).map(|i| (i * 7 + 3) % count).collect();
        assert!(!count.is_multiple_of(7), "a permutation");
        operands.push((
            OperandSpec::contiguous(DType::U32, &[t, self.table]),
            Values::U32(pages),
        ));
        if let Some(rope) = self.rope {
            let frequencies = (0..rope.dims / 2).map(|i| 10_000f32.powf(-(i as f32) / (rope.dims / 2) as f32));
            let operand = OperandSpec::contiguous(DType::F32, &[rope.dims / 2]);
            operands.push((operand, Values::F32(frequencies.collect())));
        }
        for norm in self.norms {
            if norm.is_some_and(|n| n.weighted) {
                operands.push((
                    OperandSpec::contiguous(DType::F32, &[d]),
                    Values::F32(floats(&mut random, d)),
                ));
            }
        }
        if self.sinks {
            // One sink outweighs all scores, one is negligible.
            let sinks = (0..self.heads).map(|head| [1.5, -200.0, 0.25, 300.0][head % 4]);
            operands.push((
                OperandSpec::contiguous(DType::BF16, &[self.heads]),
                Values::F32(sinks.collect()),
            ));
        }
        operands.extend(self.gated.then_some(gate));
        operands
    }

    /// Returns the queries that attention reads, and the expected states.
    fn prepared(&self, operands: &[(OperandSpec, Values)]) -> (Vec<f32>, [Values; 2]) {
        let d = self.head_dim;
        let value = |number: usize| operands[number].1.clone();
        let optional = self
            .params()
            .optional()
            .map(|number| number.map(|n| value(n).f32().to_vec()));
        let prepared = |number: usize, norm: Option<Norm>, norm_weight: &Option<Vec<f32>>| {
            let mut x = value(number).f32().to_vec();
            if let Some(norm) = norm {
                x = rms_norm::reference(&x, norm_weight.as_deref(), norm.eps, d);
            }
            match (self.rope, &optional[0]) {
                (Some(rope), Some(frequencies)) => rope::reference(&x, &self.positions, frequencies, d, &rope),
                _ => x,
            }
        };
        let q = prepared(2, self.norms[0], &optional[1]);
        let k = prepared(3, self.norms[1], &optional[2]);
        let (Values::U32(sequences), Values::U32(pages)) = (value(6), value(7)) else {
            unreachable!("unsigned");
        };
        let shape = &operands[7].0.layout.shape;
        let found = slots::reference(&self.positions, &sequences, &pages, shape, self.page_size as usize);
        let mut states = [value(0), value(1)];
        let dims = [d, self.value_dim()];
        for ((state, rows), dim) in states.iter_mut().zip([Values::F32(k), value(4)]).zip(dims) {
            match self.blocks {
                Some(format) => {
                    let rows = Values::U32(format.encode(rows.f32(), dim));
                    write_rows::reference(&rows, &found, self.kv_heads * format.words(dim), DType::U32, state);
                }
                None => write_rows::reference(&rows, &found, self.kv_heads * dim, self.state, state),
            }
        }
        (q, states)
    }

    /// Returns the values of a state of heads of `dim` values.
    fn decoded(&self, state: &Values, dim: usize) -> Vec<f32> {
        match (self.blocks, state) {
            (Some(format), Values::U32(words)) => {
                let rows = BlockRows::new(format, self.kv_heads, dim, words);
                let mut values = vec![0.0; rows.count() * rows.columns()];
                let slots = values.chunks_exact_mut(rows.columns());
                slots.enumerate().for_each(|(slot, out)| rows.read(slot, out));
                values
            }
            _ => state.f32().to_vec(),
        }
    }

    /// Returns the expected result for queries `q` over `states`.
    fn expected(&self, operands: &[(OperandSpec, Values)], q: &[f32], states: &[Vec<f32>; 2]) -> Vec<f32> {
        let value = |number: usize| operands[number].1.clone();
        let (Values::U32(sequences), Values::U32(pages)) = (value(6), value(7)) else {
            unreachable!("unsigned");
        };
        let columns = [self.head_dim, self.value_dim()].map(|d| self.kv_heads * d);
        let sinks = self.params().sinks().map(value);
        let inputs = attention::AttentionInputs {
            q,
            keys: &SliceRows::new(&states[0], columns[0]),
            values: &SliceRows::new(&states[1], columns[1]),
            positions: &self.positions,
            sequences: &sequences,
            pages: &pages,
            sinks: sinks.as_ref().map(Values::f32),
            heads: self.heads,
            kv_heads: self.kv_heads,
            pages_per_sequence: self.table,
        };
        let mut attn_out = attention::reference(&inputs, &self.params().attention);
        if let Some(number) = self.params().gate() {
            let gate = value(number);
            attn_out
                .iter_mut()
                .zip(gate.f32())
                .for_each(|(x, g)| *x /= 1.0 + (-g).exp());
        }
        attn_out
    }

    pub fn check(&self, tuning: &Tuning, traits: &Traits) {
        let what = format!(
            "{} heads of {} and {}, {} key heads, at {:?}, subgroups of {}",
            self.heads,
            self.head_dim,
            self.value_dim(),
            self.kv_heads,
            self.positions,
            traits.subgroup_size
        );
        let operands = self.operands();
        let out = OperandSpec::contiguous(DType::F32, &[self.positions.len(), self.heads, self.value_dim()]);
        let all: Vec<&OperandSpec> = operands.iter().map(|(o, _)| o).chain([&out]).collect();
        assert_eq!(attention::check_decode(traits, &all, &self.params()), Ok(()), "{what}");
        let made = attention::decode_tuned(tuning, traits, &all, &self.params()).expect("checked");
        let combines_separately = made.workspace.is_some() && !traits.tickets;
        assert_eq!(made.calls.len(), 1 + usize::from(combines_separately), "{what}");
        let mut arena = Arena::new();
        operands
            .iter()
            .for_each(|(operand, values)| arena.add(&encode(operand, values)));
        let blank = vec![0xff; out.layout.count() * 4];
        arena.add(&blank);
        if let Some(workspace) = &made.workspace {
            arena.add(&vec![0xff; workspace.layout.count() * 4]);
            arena.add(&vec![0; made.tickets * 4]);
        }
        // Runs twice: counters must be zero again, and writing the states again must not change them.
        arena.run(&[&made.calls[..], &made.calls].concat());
        let (q, states) = self.prepared(&operands);
        let found = [0, 1].map(|number| {
            let operand = &operands[number].0;
            Values::load(operand.dtype, &operand.layout, &arena.read(number))
        });
        let dims = [self.head_dim, self.value_dim()];
        let [states, found] = [states, found].map(|all| [0, 1].map(|i| self.decoded(&all[i], dims[i])));
        for (number, (expected, found)) in states.iter().zip(&found).enumerate() {
            let what = format!("{what}, state {number}");
            match self.blocks {
                Some(format) => assert_within_steps(format, found, expected, &what),
                None => assert_close(&Values::F32(found.clone()), expected.clone(), self.state, &what),
            }
        }
        // A quant that is rounded the other way counts as a state's error, not as attention's.
        let read = if self.blocks.is_some() { &found } else { &states };
        let actual = common::values(&out, &blank, &arena.read(operands.len()));
        let is_f32 = self.state == DType::F32 || self.blocks.is_some();
        let precision = if is_f32 { DType::F32 } else { DType::F16 };
        assert_close_or_nan(&actual, self.expected(&operands, &q, read), precision, &what);
        if made.workspace.is_some() {
            assert!(
                arena.read(operands.len() + 2).iter().all(|&b| b == 0),
                "{what}: counters"
            );
        }
    }
}

/// Checks that values differ by at most a quant, and few of them at all.
pub fn assert_within_steps(format: BlockFormat, found: &[f32], expected: &[f32], what: &str) {
    let mut differ = 0;
    for (found, expected) in found.chunks(32).zip(expected.chunks(32)) {
        let largest = expected.iter().fold(0f32, |a, b| a.max(b.abs()));
        let step = 1.01 * largest / format.extreme.abs() as f32;
        for (x, y) in found.iter().zip(expected) {
            assert!((x - y).abs() <= step, "{what}: {x} for {y}");
            differ += usize::from((x - y).abs() > 0.1 * step);
        }
    }
    assert!(
        differ * 50 <= expected.len(),
        "{what}: {differ} of {} differ",
        expected.len()
    );
}
