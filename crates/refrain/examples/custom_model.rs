//! A custom model: a gated recurrent unit (Cho et al. 2014) over tokens. Its hidden state is on the device, and its
//! step is traced once and called for every token.
//!
//! ```sh
//! cargo run -p refrain --example custom_model
//! ```

use refrain::{Array, DType, Device, Error, Function};

const VOCABULARY: usize = 11;
const HIDDEN: usize = 16;
const TOKENS: [u32; 6] = [3, 1, 4, 1, 5, 9];

/// The matrices of a gated recurrent unit and its embedding, row-major: the contents of a model file.
struct SmallWeights {
    /// `[VOCABULARY, HIDDEN]`, also the output head.
    embedding: Vec<f32>,
    /// For update gate, reset gate and candidate: `[HIDDEN, HIDDEN]` matrices for the input and for the state.
    gates: [[Vec<f32>; 2]; 3],
}

impl SmallWeights {
    /// Synthetic weights: a different wave for each matrix.
    fn new() -> SmallWeights {
        let matrix = |rows: usize, seed: f32| {
            let wave = |i: usize| ((i as f32 + 1.0) * (seed + 0.37)).sin() * 0.4;
            (0..rows * HIDDEN).map(wave).collect()
        };
        let gate = |seed: f32| [matrix(HIDDEN, seed), matrix(HIDDEN, seed + 1.0)];
        SmallWeights {
            embedding: matrix(VOCABULARY, 9.0),
            gates: [gate(1.0), gate(3.0), gate(5.0)],
        }
    }
}

/// A weight `[rows, HIDDEN]`. A real model would read it from a file piece by piece.
fn load(device: &Device, values: &[f32]) -> Result<Array, Error> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let shape = [values.len() / HIDDEN, HIDDEN];
    Array::weight(device, DType::F32, &shape, &mut |offset, piece| {
        piece.copy_from_slice(&bytes[offset as usize..][..piece.len()]);
    })
}

/// The model with its step as a program: token in, logits out, the state updated in place.
struct SmallModel {
    step: Function,
    state: Array,
}

impl SmallModel {
    fn new(device: &Device, weights: &SmallWeights) -> Result<SmallModel, Error> {
        let [update, reset, candidate] = &weights.gates;
        let gate = |[of_input, of_state]: &[Vec<f32>; 2]| -> Result<[Array; 2], Error> {
            Ok([load(device, of_input)?.transpose(), load(device, of_state)?.transpose()])
        };
        let (update, reset, candidate) = (gate(update)?, gate(reset)?, gate(candidate)?);
        let embedding = load(device, &weights.embedding)?;
        let state = Array::state(device, DType::F32, &[1, HIDDEN])?;

        let token = Array::input(device, "token", DType::U32, &[1]);
        let x = embedding.take(&token, 0);
        let z = (x.matmul(&update[0]) + state.matmul(&update[1])).sigmoid();
        let r = (x.matmul(&reset[0]) + state.matmul(&reset[1])).sigmoid();
        let n = (x.matmul(&candidate[0]) + (&r * &state).matmul(&candidate[1])).tanh();
        let next = &state + &(&z * &(&n - &state));
        let logits = next.matmul(&embedding.transpose());

        // The next version of the state is an output, so that every call updates it.
        let slot = Array::from_slice(device, &[0i32], &[1]);
        let updated = state.write_rows(&next, &slot);
        let step = Function::trace(&[&logits, &updated])?;
        Ok(SmallModel { step, state })
    }

    /// Logits `[VOCABULARY]` for the next token, after all tokens so far and this one.
    fn forward(&self, token: u32) -> Result<Vec<f32>, Error> {
        self.step.call_bytes(&[("token", &token.to_le_bytes())])?;
        self.step.read(0)
    }
}

/// The same model in plain Rust: the hidden state and the logits after `tokens`.
fn reference(weights: &SmallWeights, tokens: &[u32]) -> (Vec<f32>, Vec<f32>) {
    let product = |m: &[f32], x: &[f32]| -> Vec<f32> {
        let dot = |row: &[f32]| row.iter().zip(x).map(|(a, b)| a * b).sum();
        m.chunks(HIDDEN).map(dot).collect()
    };
    let sum = |[of_input, of_state]: &[Vec<f32>; 2], x: &[f32], h: &[f32]| -> Vec<f32> {
        let (a, b) = (product(of_input, x), product(of_state, h));
        a.iter().zip(&b).map(|(a, b)| a + b).collect()
    };
    let sigmoid = |x: &f32| 1.0 / (1.0 + (-x).exp());
    let [update, reset, candidate] = &weights.gates;
    let mut h = vec![0.0; HIDDEN];
    for &token in tokens {
        let x = &weights.embedding[token as usize * HIDDEN..][..HIDDEN];
        let z: Vec<f32> = sum(update, x, &h).iter().map(sigmoid).collect();
        let r: Vec<f32> = sum(reset, x, &h).iter().map(sigmoid).collect();
        let reset_state: Vec<f32> = r.iter().zip(&h).map(|(r, h)| r * h).collect();
        let n = sum(candidate, x, &reset_state);
        h = (0..HIDDEN).map(|i| h[i] + z[i] * (n[i].tanh() - h[i])).collect();
    }
    let logits = product(&weights.embedding, &h);
    (h, logits)
}

fn main() -> Result<(), Error> {
    run(&Device::cpu())
}

/// Runs the model over some tokens on `device`, checks it against plain Rust and prints the logits.
///
/// # Errors
/// Returns errors of the evaluation.
pub fn run(device: &Device) -> Result<(), Error> {
    let weights = SmallWeights::new();
    let model = SmallModel::new(device, &weights)?;
    println!("one step on {}:\n{}", device.name(), model.step.graph());
    for (number, &token) in TOKENS.iter().enumerate() {
        let logits = model.forward(token)?;
        let (state, expected) = reference(&weights, &TOKENS[..=number]);
        assert_close(&logits, &expected);
        assert_close(&model.state.to_vec::<f32>()?, &state);
        println!("after {:?}: {logits:.3?}", &TOKENS[..=number]);
    }
    Ok(())
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close, "{found:?} is not {expected:?}");
}
