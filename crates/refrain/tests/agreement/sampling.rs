use refrain::{Array, DType, Device, Error, Function, eval};
use refrain_lm::sample::{FINISHED, Settings, counts};
use refrain_lm::{Sequences, sample};

use crate::check;
use crate::common::{Random, assert_silent, plain, vulkan};

/// Sequences whose current tokens are the last tokens of their prompts.
fn prompted(device: &Device, vocabulary: usize, prompts: &[Vec<u32>], window: u32) -> Sequences {
    const CAPACITY: usize = 40;
    let states = Sequences::new(device, prompts.len(), vocabulary, CAPACITY, 8).expect("small states");
    let fill = |state: &Array, rows: Array| {
        let all: Vec<i32> = (0..prompts.len() as i32).collect();
        state.write_rows(&rows, &Array::from_slice(device, &all, &[all.len()]))
    };
    let words = |values: Vec<u32>, shape: &[usize]| Array::from_slice(device, &values, shape);
    let history = prompts.iter().flat_map(|prompt| {
        let mut tokens = prompt.clone();
        tokens.resize(CAPACITY, 0);
        tokens
    });
    let counted = prompts.iter().flat_map(|prompt| counts(prompt, window, vocabulary));
    let positions: Vec<i32> = prompts.iter().map(|prompt| prompt.len() as i32 - 1).collect();
    let s = prompts.len();
    let last = prompts.iter().map(|prompt| prompt[prompt.len() - 1]);
    let sequences = Sequences {
        tokens: fill(&states.tokens, words(last.collect(), &[s])),
        positions: fill(&states.positions, Array::from_slice(device, &positions, &[s])),
        history: fill(&states.history, words(history.collect(), &[s, CAPACITY])),
        counts: fill(&states.counts, words(counted.collect(), &[s, vocabulary])),
        outbox: states.outbox,
        slots: states.slots,
    };
    // Evaluated now, or every call of a traced step would write the prompts again.
    let filled = [
        &sequences.tokens,
        &sequences.positions,
        &sequences.history,
        &sequences.counts,
    ];
    eval(&filled).expect("prompts are written");
    sequences
}

fn prompts(random: &mut Random, sequences: usize, vocabulary: usize) -> Vec<Vec<u32>> {
    let prompt = |random: &mut Random| {
        (0..1 + random.below(20))
            .map(|_| random.below(vocabulary) as u32)
            .collect()
    };
    (0..sequences).map(|_| prompt(random)).collect()
}

fn encoded(device: &Device, settings: &[Settings]) -> Array {
    let words: Vec<u32> = settings
        .iter()
        .flat_map(|s| s.encode().expect("few stop tokens"))
        .collect();
    Array::from_slice(device, &words, &[settings.len(), Settings::WORDS])
}

/// A few runs with different logits: the reported tokens, and the states at the end.
fn sampled(device: &Device, random: &mut Random) -> Vec<Array> {
    let (vocabulary, s, window) = (random.pick(&[7, 600]), 1 + random.below(5), random.pick(&[0, 3, 64]));
    let settings: Vec<Settings> = (0..s as u64)
        .map(|seed| Settings {
            temperature: random.pick(&[0.0, 0.8]),
            top_k: random.pick(&[0, 5]),
            top_p: random.pick(&[1.0, 0.9]),
            repeat_penalty: 1.3,
            frequency_penalty: 0.25,
            window,
            seed,
            stop_ids: vec![random.below(vocabulary) as u32],
            biased: random.one_in(2),
            ..Settings::default()
        })
        .collect();
    let settings = encoded(device, &settings);
    let bias = random.viewed(device, DType::F32, &[s, vocabulary]);
    let bias = if random.one_in(2) { Some(&bias) } else { None };
    let mut sequences = prompted(device, vocabulary, &prompts(random, s, vocabulary), window);
    let mut found = vec![];
    for _ in 0..6 {
        let logits = random.viewed(device, DType::F32, &[s, vocabulary]);
        let (reported, next) = sample(&logits, &settings, &sequences, bias);
        found.push(reported);
        sequences = next;
    }
    let Sequences {
        tokens,
        positions,
        history,
        counts,
        outbox,
        ..
    } = sequences;
    found.extend([tokens, positions, history, counts, outbox]);
    found
}

#[test]
fn sampled_sequences_agree() {
    if !refrain_testing::drawn(12) {
        return;
    }
    for seed in refrain_testing::sample(900..909, 6) {
        check(seed, sampled);
    }
}

