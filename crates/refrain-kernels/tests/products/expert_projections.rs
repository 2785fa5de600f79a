use refrain_kernels::matmul::{SliceRows, WeightRows};
use refrain_kernels::projection::{
    ExpertInputs, ExpertProjection, MAX_GEMV_TOKENS, Norm, Routed, Section, WeightStorage, expert_reference,
};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::{DType, OperandSpec, Traits, Unsupported, Values};
use refrain_testing::sample;

use crate::common::Random;
use crate::projections::epilogue;
use crate::quantised::RandomWeights as Quantised;
use crate::support::{
    FLOATS, assert_product_close, device_traits, floats, in_turn, in_turn_among, outcome_of, padded, stored,
    with_matrix_cores,
};

struct Case {
    /// Experts, rows per expert, tokens, experts per token, columns.
    sizes: [usize; 5],
    weights: WeightStorage,
    parts: usize,
    norm: Option<Norm>,
    routed: Routed,
    /// Types of x, of the scales or matrices, and of the experts' weights.
    dtypes: [DType; 3],
}

/// Adds an operand of random values; returns the values as stored.
fn add(given: &mut Vec<(OperandSpec, Values)>, operand: OperandSpec, random: &mut Random) -> Vec<f32> {
    let kept = stored(&operand, &floats(random, operand.layout.count()));
    given.push((operand, Values::F32(kept.clone())));
    kept
}

impl Case {
    fn check(&self, traits: &Traits) {
        let [experts, n, tokens, used, k] = self.sizes;
        let [x_dtype, _, routing_dtype] = self.dtypes;
        let mut random = Random::new((experts + n * tokens + k) as u64);
        // In every second case, other rows lie between those of consecutive experts.
        let between = n + (n + used) % 2 * 3;
        let rows = (experts - 1) * between + n;
        let apart = self.routed == Routed::PerExpert;
        let pairs = tokens * used;
        let (x_rows, results) = if apart { (tokens, pairs) } else { (pairs, tokens) };
        let mut given = Vec::new();
        let x = if apart {
            add(&mut given, padded(x_dtype, &[x_rows, k]), &mut random)
        } else {
            add(&mut given, OperandSpec::contiguous(x_dtype, &[x_rows, k]), &mut random)
        };
        let norm_weight = (self.norm.filter(|norm| norm.weighted))
            .map(|_| add(&mut given, OperandSpec::contiguous(DType::F16, &[k]), &mut random));
        let routing = (!apart).then(|| {
            let columns = if self.routed == Routed::Scored { experts } else { used };
            add(&mut given, padded(routing_dtype, &[tokens, columns]), &mut random)
        });
        let matrices: Vec<Vec<f32>> = (0..self.parts)
            .map(|_| self.matrix(&mut given, [rows, k], &mut random))
            .collect();
        let extra = padded(DType::F32, &[results, n]);
        let extras = vec![Values::F32(add(&mut given, extra, &mut random))];
        let chosen = self.expert_ids(&mut random);
        let operand = OperandSpec::contiguous(DType::U32, &[tokens, used]);
        given.insert(1, (operand, Values::U32(chosen.clone())));
        let out = if apart {
            OperandSpec::contiguous(DType::F32, &[results, n])
        } else {
            padded(DType::F32, &[results, n])
        };

        let projection = ExpertProjection {
            norm: self.norm,
            section: self.section(),
            routed: self.routed,
            between,
        };
        let what = format!("{projection}, {:?}, x {x_dtype}", self.sizes);
        let all: Vec<&OperandSpec> = given.iter().map(|(operand, _)| operand).chain([&out]).collect();
        assert_eq!(projection.check(traits, &all), Ok(()), "{what}");
        let made = projection.calls(traits, &all).expect("checked");
        let matrices: Vec<SliceRows<'_>> = matrices.iter().map(|w| SliceRows::new(w, k)).collect();
        let expected = expert_reference(
            &projection,
            &ExpertInputs {
                x: &x,
                experts: &chosen,
                used,
                norm_weight: norm_weight.as_deref(),
                routing: routing.as_deref(),
                parts: matrices.iter().map(|r| r as &dyn WeightRows).collect(),
                rows: n,
                extras,
            },
        );
        let inputs: Vec<(&OperandSpec, Values)> = given.iter().map(|(o, values)| (o, values.clone())).collect();
        let actual = outcome_of(&made, &inputs, &out);
        // Matrix cores use f16.
        let precision = if tokens > MAX_GEMV_TOKENS {
            DType::F16
        } else {
            DType::F32
        };
        assert_product_close(&made.calls, &actual, expected.f32().to_vec(), precision, &what);
    }

