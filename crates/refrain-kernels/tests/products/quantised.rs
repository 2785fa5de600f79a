use crate::common::{self, Random, all_features, rows, tolerance};
use crate::support::{
    FLOATS, all_traits, device_traits, floats, in_turn, is_fixed, outcome, outcome_of, padded, stored, swapped,
};
use refrain_kernels::fragments::{FragmentOrder, MatrixCores};
use refrain_kernels::matmul::{self, WeightRows};
use refrain_kernels::projection::{self, Projection, Section, WeightStorage};
use refrain_kernels::quantised::{self, QuantFormat, QuantRows};
use refrain_kernels::tuning::{self, GroupCount, Tuning};
use refrain_kernels::{DType, OperandSpec, Traits, Values};
use refrain_testing::sample;

/// A random matrix in the resident layout.
pub struct RandomWeights {
    format: QuantFormat,
    shape: [usize; 2],
    parameters: DType,
    quants: Vec<u32>,
    scales: Values,
    biases: Values,
}

/// Random records of two-level scales with factors below 1/32.
fn records(random: &mut Random, record: usize, words: usize) -> Vec<u32> {
    (0..words)
        .map(|word| random.bits() as u32 & if word % record == 0 { 0xa7ff_a7ff } else { u32::MAX })
        .collect()
}

impl RandomWeights {
    pub fn random(format: QuantFormat, shape: [usize; 2], parameters: DType) -> RandomWeights {
        let mut random = Random::new(shape[0] as u64);
        let count = shape[0] * shape[1];
        let parameters = DType::of_scales(format, parameters);
        let mut parameter = || {
            if format.has_records() {
                return Values::U32(records(
                    &mut random,
                    format.scales(256),
                    shape[0] * format.scales(shape[1]),
                ));
            }
            if parameters == DType::U8 {
                let count = shape[0] * format.scales(shape[1]);
                return Values::U32((0..count).map(|_| 120 + random.bits() as u32 % 10).collect());
            }
            let values = floats(&mut random, count / format.group as usize);
            Values::F32(stored(&OperandSpec::contiguous(parameters, &[values.len()]), &values))
        };
        let (scales, biases) = (parameter(), parameter());
        let quants = (0..shape[0] * format.words(shape[1]))
            .map(|_| random.bits() as u32)
            .collect();
        RandomWeights {
            format,
            shape,
            parameters,
            quants,
            scales,
            biases,
        }
    }

    pub fn operands(&self) -> (OperandSpec, OperandSpec) {
        let [n, k] = self.shape;
        let quants = OperandSpec::contiguous(DType::U32, &[n, self.format.words(k)]);
        (
            quants,
            OperandSpec::contiguous(self.parameters, &[n, self.format.scales(k)]),
        )
    }

