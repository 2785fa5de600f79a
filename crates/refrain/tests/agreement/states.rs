use refrain::{Array, DType, Device, Error, Function, eval};
use refrain_lm::{AttentionParams, BatchTokens, paged_attention};
use refrain_testing::sample;

use crate::check;
use crate::common::{Random, assert_agree, assert_silent, contents, plain, vulkan};

/// Sizes of a paged cache and of a batch of tokens.
#[derive(Clone, Copy, Debug)]
struct Extents {
    page_size: usize,
    pages: usize,
    sequences: usize,
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    value_dim: usize,
    window: Option<u32>,
}

impl Extents {
    fn random(random: &mut Random) -> Extents {
        Extents {
            page_size: random.pick(&[4, 16]),
            pages: random.pick(&[2, 3]),
            sequences: random.pick(&[1, 2]),
            kv_heads: random.pick(&[1, 2]),
            group: random.pick(&[1, 3]),
            head_dim: random.pick(&[2, 8, 64]),
            value_dim: random.pick(&[2, 8, 64]),
            window: random.pick(&[None, None, Some(5)]),
        }
    }

    fn slots(&self) -> usize {
        self.sequences * self.pages * self.page_size
    }
}

/// The pages of each sequence, and the next position of each.
struct Tables {
    extents: Extents,
    pages: Vec<u32>,
    lengths: Vec<usize>,
}

impl Tables {
    fn new(extents: Extents, random: &mut Random) -> Tables {
        let pages = random.order(extents.sequences * extents.pages);
        Tables {
            extents,
            pages: pages.into_iter().map(|p| p as u32).collect(),
            lengths: vec![0; extents.sequences],
        }
    }

    /// Positions, sequences and slots of `tokens` new tokens of random sequences. Padding, and tokens that no longer
    /// fit, have position −1 and no slot.
    fn next(&mut self, tokens: usize, random: &mut Random) -> (Vec<i32>, Vec<u32>, Vec<i32>) {
        let e = self.extents;
        let mut rows = (vec![], vec![], vec![]);
        for _ in 0..tokens {
            let sequence = random.below(e.sequences);
            let position = self.lengths[sequence];
            let fits = position < e.pages * e.page_size && !random.one_in(5);
            self.lengths[sequence] += usize::from(fits);
            let page = || self.pages[sequence * e.pages + position / e.page_size] as usize;
            rows.0.push(if fits { position as i32 } else { -1 });
            rows.1.push(sequence as u32);
            rows.2.push(if fits {
                (page() * e.page_size + position % e.page_size) as i32
            } else {
                -1
            });
        }
        rows
    }
}

/// Calls of 1 to 9 tokens that write a cache and attend over it, including what earlier calls wrote.
fn attended(device: &Device, random: &mut Random, dtype: DType) -> Vec<Array> {
    let e = Extents::random(random);
    let dims = [e.head_dim, e.value_dim];
    let [mut keys, mut values] =
        dims.map(|dim| Array::state(device, dtype, &[e.slots(), e.kv_heads, dim]).expect("a small state"));
    let mut tables = Tables::new(e, random);
    let pages = Array::from_slice(device, &tables.pages, &[e.sequences, e.pages]);
    let mut results = vec![];
    for _ in 0..4 {
        let t = 1 + random.below(9);
        let (positions, sequences, slots) = tables.next(t, random);
        let [positions, slots] = [positions, slots].map(|v| Array::from_slice(device, &v, &[t]));
        let sequences = Array::from_slice(device, &sequences, &[t]);
        let q = random.viewed(device, DType::F32, &[t, e.kv_heads * e.group, e.head_dim]);
        let [k, v] = dims.map(|dim| random.viewed(device, DType::F32, &[t, e.kv_heads, dim]));
        keys = keys.write_rows(&k, &slots);
        values = values.write_rows(&v, &slots);
        let tokens = BatchTokens {
            positions: &positions,
            sequences: &sequences,
            pages: &pages,
        };
        let params = AttentionParams {
            scale: 0.3,
            page_size: e.page_size as u32,
            window: e.window,
            decode: false,
            blocks: [None; 2],
        };
        let attn_out = paged_attention(&q, &keys, &values, tokens, params);
        results.push(attn_out);
        // Readers of an older version must be evaluated before the next update.
        if random.one_in(2) {
            eval(&results.iter().collect::<Vec<_>>()).expect("attention is computed");
        }
    }
    results.extend([&keys * 2.0, &values * 2.0]);
    results
}

