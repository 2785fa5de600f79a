//! Preparation of queries, keys and values for prefill attention, against its separate steps.

use refrain_kernels::attention::heads::{self, HeadParams};
use refrain_kernels::attention::{HeadPreparation, prepare};
use refrain_kernels::rms_norm::{self, Norm};
use refrain_kernels::{DType, Layout, OperandSpec, Traits, Values, rope, write_rows};
use refrain_testing::sample;

use crate::common::{self, Arena, Random};
use crate::support::{FLOATS, all_traits, assert_close, device_traits, encode, floats, in_turn, stored};

/// Sizes, steps, and strides.
#[derive(Clone, Debug)]
struct Case {
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    value_dim: usize,
    preparation: HeadPreparation,
    /// Types of the vectors, the states and the norms' weights.
    dtypes: [DType; 3],
    /// Padding between heads, in elements.
    apart: usize,
    /// Padding between tokens, in elements.
    between: usize,
}

const NORM: Option<Norm> = Some(Norm {
    eps: 1e-6,
    weighted: true,
});
const SLOTS: usize = 40;

impl Case {
    /// Qwen3's structure with small sizes.
    fn typical() -> Case {
        Case {
            tokens: 9,
            heads: 8,
            kv_heads: 2,
            head_dim: 64,
            value_dim: 64,
            preparation: HeadPreparation {
                rope: Some(rope::RopeParams::new(64)),
                q_norm: NORM,
                k_norm: NORM,
            },
            dtypes: [DType::F32, DType::F16, DType::F32],
            apart: 0,
            between: 0,
        }
    }

    fn random(random: &mut Random) -> Case {
        let mut pick = |count: usize| random.bits() as usize % count;
        let head_dim = [2, 6, 8, 24, 64, 72, 80, 128, 256, 254][pick(10)];
        let norm = |pick: &mut dyn FnMut(usize) -> usize| {
            let weighted = pick(3) > 0;
            (pick(3) > 0).then_some(Norm { eps: 1e-5, weighted })
        };
        let rope = (pick(4) > 0).then(|| rope::RopeParams {
            dims: [head_dim, head_dim / 4 * 2, head_dim / 2][pick(3)] / 2 * 2,
            interleaved: pick(2) == 0,
            scale: [1.0, 1.25][pick(2)],
        });
        Case {
            tokens: [1, 2, 7, 33][pick(4)],
            heads: 1 + pick(9),
            kv_heads: 1 + pick(5),
            head_dim,
            value_dim: [head_dim, head_dim, [16, 34, 128][pick(3)]][pick(3)],
            preparation: HeadPreparation {
                rope,
                q_norm: norm(&mut pick),
                k_norm: norm(&mut pick),
            },
            dtypes: [FLOATS[pick(3)], FLOATS[pick(3)], FLOATS[pick(3)]],
            apart: [0, 0, 8, 3][pick(4)],
            between: [0, 8, 5][pick(3)],
        }
    }

    /// Queries, keys or values, which are side by side in each token after `first` elements.
    fn vectors(&self, heads: usize, dim: usize, first: usize, width: usize) -> OperandSpec {
        OperandSpec {
            dtype: self.dtypes[0],
            layout: Layout {
                shape: vec![self.tokens, heads, dim].into(),
                strides: vec![width, dim + self.apart, 1].into(),
                offset: first,
            },
        }
    }