    /// Random experts, sometimes one out of range.
    fn expert_ids(&self, random: &mut Random) -> Vec<u32> {
        let [experts, _, tokens, used, _] = self.sizes;
        let mut chosen: Vec<u32> = (0..tokens * used).map(|_| random.below(experts) as u32).collect();
        if chosen.len() > 2 && self.routed != Routed::Scored {
            chosen[1] = experts as u32;
        }
        chosen
    }

    /// Adds the planes of a random matrix to the operands; returns its values.
    fn matrix(&self, given: &mut Vec<(OperandSpec, Values)>, shape: [usize; 2], random: &mut Random) -> Vec<f32> {
        let stored_as = self.dtypes[1];
        match self.weights {
            WeightStorage::Dense => add(given, OperandSpec::contiguous(stored_as, &shape), random),
            WeightStorage::Quantised(format) => {
                let weights = Quantised::random(format, shape, stored_as);
                let (quants, parameters) = weights.operands();
                let planes = weights.inputs(&quants, &parameters).into_iter();
                given.extend(planes.map(|(operand, plane)| (operand.clone(), plane)));
                (0..shape[0]).flat_map(|row| weights.expand(row)).collect()
            }
        }
    }

    fn section(&self) -> Section {
        Section {
            parts: vec![self.weights; self.parts],
            epilogue: epilogue(self.parts, DType::F32),
        }
    }
}

const NORM: Norm = Norm {
    eps: 1e-6,
    weighted: true,
};

#[test]
fn expert_projections_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for ((i, format), traits) in sample(in_turn(QuantFormat::ALL.into_iter().enumerate()), 12) {
        let k = if format.has_records() { 768 } else { 384 };
        let j = i % 3;
        Case {
            sizes: [5, 13 + 20 * j, 1 + i % 2, 2 + j, k],
            weights: WeightStorage::Quantised(format),
            parts: 1 + (i / 3) % 2,
            norm: (j == 0).then_some(NORM),
            routed: [Routed::PerExpert, Routed::Weighted, Routed::Scored][j],
            dtypes: [FLOATS[i % 3], FLOATS[(i + j) % 3], FLOATS[(i + 1) % 3]],
        }
        .check(&traits);
    }
    let ways = [
        (Routed::PerExpert, 96),
        (Routed::PerExpert, 71),
        (Routed::Weighted, 96),
        (Routed::Scored, 648),
    ];
    let cases = ways.into_iter().flat_map(|way| (0..3).map(move |i| (way, i)));
    for (((routed, k), i), traits) in sample(in_turn(cases), 12) {
        Case {
            sizes: [4, 9, 1 + i, 3, k],
            weights: WeightStorage::Dense,
            parts: 1 + i % 2,
            norm: (routed == Routed::PerExpert && i > 0).then_some(NORM),
            routed,
            dtypes: [FLOATS[i]; 3],
        }
        .check(&traits);
    }
}