    /// Inputs in operand order.
    pub fn inputs<'a>(&self, quants: &'a OperandSpec, parameters: &'a OperandSpec) -> Vec<(&'a OperandSpec, Values)> {
        let mut inputs = vec![
            (quants, Values::U32(self.quants.clone())),
            (parameters, self.scales.clone()),
        ];
        if self.format.has_biases() {
            inputs.push((parameters, self.biases.clone()));
        }
        inputs
    }

    pub fn expand(&self, row: usize) -> Vec<f32> {
        let encode = |values: &Values| {
            let count = self.shape[0] * self.format.scales(self.shape[1]);
            let operand = OperandSpec::contiguous(self.parameters, &[count]);
            let mut bytes = vec![0; count * self.parameters.size()];
            values.store(self.parameters, &operand.layout, &mut bytes);
            bytes
        };
        let (quants, scales, biases) = (
            bytemuck::cast_slice(&self.quants),
            encode(&self.scales),
            encode(&self.biases),
        );
        let biases = self.format.has_biases().then_some(&biases[..]);
        let rows = QuantRows::new(self.format, self.shape, quants, self.parameters, &scales, biases)
            .expect("planes of the right size");
        let mut out = vec![0.0; self.shape[1]];
        rows.read(row, &mut out);
        out
    }

    pub fn check_product(&self, tuning: &Tuning, traits: &Traits, x: &OperandSpec, out: &OperandSpec) {
        let values = stored(x, &floats(&mut Random::new(5), x.layout.count()));
        self.check_product_of(values, tuning, traits, x, out);
    }

    fn check_product_of(&self, values: Vec<f32>, tuning: &Tuning, traits: &Traits, x: &OperandSpec, out: &OperandSpec) {
        let what = format!(
            "{} {:?} with {}, x {} {}, out {} {}, subgroups of {}",
            self.format, self.shape, self.parameters, x.dtype, x.layout, out.dtype, out.layout, traits.subgroup_size
        );
        let (quants, parameters) = self.operands();
        let biases = self.format.has_biases().then_some(&parameters);
        let made = quantised::matmul_tuned(tuning, traits, &self.format, x, &quants, &parameters, biases, out)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let w: Vec<f32> = (0..self.shape[0]).flat_map(|row| self.expand(row)).collect();
        let mut expected = vec![0.0; out.layout.count()];
        matmul::reference_nt(&values, &matmul::SliceRows::new(&w, self.shape[1]), &mut expected);
        let mut inputs = self.inputs(&quants, &parameters);
        inputs.insert(0, (x, Values::F32(values.clone())));
        let actual = outcome_of(&made, &inputs, out);
        let max = expected
            .iter()
            .fold(f32::MIN_POSITIVE, |max, value| max.max(value.abs()));
        let rounding = if is_fixed(&made.calls) {
            self.rounding(&values, &w) / max
        } else {
            0.0
        };
        let tolerance = tolerance(out.dtype) + rounding;
        common::assert_close(&what, &actual, &Values::F32(expected), tolerance);
    }

    /// Maximum error of products with rows of `w` if each value of a chunk of x is rounded to a step, of which the
    /// largest value has 127 · 256.
    fn rounding(&self, x: &[f32], w: &[f32]) -> f32 {
        let (columns, chunk) = (self.shape[1], if self.format.bits == 8 { 16 } else { 32 });
        let size = |values: &[f32]| values.iter().map(|value| value.abs()).sum::<f32>();
        let largest = |values: &[f32]| values.iter().fold(0f32, |max, value| max.max(value.abs()));
        let of = |(x, w): (&[f32], &[f32])| {
            let chunks = x.chunks(chunk).zip(w.chunks(chunk));
            chunks.map(|(x, w)| largest(x) / 32512.0 / 2.0 * size(w)).sum::<f32>()
        };
        let pairs = x.chunks(columns).flat_map(|x| w.chunks(columns).map(move |w| (x, w)));
        pairs.map(of).fold(0.0, f32::max)
    }
}

#[test]
fn products_match_in_every_format() {
    for traits in sample(all_traits(), 3) {
        let chosen = tuning::choose(&traits);
        let fixed = Tuning {
            fixed_point: true,
            ..*chosen
        };
        // Traits affect reductions, not formats: one format of each kind of zero is enough.
        let step = if traits == device_traits() { 1 } else { 3 };
        for (i, format) in sample(QuantFormat::ALL.into_iter().enumerate().step_by(step), 6) {
            // Whole groups of every size, and a number of words that is not a multiple of the lanes.
            let k = if format.has_records() { 768 } else { 384 };
            let weights = RandomWeights::random(format, [37, k], FLOATS[i % 3]);
            for (j, tokens) in [1, 3, 40].into_iter().enumerate() {
                let x = OperandSpec::contiguous(FLOATS[j], &[tokens, k]);
                let out = OperandSpec::contiguous(FLOATS[(i + j) % 3], &[tokens, 37]);
                weights.check_product(chosen, &traits, &x, &out);
                if tokens < 40 {
                    weights.check_product(&fixed, &traits, &x, &out);
                }
            }
        }
    }
}

#[test]
fn fixed_point_supports_all_magnitudes_and_propagates_nan() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    let fixed = Tuning {
        fixed_point: true,
        ..*tuning::choose(&traits)
    };
    let (x, out) = (
        OperandSpec::contiguous(DType::F32, &[1, 256]),
        OperandSpec::contiguous(DType::F32, &[1, 5]),
    );
    let ones = floats(&mut Random::new(6), 256);
    // Magnitudes vary within a chunk and between chunks; one chunk is zero, others are very small.
    let sizes = |i: usize| 10f32.powi(i as i32 % 7 - 3 + (i as i32 / 32 - 4) * 2);
    let wide: Vec<f32> = (0..256).map(|i| ones[i] * sizes(i)).collect();
    let gap: Vec<f32> = (0..256).map(|i| if i / 32 == 3 { 0.0 } else { ones[i] }).collect();
    let small: Vec<f32> = ones.iter().map(|one| one * 1e-29).collect();
    let mut none = ones;
    none[77] = f32::NAN;
    for (bits, group) in [(2, 128), (3, 64), (4, 32), (4, 64), (5, 32), (6, 64), (8, 32), (8, 128)] {
        let weights = RandomWeights::random(QuantFormat::mlx(bits, group), [5, 256], DType::F16);
        for values in [&wide, &gap, &small, &none] {
            weights.check_product_of(values.clone(), &fixed, &traits, &x, &out);
        }
    }
    // Several scales within a chunk.
    for format in [QuantFormat::Q2_K, QuantFormat::Q6_K] {
        let weights = RandomWeights::random(format, [5, 256], DType::F16);
        for values in [&wide, &gap, &small, &none] {
            weights.check_product_of(values.clone(), &fixed, &traits, &x, &out);
        }
    }
}