    /// The operands except the result, with their values.
    fn operands(&self, random: &mut Random) -> Vec<(OperandSpec, Values)> {
        let mut operands = Vec::new();
        let mut add = |operand: OperandSpec, random: &mut Random| {
            let values = stored(&operand, &floats(random, operand.layout.count()));
            operands.push((operand, Values::F32(values)));
        };
        let [vectors, state, weights] = self.dtypes;
        let dims = [self.head_dim, self.value_dim];
        for dim in dims {
            add(OperandSpec::contiguous(state, &[SLOTS, self.kv_heads, dim]), random);
        }
        let parts = [
            (self.heads, dims[0]),
            (self.kv_heads, dims[0]),
            (self.kv_heads, dims[1]),
        ];
        let sizes = parts.map(|(heads, dim)| heads * (dim + self.apart));
        let width = sizes.iter().sum::<usize>() + self.between;
        let mut first = 0;
        for ((heads, dim), size) in parts.into_iter().zip(sizes) {
            add(self.vectors(heads, dim, first, width), random);
            first += size;
        }
        assert_eq!(operands[2].0.dtype, vectors);
        // Slots are unordered; some are out of range.
        let slot = |t: usize| match t % 5 {
            1 => -1,
            3 => (SLOTS + t) as i32,
            _ => ((t * 7 + 3) % SLOTS) as i32,
        };
        let slots = (0..self.tokens).map(slot).collect();
        let position = |t: usize| if t % 5 == 1 { -1 } else { 1000 * t as i32 };
        let positions = (0..self.tokens).map(position).collect();
        for values in [slots, positions] {
            operands.push((OperandSpec::contiguous(DType::I32, &[self.tokens]), Values::I32(values)));
        }
        if let Some(rope) = self.preparation.rope {
            let pairs = rope.dims / 2;
            let frequencies = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32));
            operands.push((
                OperandSpec::contiguous(DType::F32, &[pairs]),
                Values::F32(frequencies.collect()),
            ));
        }
        for norm in [self.preparation.q_norm, self.preparation.k_norm] {
            if norm.is_some_and(|norm| norm.weighted) {
                let operand = OperandSpec::contiguous(weights, &[self.head_dim]);
                let values = stored(&operand, &floats(random, self.head_dim));
                operands.push((operand, Values::F32(values)));
            }
        }
        operands
    }

    /// Returns the expected queries and states.
    fn expected(&self, operands: &[(OperandSpec, Values)]) -> (Vec<f32>, [Values; 2]) {
        let value = |number: usize| operands[number].1.clone();
        let [frequencies, weights @ ..] = prepare::optional(&self.preparation);
        let (Values::I32(slots), Values::I32(positions)) = (value(5), value(6)) else {
            unreachable!("signed")
        };
        let made = |number: usize, norm: Option<Norm>, weight: Option<usize>| {
            let mut x = value(number).f32().to_vec();
            if let Some(norm) = norm {
                let weight = weight.map(value);
                x = rms_norm::reference(&x, weight.as_ref().map(Values::f32), norm.eps, self.head_dim);
            }
            match (self.preparation.rope, frequencies.map(value)) {
                (Some(rope), Some(frequencies)) => {
                    rope::reference(&x, &positions, frequencies.f32(), self.head_dim, &rope)
                }
                _ => x,
            }
        };
        let q = made(2, self.preparation.q_norm, weights[0]);
        let k = Values::F32(made(3, self.preparation.k_norm, weights[1]));
        let mut states = [value(0), value(1)];
        for ((state, rows), dim) in states
            .iter_mut()
            .zip([k, value(4)])
            .zip([self.head_dim, self.value_dim])
        {
            write_rows::reference(&rows, &slots, self.kv_heads * dim, self.dtypes[1], state);
        }
        (q, states)
    }

    fn check(&self, traits: &Traits, random: &mut Random) {
        let what = format!("{self:?}, subgroups of {}", traits.subgroup_size);
        let operands = self.operands(random);
        let out = OperandSpec::contiguous(DType::F32, &[self.tokens, self.heads, self.head_dim]);
        let all: Vec<&OperandSpec> = operands.iter().map(|(operand, _)| operand).chain([&out]).collect();
        let call = prepare::call(traits, &all, &self.preparation).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(prepare::check(traits, &all, &self.preparation), Ok(()), "{what}");
        let mut arena = Arena::new();
        let before: Vec<Vec<u8>> = operands.iter().map(|(o, values)| encode(o, values)).collect();
        before.iter().for_each(|bytes| arena.add(bytes));
        let blank = vec![0xff; out.layout.count() * 4];
        arena.add(&blank);
        arena.run(&[call]);
        for (i, before) in before.iter().enumerate().skip(2) {
            assert!(arena.read(i) == *before, "{what}: input {i} was written");
        }
        let (expected, states) = self.expected(&operands);
        let q = common::values(&out, &blank, &arena.read(operands.len()));
        assert_close(&q, expected, DType::F32, &what);
        for (number, state) in states.iter().enumerate() {
            let operand = &operands[number].0;
            let found = common::values(operand, &before[number], &arena.read(number));
            let what = format!("{what}, state {number}");
            assert_close(&found, state.f32().to_vec(), self.dtypes[1], &what);
        }
    }

    /// Checks the preparation of the queries alone: one result of the states' type, or, with more tokens, and a second one
    /// of f16 by heads.
    fn check_queries(&self, traits: &Traits, random: &mut Random) {
        for twice in [false, true] {
            let params = HeadParams {
                norm: self.preparation.q_norm,
                rope: self.preparation.rope,
                twice,
                bounded: twice,
            };
            let what = format!(
                "queries of {self:?}, twice {twice}, subgroups of {}",
                traits.subgroup_size
            );
            let operands = self.operands(random);
            let [frequencies, weight, _] = prepare::optional(&self.preparation);
            let positions = params.rope.map(|_| 6);
            let numbers = [Some(2), positions, frequencies, weight].into_iter().flatten();
            let inputs: Vec<&(OperandSpec, Values)> = numbers.map(|number| &operands[number]).collect();
            let outs = self.query_results(twice);
            let all: Vec<&OperandSpec> = inputs.iter().map(|(operand, _)| operand).chain(&outs).collect();
            let call = heads::call(traits, &all, &params);
            assert_eq!(heads::check(traits, &all, &params), Ok(()), "{what}");
            let mut arena = Arena::new();
            inputs.iter().for_each(|(o, values)| arena.add(&encode(o, values)));
            let blank = |out: &OperandSpec| vec![0xff; out.layout.count() * out.dtype.size()];
            outs.iter().for_each(|out| arena.add(&blank(out)));
            arena.run(&[call.unwrap_or_else(|error| panic!("{what}: {error}"))]);
            for (number, out) in outs.iter().enumerate() {
                let found = common::values(out, &blank(out), &arena.read(inputs.len() + number));
                let mut expected = self.expected(&operands).0;
                expected.resize(out.layout.count(), 0.0);
                assert_close(&found, expected, out.dtype, &what);
            }
        }
    }

    /// The results of the preparation of the queries alone.
    fn query_results(&self, twice: bool) -> Vec<OperandSpec> {
        let by_head = Layout::contiguous(&[self.heads, self.tokens, self.head_dim]).permute(&[1, 0, 2]);
        let mut outs = vec![OperandSpec::contiguous(
            self.dtypes[1],
            &[self.tokens, self.heads, self.head_dim],
        )];
        outs.extend(twice.then_some(OperandSpec {
            dtype: DType::F16,
            layout: by_head,
        }));
        outs
    }
}

