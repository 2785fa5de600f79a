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
    } = sequences;
    found.extend([tokens, positions, history, counts, outbox]);
    found
}

#[test]
fn sampled_sequences_agree() {
    for seed in refrain_testing::sample(900..909, 6) {
        check(seed, sampled);
    }
}

#[test]
fn a_traced_step_decodes_without_the_host() {
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
