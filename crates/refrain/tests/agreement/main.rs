//! The Vulkan device against the CPU executor.

#[path = "../common/mod.rs"]
mod common;
mod conversions;
mod elementwise;
mod hybrids;
mod in_place;
mod integers;
mod library;
#[path = "../support/operations.rs"]
mod operations;
mod products;
mod programs;
#[path = "../passes/random.rs"]
mod random;
mod recurrent;
mod reductions;
mod regions;
mod results;
mod sampling;
mod shapes;
mod sorts;
mod states;
mod stepwise;
mod threads;
mod updates;

use common::{Random, assert_agree, assert_silent, contents, plain, vulkan};
use refrain::{Array, Device, eval};

/// Fails unless all results equal the first within `bound` times its largest absolute value.
fn assert_alike(what: &str, results: &[Vec<f32>], bound: f32) {
    let largest = results[0].iter().fold(0.0f32, |a, v| a.max(v.abs()));
    for (which, result) in results.iter().enumerate() {
        let pairs = result.iter().zip(&results[0]);
        let furthest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(
            furthest <= bound * largest,
            "{what}, way {which}: {furthest} of {largest}"
        );
    }
}

/// Builds the same arrays on the CPU executor, on the Vulkan device and, for every third seed, on the Vulkan device
/// without optional features. Fails unless they agree.
fn check(seed: u64, build: impl Fn(&Device, &mut Random) -> Vec<Array>) {
    let computed = |device: &Device| {
        let arrays = build(device, &mut Random::new(seed));
        eval(&arrays.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("seed {seed} on {device:?}: {e}"));
        arrays
            .iter()
            .map(|a| contents(a).expect("evaluated"))
            .collect::<Vec<_>>()
    };
    let expected = computed(&Device::cpu());
    let devices = [("Vulkan", vulkan()), ("plain Vulkan", plain())];
    for (name, device) in &devices[..if seed.is_multiple_of(3) { 2 } else { 1 }] {
        for (number, (found, expected)) in computed(device).iter().zip(&expected).enumerate() {
            assert_agree(found, expected, &format!("seed {seed}, array {number}, {name}"));
        }
    }
    assert_silent();
}