#[test]
fn heads_stored_twice_are_bounded_in_f16_only() {
    let numbers = [1e6, -1e6, 65504.0, f32::NAN, f32::INFINITY, 1.0, -2.5, 65519.0];
    let x = OperandSpec::contiguous(DType::F32, &[1, 1, 8]);
    let outs = [DType::BF16, DType::F16].map(|dtype| OperandSpec::contiguous(dtype, &[1, 1, 8]));
    let params = HeadParams {
        norm: None,
        rope: None,
        twice: true,
        bounded: true,
    };
    for traits in sample(all_traits(), 3) {
        let call = heads::call(&traits, &[&x, &outs[0], &outs[1]], &params).expect("supported");
        let mut arena = Arena::new();
        arena.add(&encode(&x, &Values::F32(numbers.to_vec())));
        outs.iter().for_each(|_| arena.add(&[0; 16]));
        arena.run(&[call]);
        let [exact, bounded] = [1, 2].map(|number| common::values(&outs[number - 1], &[0; 16], &arena.read(number)));
        assert!(exact.f32()[0] > 9e5 && exact.f32()[4].is_infinite(), "{exact:?}");
        let found = bounded.f32();
        assert!(found[3].is_nan(), "{found:?}");
        assert_eq!(found[..3], [65504.0, -65504.0, 65504.0]);
        assert_eq!(found[4..], [65504.0, 1.0, -2.5, 65504.0]);
    }
}

#[test]
fn fused_preparation_matches_separate_steps() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (i, state) in FLOATS.into_iter().enumerate() {
            let case = Case {
                dtypes: [DType::F32, state, DType::F32],
                head_dim: [64, 128, 256][i],
                ..Case::typical()
            };
            case.check(&traits, &mut Random::new(i as u64));
            case.check_queries(&traits, &mut Random::new(i as u64));
        }
    }
}

#[test]
fn supports_even_head_dims_any_strides_and_optional_steps() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for (seed, traits) in sample(in_turn(0..60), 12) {
        let random = &mut Random::new(seed);
        let case = Case::random(random);
        case.check(&traits, random);
        case.check_queries(&traits, random);
    }
}

