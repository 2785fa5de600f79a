//! Compares the CPU executor's kernels with the plain references.

#[path = "../common/random.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod random;

use random::{Random, bytes_of};
use refrain_kernels::cpu::{self, FastRows};
use refrain_kernels::matmul::{SliceRows, StoredRows, WeightRows};
use refrain_kernels::quantised::{QuantFormat, QuantRows, Scales};
use refrain_kernels::{DType, Values, attention};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// The planes of a random quantised matrix.
struct RandomPlanes {
    format: QuantFormat,
    shape: [usize; 2],
    parameters: DType,
    quants: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl RandomPlanes {
    fn random(random: &mut Random, format: QuantFormat, shape: [usize; 2], parameters: DType) -> RandomPlanes {
        let [rows, columns] = shape;
        let parameters = DType::of_scales(format, parameters);
        let count = rows * format.scales(columns);
        let record = format.scales(256);
        let mut plane = || match parameters {
            // Records of words; the first word holds factors below 1/32.
            DType::U32 => (0..count)
                .flat_map(|word| {
                    (random.bits() as u32 & if word % record == 0 { 0xa7ff_a7ff } else { !0 }).to_le_bytes()
                })
                .collect(),
            DType::U8 => (0..count).map(|_| 112 + random.bits() as u8 % 12).collect(),
            _ => bytes_of(parameters, &random.values(parameters, count, 1.0)),
        };
        RandomPlanes {
            format,
            shape,
            parameters,
            scales: plane(),
            biases: if format.has_biases() { plane() } else { vec![] },
            quants: (0..rows * format.words(columns) * 4)
                .map(|_| random.bits() as u8)
                .collect(),
        }
    }

    fn rows(&self) -> QuantRows<'_> {
        let biases = self.format.has_biases().then_some(&self.biases[..]);
        QuantRows::new(
            self.format,
            self.shape,
            &self.quants,
            self.parameters,
            &self.scales,
            biases,
        )
        .expect("planes")
    }
}

/// Returns every format with each dtype of its scales.
fn formats() -> impl Iterator<Item = (QuantFormat, DType)> {
    let types = |format: QuantFormat| {
        if format.scales == Scales::Float {
            FLOATS.len()
        } else {
            1
        }
    };
    QuantFormat::ALL
        .into_iter()
        .flat_map(move |format| FLOATS[..types(format)].iter().map(move |&dtype| (format, dtype)))
}

fn floats(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| random.unit()).collect()
}

fn product(w: &dyn WeightRows, x: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / w.columns() * w.count()];
    w.multiply(x, 0..w.count(), &mut out);
    out
}

/// Returns the largest sum of the terms' magnitudes: the scale of rounding errors.
fn magnitude(w: &dyn WeightRows, x: &[f32]) -> f32 {
    let (mut row, mut largest) = (vec![0.0; w.columns()], 0.0f32);
    for r in 0..w.count() {
        w.read(r, &mut row);
        for x in x.chunks(w.columns()) {
            largest = largest.max(row.iter().zip(x).map(|(w, x)| (w * x).abs()).sum());
        }
    }
    largest
}

fn assert_close(actual: &[f32], expected: &[f32], magnitude: f32, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 2e-6 * magnitude, "{what}, value {i}: {a} is not {b}");
    }
}

/// Maximum number of vectors for which the order of summation does not depend on their number.
const MAX_SMALL_M: usize = 3;

/// Compares products of several vectors, of ranges of rows, and of each vector alone.
fn check(random: &mut Random, fast: &FastRows<'_>, plain: &dyn WeightRows, what: &str) {
    let (n, k) = (plain.count(), plain.columns());
    for m in [1, 2, MAX_SMALL_M, 4, 7] {
        let x = floats(random, m * k);
        let (actual, expected) = (product(fast, &x), product(plain, &x));
        assert_close(
            &actual,
            &expected,
            magnitude(plain, &x),
            &format!("{m} vectors and {what}"),
        );
        for (x, batched) in x.chunks(k).zip(actual.chunks(n)) {
            let (alone, what) = (product(fast, x), format!("one of {m} vectors and {what}"));
            if m <= MAX_SMALL_M || matches!(fast, FastRows::Stored(_)) {
                assert_eq!(alone, batched, "{what}");
            } else {
                assert_close(&alone, batched, magnitude(plain, x), &what);
            }
        }
        let part = n / 3..n - n / 4;
        let mut partial = vec![f32::NAN; m * part.len()];
        fast.multiply(&x, part.clone(), &mut partial);
        for (i, partial) in partial.chunks(part.len()).enumerate() {
            assert_eq!(partial, &actual[i * n..][part.clone()], "rows {part:?} of {what}");
        }
    }
}

#[test]
fn quantised_products_match_the_reference_for_every_format() {
    let mut random = Random::new(1);
    for (format, parameters) in formats() {
        let unit = if format.has_records() {
            256
        } else {
            format.group as usize
        };
        for [rows, groups] in [[1, 1], [2, 3], [37, 5], [300, 1]] {
            let planes = RandomPlanes::random(&mut random, format, [rows, groups * unit], parameters);
            let what = format!("{format} {:?} with {parameters}", planes.shape);
            check(&mut random, &FastRows::Quantised(planes.rows()), &planes.rows(), &what);
        }
    }
}