/// Sequences at slots in another order than their rows, some of them finished, some slots unused.
#[test]
fn sequences_keep_their_states_at_their_slots() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let (vocabulary, slots) = (30, [4u32, 1, 5, 4]);
    let settings = |seed: u64| Settings {
        temperature: 0.9,
        repeat_penalty: 1.4,
        window: 3,
        seed,
        biased: true,
        ..Settings::default()
    };
    for device in [&Device::cpu(), vulkan(), plain()] {
        let mut random = Random::new(11);
        let prompts = prompts(&mut random, 6, vocabulary);
        let all: Vec<Settings> = (0..6).map(settings).collect();
        let bias: Vec<f32> = (0..6 * vocabulary).map(|_| random.unit()).collect();
        let bias = Array::from_slice(device, &bias, &[6, vocabulary]);
        let logits: Vec<f32> = (0..slots.len() * vocabulary).map(|_| 4.0 * random.unit()).collect();
        let logits = Array::from_slice(device, &logits, &[slots.len(), vocabulary]);
        let by_slot = prompted(device, vocabulary, &prompts, 3);
        // The last row is finished: its slot is another row's by now.
        let position = |slot: usize| prompts[slot].len() as i32 - 1;
        let positions = [position(4), position(1), position(5), -1];
        let picked = slots.map(|slot| *prompts[slot as usize].last().expect("not empty"));
        let rows = Sequences::new(device, slots.len(), vocabulary, 40, 8).expect("small states");
        let every_row = Array::from_slice(device, &[0, 1, 2, 3], &[4]);
        let mut sequences = Sequences {
            tokens: rows
                .tokens
                .write_rows(&Array::from_slice(device, &picked, &[4]), &every_row),
            positions: rows
                .positions
                .write_rows(&Array::from_slice(device, &positions, &[4]), &every_row),
            outbox: rows.outbox,
            slots: Array::from_slice(device, &slots, &[4]),
            ..by_slot
        };
        let mut alone = prompted(device, vocabulary, &prompts, 3);
        let settings = encoded(device, &all);
        // Of each sequence by itself; those without a row get zeros.
        let all_logits = logits.take(&Array::from_slice(device, &[9u32, 1, 9, 9, 0, 2], &[6]), 0);
        for _ in 0..5 {
            let (reported, next) = sample(&logits, &settings, &sequences, Some(&bias));
            let (expected, after) = sample(&all_logits, &settings, &alone, Some(&bias));
            let (reported, expected) = (
                reported.to_vec::<u32>().expect("runs"),
                expected.to_vec::<u32>().expect("runs"),
            );
            assert_eq!(
                reported,
                [expected[4], expected[1], expected[5], FINISHED],
                "on {device:?}"
            );
            (sequences, alone) = (next, after);
        }
        let [found, expected] = [&sequences, &alone].map(|s| s.history.to_vec::<u32>().expect("read"));
        for slot in [1, 4, 5] {
            assert_eq!(found[40 * slot..][..40], expected[40 * slot..][..40], "on {device:?}");
        }
    }
    assert_silent();
}

#[test]
fn a_traced_step_decodes_without_the_host() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let vocabulary = 50;
    let tokens = |device: &Device| {
        let sequences = prompted(device, vocabulary, &[vec![3, 4]], 0);
        let settings = encoded(
            device,
            &[Settings {
                last_position: 9,
                ..Settings::default()
            }],
        );
        // The token after t is 3 t + 1.
        let next: Vec<u32> = (0..50u32).map(|t| (3 * t + 1) % 50).collect();
        let follows = Array::from_slice(device, &next, &[vocabulary]);
        let id = Array::arange(device, DType::U32, vocabulary).reshape(&[1, -1]);
        let wanted = follows.take(&sequences.tokens, 0).reshape(&[1, 1]);
        let logits = id.eq(&wanted).astype(DType::F32);
        let (reported, after) = sample(&logits, &settings, &sequences, None);
        let step = Function::trace(&[&reported, &after.outbox]).expect("the step lowers");
        for _ in 0..9 {
            step.call_bytes(&[]).expect("called");
        }
        assert_eq!(step.read::<u32>(0).expect("the last"), [FINISHED]);
        step.read::<u32>(1).expect("the outbox")
    };
    for device in [&Device::cpu(), vulkan(), plain()] {
        // The first slot of the ring of eight holds the last token reported.
        let expected = [9, FINISHED, 40, 21, 14, 43, 30, 41, 24];
        let found = tokens(device);
        assert_eq!(found.len(), expected.len());
        assert_eq!(found, expected, "on {device:?}");
    }
    assert_silent();
}

#[test]
fn sampling_with_wrong_shapes_is_an_error() {
    let device = Device::cpu();
    let sequences = Sequences::new(&device, 2, 10, 4, 4).expect("small states");
    let settings = encoded(&device, &[Settings::default(), Settings::default()]);
    let logits = Array::zeros(&device, DType::F32, &[2, 9]);
    let (reported, next) = sample(&logits, &settings, &sequences, None);
    for array in [reported, next.positions, next.outbox] {
        let error = array.to_bytes().unwrap_err().to_string();
        assert!(error.contains("sample") && error.contains("f32[2, 9]"), "{error}");
    }
    let logits = Array::zeros(&device, DType::F32, &[2, 10]);
    let copied = Sequences {
        tokens: &sequences.tokens + &sequences.tokens,
        ..sequences
    };
    let (reported, _) = sample(&logits, &settings, &copied, None);
    assert!(matches!(reported.to_bytes(), Err(Error::Invalid { what, .. }) if what.contains("state")));
}
