//! Attention of single tokens against its pieces, one after another.

use crate::common::{self, Arena, Random};
use crate::support::{FLOATS, all_traits, assert_close, device_traits, encode, floats, stored};
use refrain_kernels::attention::{self, DecodeParams};
use refrain_kernels::matmul::SliceRows;
use refrain_kernels::rms_norm::{self, Norm};
use refrain_kernels::tuning::{self, GroupCount, Tuning};
use refrain_kernels::{DType, OperandSpec, Traits, Values, rope, slots, write_rows};

#[derive(Clone)]
struct Case {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Values of a head of values, where they are not as many as those of a key.
    value_dim: Option<usize>,
    page_size: u32,
    /// Pages of each sequence.
    table: usize,
    positions: Vec<i32>,
    window: Option<u32>,
    rope: Option<rope::RopeParams>,
    norms: [Option<Norm>; 2],
    state: DType,
    /// Whether there is a sink for each head.
    sinks: bool,
    /// Whether there is a gate behind each head of the queries.
    gated: bool,
}

const NORM: Option<Norm> = Some(Norm {
    eps: 1e-6,
    weighted: true,
});

fn halves(dims: usize) -> Option<rope::RopeParams> {
    Some(rope::RopeParams {
        dims,
        interleaved: false,
        scale: 1.0,
    })
}