#[test]
fn quantised_products_with_unit_vectors_give_the_exact_weights() {
    let mut random = Random::new(2);
    for (format, parameters) in formats() {
        let planes = RandomPlanes::random(&mut random, format, [5, 256], parameters);
        let (fast, mut row) = (FastRows::Quantised(planes.rows()), vec![0.0; 256]);
        // Each vector picks one column.
        let mut picks = vec![0.0; 256 * 256];
        (0..256).for_each(|i| picks[i * 257] = 1.0);
        let columns = product(&fast, &picks);
        for r in 0..5 {
            fast.read(r, &mut row);
            let found: Vec<f32> = (0..256).map(|c| columns[c * 5 + r]).collect();
            // The product with an f32 scale may be rounded before the sum in one of them only.
            let exact = parameters != DType::F32 || !format.has_biases();
            let tolerance = if exact {
                0.0
            } else {
                f32::EPSILON * (1 << format.bits) as f32
            };
            for (c, (a, b)) in found.iter().zip(&row).enumerate() {
                let what = format!("{format} with {parameters}, row {r}, value {c}: {a} is not {b}");
                assert!((a - b).abs() <= tolerance, "{what}");
            }
        }
    }
}

#[test]
fn float_products_match_the_reference() {
    let mut random = Random::new(3);
    for dtype in FLOATS {
        for shape in [[1, 1], [3, 7], [37, 67], [5, 31], [64, 32], [500, 130]] {
            let [n, k] = shape;
            let bytes = bytes_of(dtype, &random.values(dtype, n * k, 1.0));
            let plain = StoredRows::new(dtype, n, k, &bytes).expect("long enough");
            let fast = FastRows::Stored(StoredRows::new(dtype, n, k, &bytes).expect("long enough"));
            check(&mut random, &fast, &plain, &format!("{dtype} {shape:?}"));
        }
    }
}

#[test]
fn empty_sums_are_zero_and_no_rows_give_no_output() {
    let fast = |n, k| FastRows::Stored(StoredRows::new(DType::F32, n, k, &[]).expect("long enough"));
    let mut out = [1.0; 6];
    fast(3, 0).multiply(&[], 0..3, &mut out);
    assert_eq!(out, [0.0; 6]);
    fast(0, 8).multiply(&[1.0; 16], 0..0, &mut []);
}

#[test]
fn nan_and_infinity_propagate() {
    let values = [f32::NAN, 1.0, f32::INFINITY, -1.0];
    let bytes = bytes_of(DType::F32, &Values::F32(values.to_vec()));
    let fast = FastRows::Stored(StoredRows::new(DType::F32, 2, 2, &bytes).expect("long enough"));
    let sums = product(&fast, &[1.0, 2.0]);
    assert!(sums[0].is_nan() && sums[1] == f32::INFINITY, "{sums:?}");
}

#[test]
fn paged_attention_matches_the_reference() {
    let mut random = Random::new(4);
    let sizes = [(1, 1, 8), (4, 2, 64), (6, 1, 72), (2, 2, 136), (16, 8, 128)].map(|(h, kvh, d)| (h, kvh, [d, d]));
    for (heads, kv_heads, dims) in sizes.into_iter().chain([(4, 4, [192, 128]), (6, 2, [8, 72])]) {
        for (window, with_sinks) in [(None, false), (Some(5), false), (None, true)] {
            let (pages_per_sequence, page_size, sequences) = (4, 8, 3);
            let slots = pages_per_sequence * page_size * sequences;
            let widths = dims.map(|dim| kv_heads * dim);
            let [keys, values] = widths.map(|width| floats(&mut random, slots * width));
            let positions = [0, 3, 4, 31, -1, 17, 99];
            let sinks = floats(&mut random, heads);
            let inputs = attention::AttentionInputs {
                q: &floats(&mut random, positions.len() * heads * dims[0]),
                keys: &SliceRows::new(&keys, widths[0]),
                values: &SliceRows::new(&values, widths[1]),
                positions: &positions,
                sequences: &[0, 1, 2, 0, 1, 9, 2],
                pages: &[3, 1, 0, 2, 11, 5, 7, 4, 8, 77, 10, 6],
                sinks: with_sinks.then_some(&sinks),
                heads,
                kv_heads,
                pages_per_sequence,
            };
            let params = attention::AttentionParams {
                scale: 0.3,
                page_size: page_size as u32,
                window,
                decode: false,
                blocks: [None; 2],
            };
            let expected = attention::reference(&inputs, &params);
            let actual = cpu::attention(&inputs, &keys, &values, &params);
            let what = format!("{heads} heads on {kv_heads} of {dims:?}, window {window:?}");
            assert_close(&actual, &expected, 1.0, &what);
        }
    }
}
