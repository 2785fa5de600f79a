//! Gated DeltaNet as mlx-lm writes it is one step of a decoded token, and computes what its operations compute one by
//! one.

#[path = "common/matrix.rs"]
mod matrix;

use matrix::{Matrix, exact, random, read};
use refrain_mlx::index::{self, Index};
use refrain_mlx::{DType, Operand, Value, compute_device, fast, ops};

const KEY_HEADS: usize = 2;
const HEADS: usize = 4;
const KEY_DIM: usize = 32;
const VALUE_DIM: usize = 16;
const TAPS: usize = 4;
const KEYS: usize = KEY_HEADS * KEY_DIM;
const VALUES: usize = HEADS * VALUE_DIM;
const CHANNELS: usize = 2 * KEYS + VALUES;
const HIDDEN: usize = 64;

/// Random values of a dtype.
fn drawn(shape: &[usize], seed: usize, dtype: DType) -> Value {
    computed(random(shape, seed).cast(dtype).expect("casts"))
}

fn computed(value: Value) -> Value {
    refrain_mlx::eval(std::slice::from_ref(&value)).expect("computes");
    value
}

fn times(a: &Value, b: impl Into<Operand>) -> Value {
    ops::multiply(&a.into(), &b.into()).expect("multiplies")
}

/// A layer with its window of inputs and its state.
#[derive(Clone)]
struct Layer {
    /// Of queries, keys and values; of gates; of decay and beta; of the result.
    projections: [Matrix; 5],
    taps: Value,
    norm: Value,
    window: Value,
    state: Value,
    /// Whether each result is computed before it is used, and so rounded.
    apart: bool,
}

impl Layer {
    fn new(batch: usize, dtype: DType) -> Layer {
        let matrix =
            |rows: usize, columns: usize, seed: usize| Matrix::of(&times(&drawn(&[rows, columns], seed, dtype), 0.2));
        let zeros = |shape: &[usize], dtype: DType| {
            let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
            computed(ops::contiguous(&ops::zeros(&shape, dtype).expect("makes")).expect("copies"))
        };
        Layer {
            projections: [
                matrix(CHANNELS, HIDDEN, 1),
                matrix(VALUES, HIDDEN, 2),
                matrix(HEADS, HIDDEN, 3),
                matrix(HEADS, HIDDEN, 4),
                matrix(HIDDEN, VALUES, 5),
            ],
            taps: drawn(&[CHANNELS, TAPS, 1], 6, dtype),
            norm: drawn(&[VALUE_DIM], 7, dtype),
            window: zeros(&[batch, TAPS - 1, CHANNELS], dtype),
            state: zeros(&[batch, HEADS, VALUE_DIM, KEY_DIM], DType::F32),
            apart: false,
        }
    }

    /// The same layer in f32, whose results are computed one by one.
    fn reference(&self) -> Layer {
        Layer {
            projections: self.projections.each_ref().map(Matrix::exact),
            taps: exact(&self.taps),
            norm: exact(&self.norm),
            window: exact(&self.window),
            state: self.state.clone(),
            apart: true,
        }
    }

    fn step(&self, value: Value) -> Value {
        if self.apart { computed(value) } else { value }
    }

    fn projected(&self, which: usize, x: &Value) -> Value {
        self.step(self.projections[which].times(x))
    }

    fn activated(&self, x: &Value) -> Value {
        self.step(times(x, self.step(ops::sigmoid(&x.into()).expect("computes"))))
    }

    /// Queries or keys, normalised and scaled, or values, of the activated `[B, T, CHANNELS]`.
    fn heads(&self, x: &Value, first: usize, heads: usize, factor: Option<f64>) -> Value {
        let &[batch, tokens, _] = x.shape() else {
            panic!("three dimensions")
        };
        let each = if factor.is_some() { KEY_DIM } else { VALUE_DIM };
        let last = Index::Slice {
            start: Some(first as i64),
            stop: Some((first + heads * each) as i64),
            step: None,
        };
        let part = index::get(x, &[Index::Ellipsis, last]).expect("inside");
        let shape = [batch, tokens, heads, each].map(|n| n as i64);
        let part = self.step(ops::reshape(&part, &shape).expect("fits"));
        match factor {
            None => part,
            Some(factor) => {
                let normed = self.step(fast::rms_norm(&part, None, 1e-6).expect("normalises"));
                self.step(times(&normed, factor))
            }
        }
    }

