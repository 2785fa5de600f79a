use refrain::check::{self, Guarantee, Hazard, HazardKind, Origin, Timeline};
use refrain::plan::Plan;
use refrain::{Array, DType, Device};
use refrain_lm::sample::Settings;
use refrain_lm::{Sequences, sample};

use crate::common::Random;
use crate::common::decoder::{Decoder, Extents};
use crate::hazards::unordered;
use crate::random::program;
use crate::{array, null, planned};

fn random_plan(device: &Device, seed: u64) -> Plan {
    let outputs = program(device, &mut Random::new(seed));
    planned(&outputs.iter().collect::<Vec<_>>())
}

/// The pairs of steps of hazards within one run.
fn pairs(hazards: &[Hazard]) -> Vec<(usize, usize)> {
    let within = hazards.iter().filter(|hazard| !hazard.next_run);
    let mut found: Vec<(usize, usize)> = within
        .filter_map(|hazard| match (&hazard.first, &hazard.second) {
            (Origin::Step { number: first, .. }, Origin::Step { number: second, .. }) => Some((*first, *second)),
            _ => None,
        })
        .collect();
    found.sort();
    found
}

#[test]
fn all_conflicts_of_random_programs_are_ordered() {
    let (devices, mut proven) = ([null(), Device::cpu()], 0);
    for seed in 0..2000 {
        let plan = random_plan(&devices[usize::from(seed % 4 == 0)], seed);
        let proof = check::prove(&plan);
        assert_eq!(proof.unordered, [], "seed {seed}: {plan}");
        proven += proof.ordered;
    }
    assert!(proven > 100_000, "{proven} pairs");
}

#[test]
fn every_dropped_barrier_is_detected() {
    let (device, mut dropped) = (null(), 0);
    for seed in 0..60 {
        let plan = random_plan(&device, seed);
        let timeline = Timeline::of(&plan);
        for number in 0..timeline.barriers() {
            let proof = timeline.clone().without_barrier(number).prove();
            assert!(!proof.unordered.is_empty(), "seed {seed}: barrier {number} of {plan}");
            dropped += 1;
        }
    }
    assert!(dropped > 200, "{dropped} barriers were tried");
}

/// Compares the check with one on sets of single bytes, for schedules with random barriers.
#[test]
fn hazards_match_a_bytewise_check() {
    let mut found = 0;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut plan = random_plan(&Device::cpu(), seed);
        let dropped = plan.order.iter_mut().filter(|_| random.below(3) == 0);
        dropped.for_each(|dispatch| dispatch.after.clear());
        let mut expected = unordered(&plan);
        expected.sort();
        assert_eq!(pairs(&check::prove(&plan).unordered), expected, "seed {seed}: {plan}");
        found += expected.len();
    }
    assert!(found > 100, "{found} pairs");
}

#[test]
fn a_missing_barrier_is_reported_with_both_steps_and_the_bytes() {
    let x = array(&Device::cpu(), &[2, 4]);
    let y = x.softmax();
    let plan = planned(&[&y, &y.argmax()]);
    let proof = Timeline::of(&plan).without_barrier(0).prove();
    let text: Vec<String> = proof.unordered.iter().map(Hazard::to_string).collect();
    let expected = "step 1 (argmax) reads output0[0..32], which step 0 (softmax) writes, and nothing orders them";
    assert_eq!(text, [expected]);
}

#[test]
fn every_dropped_barrier_of_a_decoder_is_detected_also_within_a_step() {
    let extents = Extents {
        layers: 2,
        hidden: 64,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        inner: 128,
        vocabulary: 96,
    };
    let device = null();
    let logits = Decoder::new(&device, extents).step(1);
    let settings = Array::state(&device, DType::U32, &[1, Settings::WORDS]).unwrap();
    let sequences = Sequences::new(&device, 1, extents.vocabulary, 40, 8).unwrap();
    let (token, _) = sample(&logits, &settings, &sequences, None);
    let plan = planned(&[&token]);
    let timeline = Timeline::of(&plan);
    assert_eq!(timeline.prove().unordered, [], "{plan}");
    let mut inside = 0;
    for number in 0..timeline.barriers() {
        let hazards = timeline.clone().without_barrier(number).prove().unordered;
        assert!(!hazards.is_empty(), "barrier {number} of {plan}");
        let chained = |actor: &Origin| matches!(actor, Origin::Step { call: Some(_), .. });
        let within = |h: &Hazard| pairs(std::slice::from_ref(h)).iter().any(|(a, b)| a == b);
        inside += usize::from(
            hazards
                .iter()
                .any(|h| within(h) && chained(&h.first) && chained(&h.second)),
        );
    }
    assert_eq!(inside, 1, "sampling: {plan}");
}

/// A decode step: only states, one of them read by the host.
fn cycle(device: &Device) -> Plan {
    let state = Array::state(device, DType::F32, &[2, 4]).unwrap();
    let seen = Array::mapped_state(device, DType::F32, &[2, 4]).unwrap();
    let rows = Array::arange(device, DType::I32, 2);
    let next = state.softmax() + 1.0;
    planned(&[
        &state.write_rows(&next, &rows),
        &seen.write_rows(&next, &rows),
        &next.sum(&[0]),
    ])
}

#[test]
fn a_run_waits_for_the_previous_run() {
    for device in [null(), Device::cpu()] {
        let plan = cycle(&device);
        assert_eq!(check::prove(&plan).unordered, [], "{plan}");
        let hazards = Timeline::of(&plan).without(Guarantee::Head).prove().unordered;
        let from_run_to_run = |kind| {
            let steps = |actor: &Origin| matches!(actor, Origin::Step { .. });
            let across = |h: &&Hazard| h.next_run && steps(&h.first) && steps(&h.second);
            hazards.iter().filter(across).any(|hazard| hazard.kind == kind)
        };
        assert!(from_run_to_run(HazardKind::ReadAfterWrite), "{hazards:#?}");
        assert!(
            hazards.iter().any(|hazard| hazard.first == Origin::Inbox),
            "{hazards:#?}"
        );
        assert!(
            hazards.iter().any(|hazard| hazard.second == Origin::Results),
            "{hazards:#?}"
        );
    }
}

#[test]
fn host_accesses_depend_on_every_guarantee_of_the_runtime() {
    let device = null();
    let plan = cycle(&device);
    for guarantee in [Guarantee::HostBarrier, Guarantee::Wait] {
        let hazards = Timeline::of(&plan).without(guarantee).prove().unordered;
        assert!(!hazards.is_empty(), "{guarantee:?}");
        assert!(
            hazards.iter().all(|hazard| hazard.second == Origin::Host),
            "{hazards:#?}"
        );
    }
    let x = Array::input(&device, "x", DType::F32, &[4]);
    let plan = planned(&[&(&x + 1.0)]);
    assert_eq!(check::prove(&plan).unordered, []);
    let hazards = Timeline::of(&plan).without(Guarantee::Submit).prove().unordered;
    assert!(
        hazards
            .iter()
            .any(|hazard| hazard.first == Origin::Arguments && hazard.kind == HazardKind::ReadAfterWrite)
    );
    let hazards = Timeline::of(&plan).without(Guarantee::Wait).prove().unordered;
    assert!(
        hazards
            .iter()
            .any(|hazard| hazard.second == Origin::Arguments && hazard.kind == HazardKind::WriteAfterRead)
    );
}