#[test]
fn products_support_leading_dimensions_padding_and_permutation() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    let tuning = tuning::choose(&traits);
    let weights = RandomWeights::random(QuantFormat::mlx(4, 64), [70, 192], DType::BF16);
    for tokens in [1, 2, 5, 8, 9] {
        let x = padded(DType::F16, &[tokens, 192]);
        let out = swapped(DType::F32, &[tokens, 70], 0, 1);
        weights.check_product(tuning, &traits, &x, &out);
        let across = swapped(DType::F32, &[tokens, 192], 0, 1);
        weights.check_product(tuning, &traits, &across, &out);
        let x = OperandSpec::contiguous(DType::F32, &[2, tokens, 192]);
        let out = OperandSpec::contiguous(DType::F32, &[2, tokens, 70]);
        weights.check_product(tuning, &traits, &x, &out);
    }
}

#[test]
fn every_tuning_row_computes_the_same_product() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let traits = device_traits();
    for tuning in rows(&traits) {
        for format in [QuantFormat::Q4_0, QuantFormat::mlx(8, 32)] {
            let weights = RandomWeights::random(format, [67, 2080], DType::F16);
            for tokens in [1, 4, 67] {
                let x = OperandSpec::contiguous(DType::F32, &[tokens, 2080]);
                let out = OperandSpec::contiguous(DType::F32, &[tokens, 67]);
                weights.check_product(tuning, &traits, &x, &out);
            }
        }
    }
}

#[test]
fn row_lookup_is_bit_exact_and_missing_rows_are_zero() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let parameters = |format| FLOATS.map(|dtype| (format, dtype));
    let cases = QuantFormat::ALL.into_iter().flat_map(parameters);
    for ((format, parameters), traits) in sample(in_turn(cases), 9) {
        for (dtype, signed) in [(DType::I32, true), (DType::U32, false)] {
            let weights = RandomWeights::random(format, [9, 256], parameters);
            let (quants, planes) = weights.operands();
            let biases = format.has_biases().then_some(&planes);
            let indices = OperandSpec::contiguous(dtype, &[5]);
            let out = padded(DType::F32, &[5, 256]);
            let call =
                quantised::take_rows(&traits, &format, &quants, &planes, biases, &indices, &out).expect("supported");
            let chosen = [8, 0, 9, 3, u32::MAX];
            let mut inputs = weights.inputs(&quants, &planes);
            inputs.push((
                &indices,
                if signed {
                    Values::I32(chosen.iter().map(|&i| i as i32).collect())
                } else {
                    Values::U32(chosen.to_vec())
                },
            ));
            let expected: Vec<f32> = chosen
                .iter()
                .flat_map(|&row| {
                    if row < 9 {
                        weights.expand(row as usize)
                    } else {
                        vec![0.0; 256]
                    }
                })
                .collect();
            let actual = outcome(&[call], &inputs, &out);
            assert_eq!(actual.f32(), expected, "{format} with {parameters}");
        }
    }
}

#[test]
fn row_lookup_rounds_to_16_bits() {
    let traits = Traits::minimal();
    let weights = RandomWeights::random(QuantFormat::mlx(8, 64), [4, 64], DType::F32);
    let (quants, planes) = weights.operands();
    let indices = OperandSpec::contiguous(DType::U32, &[2]);
    let out = padded(DType::BF16, &[2, 64]);
    let call = quantised::take_rows(
        &traits,
        &weights.format,
        &quants,
        &planes,
        Some(&planes),
        &indices,
        &out,
    )
    .expect("supported");
    let mut inputs = weights.inputs(&quants, &planes);
    inputs.push((&indices, Values::U32(vec![3, 1])));
    let rows = [weights.expand(3), weights.expand(1)].concat();
    assert_eq!(outcome(&[call], &inputs, &out).f32(), stored(&out, &rows));
}

