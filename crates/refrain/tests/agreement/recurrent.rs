use refrain::fast;
use refrain::{Array, DType, Device, Error, QuantFormat, Quantised, eval};
use refrain_lm::{
    BatchTokens, causal_conv, causal_conv_results, causal_conv_state, expert_matmul, gated_delta, gated_delta_results,
    gated_delta_state,
};
use refrain_testing::sample;

use crate::check;
use crate::common::{Random, assert_silent, plain, vulkan};

/// Sizes of a recurrence: sequences, key heads and their width, value heads and their width, taps.
#[derive(Clone, Copy)]
struct Sizes {
    sequences: usize,
    key_heads: usize,
    key_dim: usize,
    heads: usize,
    value_dim: usize,
    taps: usize,
}

impl Sizes {
    fn random(random: &mut Random) -> Sizes {
        let key_heads = random.pick(&[1, 2]);
        Sizes {
            sequences: random.pick(&[1, 2, 3]),
            key_heads,
            key_dim: random.pick(&[3, 16, 40]),
            heads: key_heads * random.pick(&[1, 2, 3]),
            value_dim: random.pick(&[1, 16, 33]),
            taps: random.pick(&[2, 4, 5]),
        }
    }

    fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.heads * self.value_dim
    }
}

/// The inputs of one token.
struct Row {
    position: i32,
    sequence: u32,
    x: Vec<f32>,
    gates: Vec<f32>,
}

fn row(sizes: Sizes, position: i32, sequence: usize, random: &mut Random) -> Row {
    let mut floats = |n: usize| (0..n).map(|_| random.unit()).collect::<Vec<f32>>();
    Row {
        position,
        sequence: sequence as u32,
        x: floats(sizes.channels()),
        gates: floats(2 * sizes.heads).iter().map(|gate| 0.5 + 0.5 * gate).collect(),
    }
}

/// A convolution and a gated delta rule with their states, as a layer has them.
struct Layer {
    sizes: Sizes,
    weights: Array,
    window: Array,
    state: Array,
}

impl Layer {
    fn new(device: &Device, sizes: Sizes, random: &mut Random) -> Layer {
        let s = sizes;
        let state = |shape: &[usize]| Array::state(device, DType::F32, shape).expect("a small state");
        Layer {
            sizes,
            weights: random.dense(device, DType::F32, &[s.channels(), s.taps]),
            window: state(&[s.sequences, s.taps - 1, s.channels()]),
            state: state(&[s.sequences, s.heads, s.value_dim, s.key_dim]),
        }
    }

    /// The outputs `[T, H, E]` for `rows`, which update the states.
    fn step(&mut self, rows: &[Row]) -> Array {
        self.step_with(rows, &vec![true; rows.len()])
    }

    /// As [`Layer::step`], but only rows that are kept update the states: the first ones of each sequence. Their outputs
    /// are computed before, if not all are kept.
    fn step_with(&mut self, rows: &[Row], is_kept: &[bool]) -> Array {
        let (device, s, t) = (self.weights.device().clone(), self.sizes, rows.len());
        let positions: Vec<i32> = rows.iter().map(|row| row.position).collect();
        let sequences: Vec<u32> = rows.iter().map(|row| row.sequence).collect();
        let x: Vec<f32> = rows.iter().flat_map(|row| row.x.clone()).collect();
        let gates: Vec<f32> = rows.iter().flat_map(|row| row.gates.clone()).collect();
        let positions = Array::from_slice(&device, &positions, &[t]);
        let sequences = Array::from_slice(&device, &sequences, &[t]);
        let pages = Array::from_slice(&device, &vec![0u32; s.sequences], &[s.sequences, 1]);
        let tokens = BatchTokens {
            positions: &positions,
            sequences: &sequences,
            pages: &pages,
        };
        let x = Array::from_slice(&device, &x, &[t, s.channels()]);
        let all_kept = is_kept.iter().all(|kept| *kept);
        let kept = rows.iter().zip(is_kept);
        let kept: Vec<i32> = kept.map(|(row, kept)| if *kept { row.position } else { -1 }).collect();
        let kept = Array::from_slice(&device, &kept, &[t]);
        let conv_out = if all_kept {
            let (conv_out, window) = causal_conv(&x, &self.weights, tokens, &self.window);
            self.window = window;
            conv_out
        } else {
            causal_conv_results(&x, &self.weights, tokens, &self.window)
        };
        let (keys, values) = (s.key_heads * s.key_dim, s.heads * s.value_dim);
        let part = |start: usize, n: usize, heads: usize| {
            conv_out
                .slice(-1, start, start + n)
                .reshape(&[-1, heads as isize, (n / heads) as isize])
        };
        let unit = |x: Array| fast::rms_norm(&x, None, 1e-6) * (s.key_dim as f32).powf(-0.5);
        let (q, k) = (unit(part(0, keys, s.key_heads)), unit(part(keys, keys, s.key_heads)));
        let v = part(2 * keys, values, s.heads);
        let gates = Array::from_slice(&device, &gates, &[t, 2 * s.heads]);
        let [decay, beta] = gates.split(-1);
        if all_kept {
            let (answers, state) = gated_delta([&q, &k, &v], [&decay, &beta], tokens, &self.state);
            self.state = state;
            return answers;
        }
        let answers = gated_delta_results([&q, &k, &v], [&decay, &beta], tokens, &self.state);
        // As sampling does, what is kept depends on the answers.
        let kept = &kept + &(answers.sum(&[0, 1, 2]) * 0.0).astype(DType::I32);
        let places = [&kept, &sequences];
        self.window = causal_conv_state(&x, &self.weights, places, &self.window);
        self.state = gated_delta_state([&q, &k, &v], [&decay, &beta], places, &self.state);
        answers
    }
}