/// Gate and up of many tokens, with the activation, in one pass over each expert's matrices.
#[test]
fn expert_projections_of_many_tokens_match_the_reference() {
    let cases = QuantFormat::ALL.into_iter().map(WeightStorage::Quantised);
    let cases = cases.chain([WeightStorage::Dense; 2]).enumerate();
    for ((i, weights), traits) in sample(in_turn_among(with_matrix_cores(), cases), 8) {
        let k = match weights {
            WeightStorage::Quantised(format) if format.has_records() => 768,
            WeightStorage::Quantised(_) => 384,
            WeightStorage::Dense => 80,
        };
        Case {
            sizes: [5, 13 + 20 * (i % 3), 9 + 11 * (i % 4), 2 + i % 2, k],
            weights,
            parts: 2 - i % 2,
            norm: None,
            routed: Routed::PerExpert,
            // Fragments of dense weights have 16 bits.
            dtypes: [FLOATS[i % 3], FLOATS[1 + i % 2], FLOATS[0]],
        }
        .check(&traits);
    }
}

/// Without matrix cores, and where results are added up, many tokens take other kernels.
#[test]
fn many_tokens_need_matrix_cores_for_expert_projections() {
    let f32s = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
    let f16s = |shape: &[usize]| OperandSpec::contiguous(DType::F16, shape);
    let ids = OperandSpec::contiguous(DType::U32, &[20, 2]);
    let check = |routed, traits: &Traits| {
        let projection = ExpertProjection {
            norm: None,
            section: Section::plain(WeightStorage::Dense, DType::F32),
            routed,
            between: 8,
        };
        let (x, weights, out) = (f32s(&[40, 16]), f32s(&[20, 2]), f32s(&[20, 8]));
        let (shared_x, each) = (f32s(&[20, 16]), f32s(&[40, 8]));
        let matrices = f16s(&[24, 16]);
        match routed {
            Routed::PerExpert => projection.check(traits, &[&shared_x, &ids, &matrices, &each]),
            _ => projection.check(traits, &[&x, &ids, &weights, &matrices, &out]),
        }
    };
    let without = Traits {
        matrix_cores: None,
        ..device_traits()
    };
    assert!(check(Routed::PerExpert, &without).is_err());
    for traits in with_matrix_cores() {
        assert_eq!(check(Routed::PerExpert, &traits), Ok(()));
        assert!(check(Routed::Weighted, &traits).is_err());
    }
}

#[test]
fn rejects_mismatched_expert_projections() {
    let check = |routed, k: usize, rows: usize, norm| {
        let projection = ExpertProjection {
            norm,
            section: Section::plain(WeightStorage::Dense, DType::F32),
            routed,
            between: 5,
        };
        let f32s = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
        let apart = routed == Routed::PerExpert;
        let mut operands = vec![
            f32s(&[if apart { 2 } else { 6 }, k]),
            OperandSpec::contiguous(DType::U32, &[2, 3]),
        ];
        operands.extend((!apart).then(|| f32s(&[2, 3])));
        operands.extend([f32s(&[rows, k]), f32s(&[if apart { 6 } else { 2 }, 5])]);
        projection.check(&device_traits(), &operands.iter().collect::<Vec<_>>())
    };
    let plain = Norm {
        eps: 1e-6,
        weighted: false,
    };
    assert_eq!(check(Routed::PerExpert, 7, 20, Some(plain)), Ok(()));
    assert_eq!(check(Routed::Weighted, 8, 20, None), Ok(()));
    for (routed, k, rows, norm) in [
        // The rows are not those of a whole number of experts.
        (Routed::PerExpert, 8, 21, None),
        // The rows of x are not a multiple of what is loaded at once.
        (Routed::Weighted, 7, 20, None),
        // Each of a token's experts would need its own norm.
        (Routed::Weighted, 8, 20, Some(plain)),
    ] {
        let error = check(routed, k, rows, norm);
        assert!(
            matches!(error, Err(Unsupported::Size { .. })),
            "{routed:?} {k} {rows}: {error:?}"
        );
    }
}