#[test]
fn rejects_mismatched_operands_with_a_reason() {
    let traits = Traits::minimal();
    let weights = RandomWeights::random(QuantFormat::mlx(4, 64), [4, 128], DType::F16);
    let (quants, planes) = weights.operands();
    let x = OperandSpec::contiguous(DType::F32, &[2, 128]);
    let out = OperandSpec::contiguous(DType::F32, &[2, 4]);
    let refused = |x: &OperandSpec, biases: Option<&OperandSpec>, out: &OperandSpec| {
        quantised::matmul(&traits, &weights.format, x, &quants, &planes, biases, out).expect_err("unsupported")
    };
    assert!(refused(&x, None, &out).to_string().contains("needs biases"));
    let short = OperandSpec::contiguous(DType::F32, &[2, 64]);
    assert!(refused(&short, Some(&planes), &out).to_string().contains("128 columns"));
    let nothing = OperandSpec::contiguous(DType::F32, &[0, 128]);
    let empty = OperandSpec::contiguous(DType::F32, &[0, 4]);
    let calls = quantised::matmul(
        &traits,
        &weights.format,
        &nothing,
        &quants,
        &planes,
        Some(&planes),
        &empty,
    );
    assert!(calls.expect("nothing to do").calls.is_empty());
}

#[test]
fn e8m0_scales_work_with_and_without_8_bit_storage() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        let weights = RandomWeights::random(QuantFormat::MXFP4, [13, 96], DType::U8);
        for tokens in [1, 40] {
            let x = OperandSpec::contiguous(DType::F32, &[tokens, 96]);
            let out = OperandSpec::contiguous(DType::F32, &[tokens, 13]);
            weights.check_product(tuning::choose(&traits), &traits, &x, &out);
        }
    }
}

#[test]
fn every_tuning_row_supports_the_depths_of_models() {
    let traits = device_traits();
    for tuning in rows(&traits) {
        for format in QuantFormat::ALL {
            let (n, k) = (4096, 32_768);
            let quants = OperandSpec::contiguous(DType::U32, &[n, format.words(k)]);
            let parameters = DType::of_scales(format, DType::F16);
            let scales = OperandSpec::contiguous(parameters, &[n, format.scales(k)]);
            let biases = format.has_biases().then_some(&scales);
            for tokens in [1, 8, 512] {
                let x = OperandSpec::contiguous(DType::F32, &[tokens, k]);
                let out = OperandSpec::contiguous(DType::F32, &[tokens, n]);
                let made = quantised::matmul_tuned(tuning, &traits, &format, &x, &quants, &scales, biases, &out);
                assert!(made.is_ok(), "{format}, {tokens} tokens: {made:?}");
            }
        }
    }
}

/// Matrix cores would round x to f16, sums in fixed point to 16 bits of a chunk's largest value.
#[test]
fn products_with_scales_in_f32_use_no_matrix_cores_and_no_fixed_point() {
    let traits = Traits {
        matrix_cores: Some(MatrixCores::with_order(16, FragmentOrder::Quads)),
        subgroup_size: 32,
        vendor: 0x10de,
        ..all_features()
    };
    for format in QuantFormat::ALL {
        let quants = OperandSpec::contiguous(DType::U32, &[4096, format.words(1024)]);
        let all_parameters = [DType::F32, DType::F16].map(|dtype| DType::of_scales(format, dtype));
        for (tokens, parameters) in [1, 512]
            .into_iter()
            .flat_map(|tokens| all_parameters.map(|p| (tokens, p)))
        {
            let [x, out] = [1024, 4096].map(|columns| OperandSpec::contiguous(DType::F32, &[tokens, columns]));
            let scales = OperandSpec::contiguous(parameters, &[4096, format.scales(1024)]);
            let biases = format.has_biases().then_some(&scales);
            let operands: Vec<_> = [&x, &quants, &scales].into_iter().chain(biases).chain([&out]).collect();
            let section = Section::plain(WeightStorage::Quantised(format), DType::F32);
            let projection = Projection {
                norm: None,
                sections: vec![section],
            };
            let made = projection::calls(&traits, &projection, &operands).expect("supported");
            let is_packed = made.calls.iter().any(|call| call.kernel.name.contains(".pack"));
            let rounds = if tokens == 1 { is_fixed(&made.calls) } else { is_packed };
            assert_eq!(
                rounds,
                parameters != DType::F32,
                "{format}, {tokens} tokens, scales in {parameters}"
            );
        }
    }
}

#[test]
fn long_sums_are_complete() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    let k = 32_768;
    for bits in [2, 8] {
        let format = QuantFormat::ALL
            .into_iter()
            .find(|f| f.bits == bits && !f.has_records());
        let weights = RandomWeights::random(format.expect("there is one"), [12, k], DType::F16);
        for tokens in [8, 12] {
            let (x, out) = ([tokens, k], [tokens, 12]);
            let [x, out] = [&x, &out].map(|shape| OperandSpec::contiguous(DType::F32, shape));
            // With one workgroup and with several splits.
            for max_splits in [1, 4] {
                let mut tuning = *tuning::choose(&traits);
                tuning.tile.max_splits = max_splits;
                tuning.tile.target_groups = GroupCount::fixed(65_535);
                weights.check_product(&tuning, &traits, &x, &out);
            }
        }
    }
}
