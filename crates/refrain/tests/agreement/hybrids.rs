//! Delta nets and mixtures of experts of few tokens, with and without regions, on both executors.

use refrain::passes::LowerOptions;
use refrain::{Array, DType, Device, Function, fast};
use refrain_lm::{
    BatchTokens, causal_conv, causal_conv_results, causal_conv_state, expert_matmul, gated_delta, gated_delta_decode,
    gated_delta_results, gated_delta_state,
};
use refrain_testing::sample;

use crate::assert_alike;
use crate::common::{Random, assert_silent, vulkan};

const SEQUENCES: usize = 3;

fn stored(device: &Device, random: &mut Random, shape: &[usize]) -> Array {
    let array = random.dense(device, DType::F32, shape) * 0.5;
    array.eval().expect("a weight");
    array
}

fn unit(x: &Array, scale: f32) -> Array {
    fast::rms_norm(x, None, 1e-6) * scale
}

/// A gated delta net without its projections: the states, and the result with their next versions.
pub fn delta_net(device: &Device, random: &mut Random, tokens: usize) -> ([Array; 2], [Array; 3]) {
    delta_net_with(device, random, tokens, Updates::AtOnce)
}

/// The same for a token of one of several sequences, in a step that decodes.
pub fn decoded_delta_net(device: &Device, random: &mut Random) -> ([Array; 2], [Array; 3]) {
    delta_net_with(device, random, 1, Updates::OfDecode)
}

/// When a delta net's states are updated.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Updates {
    AtOnce,
    Deferred,
    /// At once, in a step that decodes.
    OfDecode,
}

/// As [`delta_net`]. With deferred updates, the states are updated after the result is computed, with the tokens whose
/// positions in the input `kept` are not negative.
fn delta_net_with(device: &Device, random: &mut Random, tokens: usize, updates: Updates) -> ([Array; 2], [Array; 3]) {
    let (key_heads, ratio) = (random.pick(&[1, 2]), random.pick(&[1, 2, 3]));
    let (key_dim, value_dim, taps) = (random.pick(&[8, 20]), random.pick(&[5, 16]), random.pick(&[2, 4]));
    let heads = key_heads * ratio;
    let (keys, values) = (key_heads * key_dim, heads * value_dim);
    let state = |shape: &[usize]| Array::state(device, DType::F32, shape).expect("a small state");
    let window = state(&[SEQUENCES, taps - 1, 2 * keys + values]);
    let memory = state(&[SEQUENCES, heads, value_dim, key_dim]);
    let all = Array::input(device, "x", DType::F32, &[tokens, 2 * keys + 2 * values + 2 * heads]);
    let input = |name: &str, dtype| Array::input(device, name, dtype, &[tokens]);
    let (positions, sequences) = (input("positions", DType::I32), input("sequences", DType::U32));
    let batch = BatchTokens {
        positions: &positions,
        sequences: &sequences,
        pages: &positions,
    };
    let mut next = 0;
    let [x, z, decay, beta] = [2 * keys + values, values, heads, heads].map(|n| {
        next += n;
        all.slice(1, next - n, next)
    });
    let weights = stored(device, random, &[2 * keys + values, taps]);
    let is_deferred = updates == Updates::Deferred;
    let (conv_out, next_window) = if is_deferred {
        (causal_conv_results(&x, &weights, batch, &window), None)
    } else {
        let (conv_out, next_window) = causal_conv(&x, &weights, batch, &window);
        (conv_out, Some(next_window))
    };
    let conv_out = conv_out.silu();
    let mut start = 0;
    let [q, k, v] = [(key_heads, key_dim), (key_heads, key_dim), (heads, value_dim)].map(|(heads, n)| {
        start += heads * n;
        let part = conv_out.slice(1, start - heads * n, start);
        part.reshape(&[-1, heads as isize, n as isize])
    });
    let scale = (key_dim as f32).powf(-0.5);
    let (q, k) = (unit(&q, scale) * 0.5, unit(&k, scale));
    let (decay, beta) = (decay.sigmoid(), beta.sigmoid());
    let (rows, gates) = ([&q, &k, &v], [&decay, &beta]);
    let (outputs, next_state) = if is_deferred {
        (gated_delta_results(rows, gates, batch, &memory), None)
    } else {
        let rule = match updates {
            Updates::OfDecode => gated_delta_decode,
            _ => gated_delta,
        };
        let (outputs, next_state) = rule(rows, gates, batch, &memory);
        (outputs, Some(next_state))
    };
    let weight = stored(device, random, &[value_dim]);
    let weight = if random.one_in(3) { None } else { Some(&weight) };
    let normed = fast::rms_norm(&outputs, weight, 1e-5).reshape(&[-1, values as isize]);
    let gated = normed * z.silu();
    let kept = input("kept", DType::I32);
    let places = [&kept, &sequences];
    let next_window = next_window.unwrap_or_else(|| causal_conv_state(&x, &weights, places, &window));
    let next_state = next_state.unwrap_or_else(|| gated_delta_state(rows, gates, places, &memory));
    ([window, memory], [gated, next_window, next_state])
}