#[test]
fn attention_over_an_updated_cache_agrees() {
    for seed in sample(800..824, 8) {
        check(seed, |device, random| {
            let dtype = random.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
            attended(device, random, dtype)
        });
    }
}

#[test]
fn a_traced_step_keeps_its_state_from_call_to_call() {
    for (number, device) in [vulkan(), plain()].into_iter().enumerate() {
        let sums = |device: &Device| {
            let state = Array::state(device, DType::F16, &[3, 5]).expect("a small state");
            let x = Array::input(device, "x", DType::F32, &[1, 5]);
            let slot = Array::input(device, "slot", DType::I32, &[1]);
            let before = &state * 2.0;
            let after = state.write_rows(&x, &slot);
            let step = Function::trace(&[&before.sum(&[0]), &(&after - 1.0)]).expect("the step lowers");
            let mut found = vec![];
            for call in 0..5 {
                let row: Vec<f32> = (0..5).map(|i| (call * 5 + i) as f32).collect();
                let slot = [call % 4];
                step.call_bytes(&[("x", bytemuck::cast_slice(&row)), ("slot", bytemuck::cast_slice(&slot))])
                    .expect("called");
                found.push((
                    step.read::<half::f16>(0).expect("sums"),
                    step.read::<half::f16>(1).expect("rows"),
                ));
            }
            found.push((state.to_vec().expect("the state"), vec![]));
            found
        };
        assert_eq!(sums(device), sums(&Device::cpu()), "device {number}");
    }
    assert_silent();
}

#[test]
fn rows_read_from_a_state_are_read_before_it_is_updated() {
    for device in [&Device::cpu(), vulkan(), plain()] {
        let n = 4000;
        let slots = |values: Vec<i32>| Array::from_slice(device, &values, &[values.len()]);
        let filled = Array::state(device, DType::F32, &[n, 2]).expect("a state");
        let rows = Array::arange(device, DType::F32, 2 * n).reshape(&[-1, 2]);
        let filled = filled.write_rows(&rows, &slots((0..n as i32).collect()));
        let shifted = filled.write_rows(&filled.slice(0, 0, n - 1), &slots((1..n as i32).collect()));
        let turned = shifted.write_rows(&shifted, &slots((0..n as i32).rev().collect()));
        let found = turned.to_vec::<f32>().expect("rows move");
        let expected: Vec<f32> = (0..n)
            .rev()
            .flat_map(|row| [0, 1].map(|c| (2 * row.saturating_sub(1) + c) as f32))
            .collect();
        assert_eq!(found, expected, "on {device:?}");
    }
}

#[test]
fn versions_of_a_state_are_readable_until_the_next_update() {
    for device in [&Device::cpu(), vulkan()] {
        let state = Array::state(device, DType::I32, &[4]).expect("a state");
        let write = |state: &Array, value: i32, slot: i32| {
            state.write_rows(
                &Array::from_slice(device, &[value], &[1]),
                &Array::from_slice(device, &[slot], &[1]),
            )
        };
        let first = write(&state, 7, 0);
        let seen = first.slice(0, 0, 2);
        assert_eq!(seen.to_vec::<i32>().expect("the newest version"), [7, 0]);
        let second = write(&first, 8, 1);
        let sum = second.sum(&[0]);
        assert_eq!(sum.to_vec::<i32>().expect("the newest version"), [15]);
        assert!(first.is_evaluated() && second.is_evaluated());
        let stale = |array: &Array| matches!(array.to_vec::<i32>(), Err(Error::StaleState { .. }));
        assert!(stale(&first) && stale(&state), "older versions are gone");
        assert!(stale(&seen) && stale(&(&seen + 1.0)), "and so are views of them");
        assert_eq!(second.to_vec::<i32>().expect("still the newest"), [7, 8, 0, 0]);
    }
}

#[test]
fn rows_are_rounded_alike_when_written_to_a_state() {
    let stored = |device: &Device| {
        let state = Array::state(device, DType::BF16, &[3, 2]).expect("a state");
        let rows = Array::from_slice(device, &[1.003_906_2f32, 3.3e38, -2.7, 1e-40], &[2, 2]);
        state.write_rows(&rows, &Array::from_slice(device, &[2, 0], &[2]))
    };
    let [found, expected] = [stored(vulkan()), stored(&Device::cpu())].map(|a| contents(&a).expect("written"));
    assert_agree(&found, &expected, "bf16 rows");
}