impl Case {
    /// Qwen3's shape, small.
    fn usual() -> Case {
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
        }
    }

    fn value_dim(&self) -> usize {
        self.value_dim.unwrap_or(self.head_dim)
    }

    fn params(&self) -> DecodeParams {
        DecodeParams {
            attention: attention::AttentionParams {
                scale: 1.0 / (self.head_dim as f32).sqrt(),
                page_size: self.page_size,
                window: self.window,
                decode: true,
            },
            rope: self.rope,
            q_norm: self.norms[0],
            k_norm: self.norms[1],
            sinks: self.sinks,
            gated: self.gated,
        }
    }

    /// The operands but the result, with their values: queries, keys and values side by side.
    fn operands(&self) -> Vec<(OperandSpec, Values)> {
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
        operands.extend(parts);
        operands.push((
            OperandSpec::contiguous(DType::I32, &[t]),
            Values::I32(self.positions.clone()),
        ));
        let sequences = (0..t as u32).rev().collect();
        operands.push((OperandSpec::contiguous(DType::U32, &[t]), Values::U32(sequences)));
        // Every page belongs to one sequence, in no order.
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
            // One that outweighs all scores, one that does not count.
            let sinks = (0..self.heads).map(|head| [1.5, -200.0, 0.25, 300.0][head % 4]);
            operands.push((
                OperandSpec::contiguous(DType::BF16, &[self.heads]),
                Values::F32(sinks.collect()),
            ));
        }
        operands.extend(self.gated.then_some(gate));
        operands
    }

    /// The result, and what the states hold afterwards.
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

    fn check(&self, tuning: &Tuning, traits: &Traits) {
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
        let joins_apart = made.workspace.is_some() && !traits.tickets;
        assert_eq!(made.calls.len(), 1 + usize::from(joins_apart), "{what}");
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
        // Twice: counters are as they were, and what is written again is the same.
        arena.run(&[&made.calls[..], &made.calls].concat());
        let (expected, states) = self.expected(&operands);
        let actual = common::values(&out, &blank, &arena.read(operands.len()));
        assert_close(
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

#[test]
fn queries_and_keys_are_made_kept_and_attended_with() {
    for traits in all_traits() {
        for (i, state) in FLOATS.into_iter().enumerate() {
            Case {
                state,
                // The first position, the end of a page, its start; padding beside others.
                positions: [vec![0], vec![31, 64, -1, 190], vec![100, 16]][i].clone(),
                ..Case::usual()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn pieces_may_be_missing() {
    let traits = device_traits();
    let unweighted = Some(Norm {
        eps: 1e-5,
        weighted: false,
    });
    let interleaved = rope::RopeParams {
        dims: 16,
        interleaved: true,
        scale: 1.25,
    };
    for (rope, norms) in [
        (None, [None, None]),
        (halves(32), [None, NORM]),
        (Some(interleaved), [unweighted, None]),
    ] {
        Case {
            rope,
            norms,
            window: Some(40),
            ..Case::usual()
        }
        .check(tuning::choose(&traits), &traits);
    }
}

#[test]
fn gates_lie_between_queries() {
    for traits in all_traits() {
        for positions in [vec![100], vec![31, -1, 190]] {
            Case {
                positions,
                gated: true,
                ..Case::usual()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn sinks_take_their_share_of_one_part_and_of_several() {
    for traits in all_traits() {
        for (enough_groups, gated) in [(1, false), (1 << 20, false), (1 << 20, true)] {
            let mut tuning = *tuning::choose(&traits);
            tuning.decode.enough_groups = GroupCount::fixed(enough_groups);
            Case {
                positions: vec![100, -1, 3],
                norms: [None, None],
                sinks: true,
                gated,
                ..Case::usual()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn heads_of_any_even_size_and_ratio() {
    for traits in [device_traits(), Traits::minimal()] {
        for (heads, kv_heads, head_dim) in [(3, 1, 2), (4, 4, 6), (6, 2, 80), (2, 1, 256), (5, 5, 128)] {
            Case {
                heads,
                kv_heads,
                head_dim,
                rope: halves(head_dim / 4 * 2),
                ..Case::usual()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn values_of_another_size_than_keys() {
    let mut random = Random::new(11);
    let dims = [(192, 128), (24, 16), (16, 40), (2, 34), (254, 2), (50, 256)];
    for traits in all_traits() {
        for (i, (head_dim, value_dim)) in dims.into_iter().enumerate() {
            let mut pick = |count: usize| random.bits() as usize % count;
            let mut tuning = *tuning::choose(&traits);
            tuning.decode.enough_groups = GroupCount::fixed([1, 1 << 20][pick(2)]);
            let kv_heads = 1 + pick(3);
            let norm = [None, NORM][pick(2)];
            let [sinks, gated] = [[false, false], [true, false], [false, true]][pick(3)];
            Case {
                heads: kv_heads * (1 + pick(4)),
                kv_heads,
                head_dim,
                value_dim: Some(value_dim),
                positions: [vec![0], vec![31, 64, -1, 190], vec![100, 16]][pick(3)].clone(),
                window: [None, Some(40)][pick(2)],
                rope: [None, halves(head_dim / 4 * 2)][pick(2)],
                norms: [norm, norm],
                state: FLOATS[i % 3],
                sinks,
                gated,
                ..Case::usual()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn every_tuning_row_joins_parts_of_long_contexts() {
    let traits = device_traits();
    for tuning in tuning::TABLE.iter().filter(|row| row.fits(&traits)) {
        for enough_groups in [1, 1 << 20] {
            let mut tuning = *tuning;
            tuning.decode.enough_groups = GroupCount::fixed(enough_groups);
            // Less than one tile, a full one, and more than there are parts.
            for (positions, table) in [(vec![tuning.decode.positions as i32 - 1, 5], 12), (vec![1999], 130)] {
                Case {
                    positions,
                    table,
                    ..Case::usual()
                }
                .check(&tuning, &traits);
            }
        }
    }
}

#[test]
fn workgroups_for_many_sequences_attend_as_those_for_few() {
    let traits = device_traits();
    for tuning in tuning::TABLE.iter().filter(|row| row.fits(&traits)) {
        let Some(mut many) = tuning.decode_many else { continue };
        many.enough_groups = GroupCount::fixed(1);
        let tuning = Tuning {
            decode_many: Some(many),
            ..*tuning
        };
        for (positions, table) in [(vec![many.positions as i32 - 1, 5], 12), (vec![300, 0, 1999], 130)] {
            Case {
                positions,
                table,
                ..Case::usual()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn a_second_call_joins_parts_where_tickets_are_not_promised() {
    let traits = Traits {
        tickets: false,
        ..device_traits()
    };
    let mut tuning = *tuning::choose(&traits);
    tuning.decode.enough_groups = GroupCount::fixed(1 << 20);
    for (positions, table) in [(vec![tuning.decode.positions as i32 - 1, 5], 12), (vec![1999], 130)] {
        Case {
            positions,
            table,
            ..Case::usual()
        }
        .check(&tuning, &traits);
    }
}

#[test]
fn contexts_too_long_for_loops_of_software_drivers_are_shared_by_more_parts() {
    let traits = device_traits();
    Case {
        page_size: 64,
        table: 800,
        positions: vec![51_150],
        ..Case::usual()
    }
    .check(tuning::choose(&traits), &traits);
}

#[test]
fn what_does_not_exist_is_neither_read_nor_written() {
    let traits = device_traits();
    let case = Case {
        positions: vec![500, 3],
        ..Case::usual()
    };
    // A position beyond the table is attended from as far as the table goes.
    case.check(tuning::choose(&traits), &traits);
    let operands = case.operands();
    let out = OperandSpec::contiguous(DType::F32, &[2, 8, 16]);
    let all: Vec<&OperandSpec> = operands.iter().map(|(o, _)| o).chain([&out]).collect();
    let error = attention::check_decode(&traits, &all, &case.params()).expect_err("heads of 16");
    assert!(error.to_string().contains("[2, 8, 32]"), "{error}");
    assert!(attention::check_decode(&traits, &all[..5], &case.params()).is_err());
}