/// A mixture of experts, weighted by a softmax over the scores of all experts or of the selected ones.
pub fn mixture(device: &Device, random: &mut Random, tokens: usize) -> Array {
    let (experts, used) = (random.pick(&[3, 6]), random.pick(&[1, 2]));
    let (hidden, inner) = (random.pick(&[32, 64]), random.pick(&[16, 32]));
    let x = Array::input(device, "x", DType::F32, &[tokens, hidden]);
    let normed = fast::rms_norm(&x, Some(&stored(device, random, &[hidden])), 1e-6);
    let scores = normed.matmul(&stored(device, random, &[experts, hidden]).transpose());
    let scores = if random.one_in(3) {
        scores.sigmoid()
    } else {
        scores.softmax()
    };
    let chosen = scores.top_k(used);
    let weights = scores.take_along(&chosen);
    let weights = if random.one_in(3) {
        weights
    } else {
        &weights / weights.sum(&[-1]).expand_dims(1)
    };
    let each = normed.expand_dims(1);
    let [gate, up] = if random.one_in(2) {
        let both = stored(device, random, &[experts * 2 * inner, hidden]);
        expert_matmul(&each, &chosen, &both, 2 * inner).split(-1)
    } else {
        [0, 1].map(|_| {
            let matrix = stored(device, random, &[experts * inner, hidden]);
            expert_matmul(&each, &chosen, &matrix, inner)
        })
    };
    let down = stored(device, random, &[experts * hidden, inner]);
    let routed = expert_matmul(&(gate.silu() * up), &chosen, &down, hidden) * weights.expand_dims(2);
    let y = routed.sum(&[1]);
    if random.one_in(3) { y } else { x + y * 0.5 }
}

#[test]
fn delta_nets_agree_with_and_without_regions_over_several_steps() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let kinds = [Updates::AtOnce, Updates::Deferred, Updates::OfDecode];
    for (seed, updates) in sample((740..748).flat_map(|seed| kinds.map(|kind| (seed, kind))), 8) {
        let is_deferred = updates == Updates::Deferred;
        let mut results: Vec<Vec<f32>> = Vec::new();
        for (on_gpu, device) in [(false, &Device::cpu()), (true, vulkan())] {
            for regions in [false, true] {
                let random = &mut Random::new(seed);
                // Steps that decode are fused with more tokens, too.
                let few = random.pick(&[1, 1, 4]);
                let tokens = if updates == Updates::OfDecode { 3 * few } else { few };
                let (states, outputs) = delta_net_with(device, random, tokens, updates);
                let options = LowerOptions {
                    regions,
                    ..LowerOptions::default()
                };
                let function = Function::trace_with(&outputs.each_ref(), options).expect("a step that lowers");
                let plan = function.plan().to_string();
                assert!(!plan.contains("delta_net") || regions, "{plan}");
                let fused = plan.matches("= delta_net").count();
                assert!(!(regions && on_gpu) || fused == 1 + usize::from(is_deferred), "{plan}");
                let columns = function
                    .plan()
                    .inputs
                    .iter()
                    .find(|i| i.name == "x")
                    .expect("an input")
                    .shape[1];
                let mut found = Vec::new();
                for step in 0..5 {
                    let x: Vec<f32> = (0..tokens * columns).map(|_| random.unit()).collect();
                    // The last token is sometimes padding. In steps that decode, all tokens of a sequence but one are.
                    let is_padding = |t: usize| match updates {
                        Updates::OfDecode => t / SEQUENCES != (step as usize + t % SEQUENCES) % (tokens / SEQUENCES),
                        _ => t == 3 && step % 2 == 1,
                    };
                    let position = |t: usize| if is_padding(t) { -1 } else { step };
                    let positions: Vec<i32> = (0..tokens).map(position).collect();
                    let sequences: Vec<u32> = (0..tokens).map(|t| (t % SEQUENCES) as u32).collect();
                    // The last tokens do not always count.
                    let mut kept = positions.clone();
                    kept[random.below(tokens + 1)..].fill(-1);
                    let mut arguments: Vec<(&str, &[u8])> = vec![
                        ("x", bytemuck::cast_slice(&x)),
                        ("positions", bytemuck::cast_slice(&positions)),
                        ("sequences", bytemuck::cast_slice(&sequences)),
                    ];
                    if is_deferred {
                        arguments.push(("kept", bytemuck::cast_slice(&kept)));
                    }
                    function.call_bytes(&arguments).expect("a call");
                    found.extend(function.read::<f32>(0).expect("the result"));
                }
                for state in states {
                    found.extend(state.to_vec::<f32>().expect("the state"));
                }
                results.push(found);
            }
        }
        assert_alike(
            &format!("a delta net of seed {seed}, updates {updates:?}"),
            &results,
            1e-4,
        );
    }
    assert_silent();
}

#[test]
fn mixtures_of_experts_agree_with_and_without_regions() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut joined = 0;
    // The last mixtures have more tokens than fused products take.
    for (seed, choices) in (760..775).map(|seed| (seed, if seed < 772 { [1, 3, 8] } else { [9, 24, 40] })) {
        let mut results: Vec<Vec<f32>> = Vec::new();
        for (on_gpu, device) in [(false, &Device::cpu()), (true, vulkan())] {
            for regions in [false, true] {
                let random = &mut Random::new(seed);
                let tokens = random.pick(&choices);
                let options = LowerOptions {
                    regions,
                    ..LowerOptions::default()
                };
                let y = mixture(device, random, tokens);
                let function = Function::trace_with(&[&y], options).expect("a layer that lowers");
                let plan = function.plan().to_string();
                assert!(!plan.contains("expert_projection") || regions, "{plan}");
                joined += plan.matches("expert_projection").count();
                let chooses = plan.contains("= router of rms_norm") && !plan.contains("= top_k");
                assert_eq!(chooses, regions && on_gpu && tokens <= 8, "{plan}");
                let columns = y.dim(1);
                let x: Vec<f32> = (0..tokens * columns).map(|_| random.unit()).collect();
                function.call_bytes(&[("x", bytemuck::cast_slice(&x))]).expect("a call");
                results.push(function.read(0).expect("the result"));
            }
        }
        assert_alike(&format!("a mixture of seed {seed}"), &results, 1e-4);
    }
    // Two in each of 24 plans.
    assert!(joined >= 40, "{joined} products");
    assert_silent();
}
