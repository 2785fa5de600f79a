//! A test case: random operands, the results of the separate steps, and the comparison.

use refrain_kernels::attention::{self, DecodeParams, HeadPreparation};
use refrain_kernels::matmul::SliceRows;
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
        let state = |d: usize, random: &mut Random| {
            let operand = OperandSpec::contiguous(self.state, &[slots, self.kv_heads, d]);
            let values = stored(&operand, &floats(random, slots * self.kv_heads * d));
            (operand, Values::F32(values))
        };
        let mut operands = vec![state(d, &mut random), state(value_dim, &mut random)];
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

    /// Returns the expected result and states.
    fn expected(&self, operands: &[(OperandSpec, Values)]) -> (Vec<f32>, [Values; 2]) {
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
        let columns = [d, self.value_dim()].map(|d| self.kv_heads * d);
        for ((state, rows), columns) in states.iter_mut().zip([Values::F32(k), value(4)]).zip(columns) {
            write_rows::reference(&rows, &found, columns, self.state, state);
        }
        let sinks = self.params().sinks().map(value);
        let inputs = attention::AttentionInputs {
            q: &q,
            keys: &SliceRows::new(states[0].f32(), columns[0]),
            values: &SliceRows::new(states[1].f32(), columns[1]),
            positions: &self.positions,
            sequences: &sequences,
            pages: &pages,
            sinks: sinks.as_ref().map(Values::f32),
            heads: self.heads,
            kv_heads: self.kv_heads,
            pages_per_sequence: self.table,
        };
        let mut mixed = attention::reference(&inputs, &self.params().attention);
        if let Some(number) = self.params().gate() {
            let gate = value(number);
            mixed
                .iter_mut()
                .zip(gate.f32())
                .for_each(|(x, g)| *x /= 1.0 + (-g).exp());
        }
        (mixed, states)
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
        let (expected, states) = self.expected(&operands);
        let actual = common::values(&out, &blank, &arena.read(operands.len()));
        assert_close_or_nan(
            &actual,
            expected,
            if self.state == DType::F32 {
                DType::F32
            } else {
                DType::F16
            },
            &what,
        );
        for (number, state) in states.iter().enumerate() {
            let operand = &operands[number].0;
            let found = Values::load(operand.dtype, &operand.layout, &arena.read(number));
            assert_close(
                &found,
                state.f32().to_vec(),
                self.state,
                &format!("{what}, state {number}"),
            );
        }
        if made.workspace.is_some() {
            assert!(
                arena.read(operands.len() + 2).iter().all(|&b| b == 0),
                "{what}: counters"
            );
        }
    }
}