#[test]
fn recurrences_over_several_calls_agree() {
    for seed in sample(900..912, 6) {
        check(seed, |device, random| {
            let sizes = Sizes::random(random);
            let mut layer = Layer::new(device, sizes, random);
            let mut positions = vec![0; sizes.sequences];
            let mut results = vec![];
            for _ in 0..3 {
                let rows: Vec<Row> = (0..1 + random.below(6))
                    .map(|_| {
                        let sequence = random.below(sizes.sequences);
                        if random.one_in(5) {
                            return row(sizes, -1, sequence, random);
                        }
                        // Sometimes restarts a sequence.
                        let position = if random.one_in(6) { 0 } else { positions[sequence] };
                        positions[sequence] = position + 1;
                        row(sizes, position, sequence, random)
                    })
                    .collect();
                // Sometimes, only the first tokens of each sequence are kept.
                let first = random.below(rows.len());
                let is_kept: Vec<bool> = (0..rows.len()).map(|number| number < first).collect();
                if random.one_in(2) {
                    results.push(layer.step(&rows));
                } else {
                    results.push(layer.step_with(&rows, &is_kept));
                    for (row, _) in rows.iter().zip(&is_kept).filter(|(_, kept)| !**kept) {
                        // What follows need not continue the tokens that were dropped.
                        positions[row.sequence as usize] = row.position.max(0);
                    }
                }
                if random.one_in(2) {
                    eval(&results.iter().collect::<Vec<_>>()).expect("computed");
                }
            }
            results.extend([&layer.window * 1.0, &layer.state * 1.0]);
            results
        });
    }
}

#[test]
fn splitting_a_sequence_into_calls_changes_nothing() {
    for device in [&Device::cpu(), vulkan(), plain()] {
        let sizes = Sizes {
            sequences: 1,
            key_heads: 2,
            key_dim: 40,
            heads: 4,
            value_dim: 20,
            taps: 4,
        };
        let answers = |cut: usize| {
            let random = &mut Random::new(3);
            let mut layer = Layer::new(device, sizes, random);
            let rows: Vec<Row> = (0..24).map(|position| row(sizes, position, 0, random)).collect();
            let calls = rows
                .chunks(cut)
                .map(|rows| layer.step(rows).to_vec::<f32>().expect("computed"));
            let answers: Vec<f32> = calls.collect::<Vec<_>>().concat();
            (answers, layer.state.to_vec::<f32>().expect("the state"))
        };
        let whole = answers(24);
        for cut in [1, 5, 16] {
            assert_eq!(answers(cut), whole, "calls of {cut} tokens on {device:?}");
        }
    }
    assert_silent();
}

#[test]
fn products_with_experts_agree() {
    for seed in sample(920..932, 6) {
        check(seed, |device, random| {
            let (experts, rows, columns) = (1 + random.below(6), 1 + random.below(40), 32 * (1 + random.below(5)));
            let (tokens, used) = (1 + random.below(7), 1 + random.below(experts));
            let ids: Vec<u32> = (0..tokens * used).map(|_| random.below(experts) as u32).collect();
            let ids = Array::from_slice(device, &ids, &[tokens, used]);
            let shared = random.one_in(2);
            let x = random.viewed(device, DType::F32, &[tokens, if shared { 1 } else { used }, columns]);
            if random.one_in(2) {
                let dtype = random.pick(&[DType::F32, DType::F16, DType::BF16]);
                let weights = random.dense(device, dtype, &[experts * rows, columns]);
                return vec![expert_matmul(&x, &ids, &weights, rows)];
            }
            let format = QuantFormat::mlx(random.pick(&[4, 8]), 32);
            let words: Vec<u32> = (0..experts * rows * format.words(columns))
                .map(|_| random.bits() as u32)
                .collect();
            let shape = [experts * rows, columns / 32];
            let weights = Quantised {
                format,
                quants: Array::from_slice(device, &words, &[experts * rows, format.words(columns)]),
                scales: random.dense(device, DType::F16, &shape),
                biases: Some(random.dense(device, DType::F16, &shape)),
            };
            vec![expert_matmul(&x, &ids, &weights, rows)]
        });
    }
}

#[test]
fn states_are_updated_in_order_and_older_versions_become_stale() {
    for device in [&Device::cpu(), vulkan()] {
        let sizes = Sizes {
            sequences: 1,
            key_heads: 1,
            key_dim: 4,
            heads: 1,
            value_dim: 2,
            taps: 2,
        };
        let random = &mut Random::new(5);
        let mut layer = Layer::new(device, sizes, random);
        let before = layer.state.clone();
        let first = layer.step(&[row(sizes, 0, 0, random)]);
        let after_first = layer.state.clone();
        let second = layer.step(&[row(sizes, 1, 0, random)]);
        eval(&[&first, &second]).expect("both are computed");
        for older in [before, after_first] {
            let error = older.to_vec::<f32>().expect_err("the state went on");
            assert!(matches!(error, Error::StaleState { .. }), "{error}");
        }
        assert_eq!(layer.state.to_vec::<f32>().expect("the newest").len(), 8);
    }
}