    /// The layer's result for tokens `[B, T, HIDDEN]`.
    fn forward(&mut self, x: &Value) -> Value {
        let &[batch, tokens, _] = x.shape() else {
            panic!("three dimensions")
        };
        let [qkv, z, decay, beta] = [0, 1, 2, 3].map(|n| self.projected(n, x));
        let joined = self.step(ops::concatenate(&[self.window.clone(), qkv], Some(1)).expect("joins"));
        let end = Index::Slice {
            start: Some(1 - TAPS as i64),
            stop: None,
            step: None,
        };
        let end = index::get(&joined, &[Index::ALL, end, Index::ALL]).expect("inside");
        self.window = self.step(ops::contiguous(&end).expect("copies"));
        let convolved = ops::conv1d(&joined, &self.taps, 1, 0, 1, CHANNELS as i64).expect("convolves");
        let activated = self.activated(&self.step(convolved));
        let scale = (KEY_DIM as f64).powf(-0.5);
        let q = self.heads(&activated, 0, KEY_HEADS, Some(scale * scale));
        let k = self.heads(&activated, KEYS, KEY_HEADS, Some(scale));
        let v = self.heads(&activated, 2 * KEYS, HEADS, None);
        let gates = [decay, beta].map(|gate| self.step(ops::sigmoid(&(&gate).into()).expect("computes")));
        let (y, state) =
            fast::gated_delta_update([&q, &k, &v], &gates[0], &gates[1], Some(&self.state), None).expect("computes");
        self.state = self.step(state);
        let normed = self.step(fast::rms_norm(&self.step(y), Some(&self.norm), 1e-5).expect("normalises"));
        let shape = [batch, tokens, HEADS, VALUE_DIM].map(|n| n as i64);
        let z = ops::reshape(&z, &shape).and_then(|z| z.cast(DType::F32)).expect("fits");
        let gated = times(&self.activated(&z), normed.cast(DType::F32).expect("casts"));
        let gated = self.step(gated.cast(x.dtype()).expect("casts"));
        let flat = ops::reshape(&gated, &[batch as i64, tokens as i64, VALUES as i64]).expect("fits");
        self.projected(4, &flat)
    }
}

/// Number of steps of the last evaluation.
fn last_steps() -> usize {
    let explained = compute_device().explain();
    let line = explained.lines().rfind(|line| line.contains(" steps")).expect("a line");
    let before = line.split(" steps").next().and_then(|line| line.rsplit(' ').next());
    before.and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn a_decoded_token_of_a_delta_net_is_one_step_between_its_products() {
    // mlx-lm keeps a window that is computed with the token after it.
    for (batch, dtype, is_window_late) in [
        (1, DType::F32, false),
        (1, DType::F32, true),
        (1, DType::BF16, false),
        (1, DType::BF16, true),
        (1, DType::F16, true),
        (2, DType::F32, false),
        (2, DType::F16, true),
        (3, DType::BF16, false),
    ] {
        let what = format!("{batch} of {dtype}, late {is_window_late}");
        let mut layer = Layer::new(batch, dtype);
        let mut apart = layer.reference();
        for (step, tokens) in [5, 1, 1, 1, 2, 1].into_iter().enumerate() {
            let x = drawn(&[batch, tokens, HIDDEN], 20 + step, dtype);
            let result = layer.forward(&x);
            // The state is kept because the layer refers to it.
            let mut kept = vec![result];
            let expected = apart.forward(&exact(&x));
            let mut expected = vec![expected];
            if !is_window_late {
                kept.push(layer.window.clone());
                expected.push(apart.window.clone());
            }
            refrain_mlx::eval(&kept).expect("computes");
            let steps = last_steps();
            assert_close(&kept, &expected, dtype, &format!("{what}, step {step}"));
            let states = [&layer.state, &apart.state].map(std::slice::from_ref);
            assert!(layer.state.is_evaluated(), "{what}: the state at step {step}");
            assert_close(
                states[0],
                states[1],
                dtype,
                &format!("{what}, the state at step {step}"),
            );
            // Positions and sequences, the projections and gates, the delta net, the result and its rounding. Apart, they
            // are more than twenty.
            assert!(tokens > 2 || steps <= 12, "{what}: {steps} steps");
        }
        assert_close(&[layer.window], &[apart.window], dtype, &format!("{what}, the window"));
    }
}

/// Weights, inputs, the window and results are rounded to the dtype; nothing else is.
fn assert_close(found: &[Value], expected: &[Value], dtype: DType, what: &str) {
    let bound = match dtype {
        DType::F32 => 1e-4,
        DType::F16 => 6e-3,
        _ => 5e-2,
    };
    for (found, expected) in found.iter().zip(expected) {
        let expected = read(expected);
        let scale = expected.iter().fold(0.1f32, |most, x| most.max(x.abs()));
        for (found, expected) in read(found).into_iter().zip(expected) {
            let error = (found - expected).abs() / scale;
            assert!(error <= bound, "{what}: {found}, not {expected}");
        }
    }
}