#[test]
fn workgroups_with_several_tokens_match_at_model_sizes() {
    if !refrain_testing::drawn(6) {
        return;
    }
    // Qwen3-0.6B, Llama 3.2 1B, Phi-2's partial rotation, a hybrid with gates between queries.
    let of = |rope: rope::RopeParams, norm| HeadPreparation {
        rope: Some(rope),
        q_norm: norm,
        k_norm: norm,
    };
    let halves = rope::RopeParams::new;
    for (heads, kv_heads, head_dim, preparation, apart) in [
        (16, 8, 128, of(halves(128), NORM), 0),
        (32, 8, 64, of(halves(64), None), 0),
        (32, 32, 80, of(halves(32), None), 0),
        (16, 2, 256, of(halves(64), NORM), 256),
    ] {
        let case = Case {
            tokens: 13,
            heads,
            kv_heads,
            head_dim,
            value_dim: head_dim,
            preparation,
            apart,
            ..Case::typical()
        };
        case.check(&device_traits(), &mut Random::new(heads as u64));
        case.check_queries(&device_traits(), &mut Random::new(heads as u64));
    }
}

#[test]
fn heads_alone_must_fit() {
    let traits = device_traits();
    let case = Case::typical();
    let params = HeadParams {
        norm: NORM,
        rope: Some(rope::RopeParams::new(64)),
        twice: false,
        bounded: false,
    };
    let all = [
        case.vectors(8, 64, 0, 512),
        OperandSpec::contiguous(DType::I32, &[9]),
        OperandSpec::contiguous(DType::F32, &[32]),
        OperandSpec::contiguous(DType::F32, &[64]),
        OperandSpec::contiguous(DType::F32, &[9, 8, 64]),
    ];
    let refused = |change: &dyn Fn(&mut Vec<OperandSpec>)| {
        let mut all = all.to_vec();
        change(&mut all);
        let all: Vec<&OperandSpec> = all.iter().collect();
        let error = heads::call(&traits, &all, &params).expect_err("it does not fit");
        assert_eq!(heads::check(&traits, &all, &params), Err(error.clone()));
        error.to_string()
    };
    let error = refused(&|all| all[4].layout.shape[1] = 3);
    assert!(error.contains("[9, 3, 64]"), "{error}");
    let error = refused(&|all| all[0].layout.strides[2] = 2);
    assert!(error.contains("operand 0"), "{error}");
    let error = refused(&|all| all[1].dtype = DType::U32);
    assert!(error.contains("u32"), "{error}");
    let error = refused(&|all| drop(all.remove(3)));
    assert!(error.contains("4 operands given, expected 5"), "{error}");
}

#[test]
fn rejects_mismatched_operands() {
    let traits = device_traits();
    let refused = |case: &Case, change: &dyn Fn(&mut Vec<OperandSpec>)| {
        let operands = case.operands(&mut Random::new(1));
        let out = OperandSpec::contiguous(DType::F32, &[case.tokens, case.heads, case.head_dim]);
        let mut all: Vec<OperandSpec> = operands.into_iter().map(|(operand, _)| operand).chain([out]).collect();
        change(&mut all);
        let all: Vec<&OperandSpec> = all.iter().collect();
        let error = prepare::call(&traits, &all, &case.preparation).expect_err("it does not fit");
        let checked = prepare::check(&traits, &all, &case.preparation);
        assert_eq!(checked, Err(error.clone()));
        error.to_string()
    };
    let case = Case::typical();
    let error = refused(&case, &|all| all[3].layout.shape[1] = 3);
    assert!(error.contains("[9, 3, 64], expected [9, 2, 64]"), "{error}");
    let error = refused(&case, &|all| all[4].layout.strides[2] = 2);
    assert!(error.contains("operand 4"), "{error}");
    let error = refused(&case, &|all| all[4].dtype = DType::F16);
    assert!(error.contains("f16"), "{error}");
    let error = refused(&case, &|all| drop(all.pop()));
    assert!(error.contains("10 operands given, expected 11"), "{error}");
    let turned = Case {
        preparation: HeadPreparation {
            rope: Some(rope::RopeParams::new(66)),
            ..case.preparation
        },
        ..case
    };
    let error = refused(&turned, &|_| {});
    assert!(error.contains("66 of 64 values"), "{error}");
}
