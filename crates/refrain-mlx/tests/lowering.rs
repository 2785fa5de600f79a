//! Programs of mlx-lm in half precision are lowered to few steps, and compute what their operations compute one by one.

#[path = "common/matrix.rs"]
mod matrix;

use std::sync::Mutex;

use matrix::{Matrix, exact, random, read};
use refrain_mlx::index::{self, Index};
use refrain_mlx::{DType, Value, compute_device, fast, ops};

const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
const WIDTH: usize = 32;
const HIDDEN: usize = 64;
/// Slots of the caches of two layers, as of one with a window and one without.
const SLOTS: [usize; 2] = [16, 24];

/// A layer as mlx-lm writes it, with its cache.
struct Layer {
    projections: [Matrix; 3],
    output: Matrix,
    mlp: [Matrix; 3],
    norms: [Value; 4],
    cache: [Value; 2],
    used: usize,
    /// Whether each result is computed before it is used, and so rounded.
    apart: bool,
}

impl Layer {
    fn new(dtype: DType, slots: usize) -> Layer {
        let matrix = |rows: usize, columns: usize, seed: usize| {
            Matrix::of(&random(&[rows, columns], seed).cast(dtype).expect("casts"))
        };
        let norm = |n: usize, seed: usize| {
            let weight = random(&[n], seed).cast(dtype).expect("casts");
            refrain_mlx::eval(std::slice::from_ref(&weight)).expect("computes");
            weight
        };
        let cache = || {
            let zeros = ops::zeros(&[1, KEY_HEADS as i64, slots as i64, WIDTH as i64], dtype).expect("makes");
            let zeros = ops::contiguous(&zeros).expect("copies");
            refrain_mlx::eval(std::slice::from_ref(&zeros)).expect("computes");
            zeros
        };
        Layer {
            projections: [
                matrix(HEADS * WIDTH, HIDDEN, 1),
                matrix(KEY_HEADS * WIDTH, HIDDEN, 2),
                matrix(KEY_HEADS * WIDTH, HIDDEN, 3),
            ],
            output: matrix(HIDDEN, HEADS * WIDTH, 4),
            mlp: [matrix(96, HIDDEN, 5), matrix(96, HIDDEN, 6), matrix(HIDDEN, 96, 7)],
            norms: [norm(HIDDEN, 8), norm(HIDDEN, 9), norm(WIDTH, 10), norm(WIDTH, 11)],
            cache: [cache(), cache()],
            used: 0,
            apart: false,
        }
    }

    /// The same layer in f32, whose results are computed one by one.
    fn reference(&self) -> Layer {
        Layer {
            projections: self.projections.each_ref().map(Matrix::exact),
            output: self.output.exact(),
            mlp: self.mlp.each_ref().map(Matrix::exact),
            norms: self.norms.each_ref().map(exact),
            cache: self.cache.each_ref().map(exact),
            used: 0,
            apart: true,
        }
    }

    fn step(&self, value: Value) -> Value {
        if self.apart {
            refrain_mlx::eval(std::slice::from_ref(&value)).expect("computes");
        }
        value
    }

    fn normed(&self, x: &Value, number: usize) -> Value {
        self.step(fast::rms_norm(x, Some(&self.norms[number]), 1e-6).expect("normalises"))
    }

    fn heads(&self, x: &Value, heads: usize, norm: Option<usize>) -> Value {
        let tokens = x.shape()[1] as i64;
        let split = ops::reshape(x, &[1, tokens, heads as i64, WIDTH as i64]).expect("fits");
        let normed = norm.map_or(split.clone(), |norm| self.normed(&split, norm));
        let heads = ops::transpose(&normed, Some(&[0, 2, 1, 3])).expect("permutes");
        match norm {
            None => heads,
            Some(_) => {
                let offset = fast::Offset::Int(self.used as i64);
                self.step(fast::rope(&heads, WIDTH as i64, false, Some(1e4), 1.0, &offset, None).expect("rotates"))
            }
        }
    }

    fn cached(&mut self, which: usize, new: &Value) -> Value {
        let slots = |first: usize, last: usize| {
            let (start, stop) = (Some(first as i64), Some(last as i64));
            let slice = Index::Slice {
                start,
                stop,
                step: None,
            };
            vec![Index::Ellipsis, slice, Index::ALL]
        };
        let last = self.used + new.shape()[2];
        self.cache[which] = index::set(&self.cache[which], &slots(self.used, last), &new.into()).expect("fits");
        let all = index::get(&self.cache[which], &slots(0, last)).expect("inside");
        self.step(all)
    }

    /// The layer's result for tokens `[1, T, HIDDEN]`.
    fn forward(&mut self, x: &Value) -> Value {
        let normed = self.normed(x, 0);
        let [q, k, v] = [0, 1, 2].map(|n| self.step(self.projections[n].times(&normed)));
        let (q, k, v) = (
            self.heads(&q, HEADS, Some(2)),
            self.heads(&k, KEY_HEADS, Some(3)),
            self.heads(&v, KEY_HEADS, None),
        );
        let (keys, values) = (self.cached(0, &k), self.cached(1, &v));
        self.used += x.shape()[1];
        let mask = if x.shape()[1] > 1 {
            fast::Mask::Causal
        } else {
            fast::Mask::None
        };
        let attended = fast::scaled_dot_product_attention(&q, &keys, &values, 0.2, &mask, None).expect("attends");
        let attended = ops::transpose(&self.step(attended), Some(&[0, 2, 1, 3])).expect("permutes");
        let joined = ops::reshape(&attended, &[1, x.shape()[1] as i64, -1]).expect("fits");
        let projected = self.step(self.output.times(&joined));
        let h = self.step(ops::add(&x.into(), &(&projected).into()).expect("adds"));
        let normed = self.normed(&h, 1);
        let [gate, up] = [0, 1].map(|n| self.step(self.mlp[n].times(&normed)));
        let sigmoid = self.step(ops::sigmoid(&(&gate).into()).expect("computes"));
        let silu = self.step(ops::multiply(&(&gate).into(), &sigmoid.into()).expect("multiplies"));
        let activated = self.step(ops::multiply(&silu.into(), &up.into()).expect("multiplies"));
        let down = self.step(self.mlp[2].times(&activated));
        self.step(ops::add(&(&h).into(), &(&down).into()).expect("adds"))
    }
}

