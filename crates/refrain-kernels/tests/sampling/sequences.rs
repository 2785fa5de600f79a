//! State of sequences after sampling: history, outbox and the end of sequences.

use refrain_kernels::sample::{FINISHED, NOT_A_NUMBER, Settings};

use crate::common::{Random, variants};
use crate::support::{Batch, OnDevice, RING};

/// Returns greedy sequences with a vocabulary of 600; sequence s always samples token 500 + s.
fn greedy(settings: Vec<Settings>, context: usize) -> Batch {
    let mut random = Random::new(1);
    let mut logits = vec![0.0; 600 * settings.len()];
    for (s, row) in logits.chunks_exact_mut(600).enumerate() {
        row[500 + s] = 1.0;
    }
    let mut batch = Batch::new(&mut random, logits, 600, settings, context);
    batch.positions.fill(0);
    batch.outbox = vec![0; batch.sequences() * (1 + RING)];
    batch
}

#[test]
fn sequences_end_at_a_stop_token_the_last_position_or_the_end_of_the_history() {
    let settings = vec![
        Settings {
            stop_ids: (485..501).collect(),
            ..Settings::default()
        },
        Settings {
            last_position: 2,
            ..Settings::default()
        },
        Settings::default(),
    ];
    for traits in variants() {
        let device = OnDevice::new(&greedy(settings.clone(), 4), &traits);
        assert_eq!(device.step(), [500, 501, 502]);
        assert_eq!(device.step(), [FINISHED, 501, 502]);
        assert_eq!(device.step(), [FINISHED, FINISHED, 502]);
        assert_eq!(device.step(), [FINISHED; 3]);
        let after = device.read();
        assert_eq!(after.positions, [-1; 3]);
        assert_eq!(after.history[8..], [after.history[8], 502, 502, 502]);
        let outboxes: Vec<&[u32]> = after.outbox.chunks_exact(1 + RING).collect();
        assert_eq!(outboxes[0], [4, FINISHED, FINISHED, FINISHED]);
        assert_eq!(outboxes[1], [4, FINISHED, 501, FINISHED]);
        assert_eq!(outboxes[2], [4, FINISHED, 502, 502]);
    }
}

#[test]
fn nan_logit_finishes_only_its_own_sequence() {
    for traits in variants() {
        for temperature in [0.0, 1.0] {
            let settings = Settings {
                temperature,
                top_k: 1,
                ..Settings::default()
            };
            let mut batch = greedy(vec![settings; 2], 8);
            batch.logits[77] = f32::NAN;
            let device = OnDevice::new(&batch, &traits);
            assert_eq!(device.step(), [NOT_A_NUMBER, 501]);
            assert_eq!(device.step(), [FINISHED, 501]);
            assert_eq!(device.read().positions, [-1, 2]);
        }
    }
}