/// The result of the layers one after the other.
fn forward(layers: &mut [Layer], x: &Value) -> Value {
    layers.iter_mut().fold(x.clone(), |x, layer| layer.forward(&x))
}

/// Tokens of a step, `[1, T, HIDDEN]`.
fn input(step: usize, tokens: usize, dtype: DType) -> Value {
    random(&[1, tokens, HIDDEN], 20 + step).cast(dtype).expect("casts")
}

/// Number of steps of the last program.
fn steps() -> usize {
    let explained = compute_device().explain();
    let line = explained.lines().rfind(|line| line.contains(" steps")).expect("a line");
    let number = line.split(" steps").next().and_then(|line| line.rsplit(' ').next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}

/// The log tells of the device's last evaluations, so one test at a time reads it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Computes tokens by layers, and compares the result with that of `apart`. Returns the number of steps.
fn check(layers: &mut [Layer], apart: &mut [Layer], x: &Value) -> usize {
    let dtype = x.dtype();
    let result = forward(layers, x);
    refrain_mlx::eval(std::slice::from_ref(&result)).expect("computes");
    let steps = steps();
    let expected = forward(apart, &exact(x));
    // Weights, inputs, the cache and results are rounded; nothing else is.
    let bound = match dtype {
        DType::F32 => 1e-4,
        DType::F16 => 6e-3,
        _ => 5e-2,
    };
    let scale = read(&expected).iter().fold(1.0f32, |most, x| most.max(x.abs()));
    for (found, expected) in read(&result).into_iter().zip(read(&expected)) {
        let error = (found - expected).abs() / scale;
        assert!(
            error <= bound,
            "{dtype}: {found} instead of {expected}, in {steps} steps"
        );
    }
    steps
}

#[test]
fn decoded_tokens_are_lowered_to_a_step_for_each_product_and_one_for_attention() {
    let _alone = ONE_AT_A_TIME.lock();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let mut layers = SLOTS.map(|slots| Layer::new(dtype, slots));
        let mut apart = layers.each_ref().map(Layer::reference);
        for (step, tokens) in [5, 1, 1, 1, 1].into_iter().enumerate() {
            let steps = check(&mut layers, &mut apart, &input(step, tokens, dtype));
            // Positions, sequences and frequencies, then five steps of each layer, and the result's rounding.
            assert!(step <= 2 || steps <= 15, "{dtype}: {}", compute_device().explain());
        }
    }
}

/// Queries and results of a prompt's attention are read and written where they are. A prompt that fills the cache
/// replaces it.
#[test]
fn attention_of_prompts_copies_nothing_but_keys_and_values() {
    let _alone = ONE_AT_A_TIME.lock();
    for (slots, prompt) in [(16, vec![12]), (16, vec![9, 7]), (12, vec![12])] {
        let mut layers = [Layer::new(DType::BF16, slots)];
        let mut apart = layers.each_ref().map(Layer::reference);
        for (step, &tokens) in prompt.iter().enumerate() {
            let steps = check(&mut layers, &mut apart, &input(step, tokens, DType::BF16));
            // 36, if each key head were a sequence of its own.
            let is_few = step > 0 || steps <= 31;
            assert!(
                is_few,
                "{steps} steps for {tokens} tokens: {}",
                compute_device().explain()
            );
        }
    }
}

/// Keys and values of a prompt that a new cache begins with are rounded for the cache and for attention in one step each,
/// if nothing else reads them before.
#[test]
fn keys_and_values_that_a_cache_begins_with_are_stored_twice_in_one_step() {
    let _alone = ONE_AT_A_TIME.lock();
    for tokens in [11, 12] {
        let mut layer = Layer::new(DType::BF16, 12);
        let mut apart = layer.reference();
        let x = input(0, tokens, DType::BF16);
        layer.cache = [(); 2].map(|()| {
            let shape = [1, KEY_HEADS as i64, 12, WIDTH as i64];
            ops::zeros(&shape, DType::BF16).expect("makes")
        });
        let result = layer.forward(&x);
        refrain_mlx::eval(&[result.clone(), layer.cache[0].clone(), layer.cache[1].clone()]).expect("computes");
        let steps = steps();
        let expected = apart.forward(&exact(&x));
        let found = [&result, &layer.cache[0], &layer.cache[1]];
        for (found, expected) in found.into_iter().zip([&expected, &apart.cache[0], &apart.cache[1]]) {
            let scale = read(expected).iter().fold(1.0f32, |most, x| most.max(x.abs()));
            for (found, expected) in read(found).into_iter().zip(read(expected)) {
                assert!(
                    (found - expected).abs() <= 5e-2 * scale,
                    "{found} instead of {expected}"
                );
            }
        }
        // Of keys and values three more, and where tokens are missing two for zeros.
        assert!(steps <= 22, "{steps} steps for {tokens} tokens");
    }
}
