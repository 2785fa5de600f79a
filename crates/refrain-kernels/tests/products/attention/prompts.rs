//! Prefill attention on matrix cores against its reference.

use refrain_kernels::attention::BlockFormat;
use refrain_kernels::fragments::MatrixCores;
use refrain_kernels::tuning::{self, GroupCount};
use refrain_kernels::{DType, attention};
use refrain_testing::sample;

use super::case::Case;
use crate::common::Random;
use crate::support::{FLOATS, in_turn_among, matrix_cores, with_matrix_cores, with_split_fragments};

#[test]
fn prompts_of_several_sequences_match_on_matrix_cores() {
    let Some((traits, cores)) = matrix_cores() else {
        return;
    };
    let page_size = 8 * cores.size;
    let slots = 8 * page_size as usize;
    // 60 tokens in the middle of one sequence, 5 of another, padding, and the beginning of a third.
    let last = slots as i32 / 2 - 1;
    let first = (0..60).map(|i| (last - 75 + i, 0));
    let second = (0..5).map(|i| (40 + i, 1));
    let padding = (0..3).map(|_| (-1, 0));
    let third = (0..30).map(|i| (i, 1));
    let tokens: Vec<(i32, u32)> = first.chain(second).chain(padding).chain(third).collect();
    let sizes = [
        (4, 2, 64, 64),
        (6, 2, 128, 128),
        (8, 1, 64, 64),
        (2, 2, 256, 256),
        (4, 4, 192, 128),
        (4, 1, 64, 160),
        (3, 1, 96, 96),
    ];
    for (i, (heads, kv_heads, head_dim, value_dim)) in sizes.into_iter().enumerate() {
        for (window, sinks) in [
            (None, None),
            (Some(9), None),
            (Some(70), None),
            (None, Some(DType::BF16)),
        ] {
            let case = Case {
                heads,
                kv_heads,
                head_dim,
                value_dim: Some(value_dim),
                dtypes: [FLOATS[i % 3], DType::F16, DType::F16, FLOATS[(i + 1) % 3]],
                positions: tokens.iter().map(|t| t.0).collect(),
                sequences: tokens.iter().map(|t| t.1).collect(),
                pages: vec![6, 0, 4, 2, 1, 7, 3, 5],
                sequence_count: 2,
                slots,
                sinks,
                params: attention::AttentionParams {
                    scale: 0.3,
                    page_size,
                    window,
                    decode: false,
                    blocks: [None; 2],
                },
                infinite_keys: false,
            };
            case.check(tuning::choose(&traits), &traits);
        }
    }
}

/// Returns prompts of several sequences, one after another as in a batch, or scattered tokens.
fn random_tokens(random: &mut Random, sequences: usize, reach: usize) -> Vec<(i32, u32)> {
    let mut tokens = Vec::new();
    if random.below(3) == 0 {
        let anywhere = |random: &mut Random| (random.below(reach + 9) as i32 - 1, random.below(sequences) as u32);
        let count = 1 + random.below(70);
        tokens.extend((0..count).map(|_| anywhere(random)));
    }
    for sequence in 0..sequences {
        let length = 1 + random.below(reach.min(50));
        let later = random.below(reach - length + 1);
        let first = random.pick(&[0, later]);
        tokens.extend((first..first + length).map(|position| (position as i32, sequence as u32)));
        tokens.extend((0..random.pick(&[0, 0, 5])).map(|_| (-1, sequence as u32)));
    }
    tokens
}

/// Returns unordered pages of all sequences.
fn random_pages(random: &mut Random, count: usize) -> Vec<u32> {
    let mut pages = Vec::from_iter(0..count as u32);
    for last in (1..count).rev() {
        pages.swap(last, random.below(last + 1));
    }
    pages
}

/// Returns a random case whose heads suit matrix cores.
fn random_case(random: &mut Random, cores: MatrixCores) -> Case {
    let size = cores.size as usize;
    let page_size = size * random.pick(&[1, 2, 4, 8]);
    let table = (random.pick(&[6, 14]) * size).div_ceil(page_size);
    let sequence_count = 1 + random.below(5);
    let tokens = random_tokens(random, sequence_count, table * page_size);
    let unit = 8 * cores.lanes_per_row() as usize;
    let head_dim = unit * random.pick(&[1, 1, 2]);
    let value_dim = head_dim + random.pick(&[0, 0, 32]);
    let kv_heads = 1 + random.below(2);
    Case {
        heads: kv_heads * (1 + random.below(5)),
        kv_heads,
        head_dim,
        value_dim: Some(value_dim),
        dtypes: [random.pick(&FLOATS), DType::F16, DType::F16, random.pick(&FLOATS)],
        positions: tokens.iter().map(|t| t.0).collect(),
        sequences: tokens.iter().map(|t| t.1).collect(),
        pages: random_pages(random, sequence_count * table),
        sequence_count,
        slots: sequence_count * table * page_size,
        sinks: random.pick(&[None, None, Some(DType::F32)]),
        params: attention::AttentionParams {
            scale: 0.3,
            page_size: page_size as u32,
            window: random.pick(&[None, None, Some(1), Some(9), Some(70)]),
            decode: false,
            blocks: [head_dim, value_dim].map(|dim| {
                let format = random.pick(&[None, Some(BlockFormat::Q8_0), Some(BlockFormat::Q4_0)]);
                format.filter(|format| format.supports(dim))
            }),
        },
        infinite_keys: random.below(4) == 0,
    }
}

#[test]
fn random_prompts_match_on_matrix_cores() {
    let all = with_matrix_cores().into_iter().chain(with_split_fragments());
    for (seed, traits) in sample(in_turn_among(all.collect(), 0..16), 8) {
        let mut random = Random::new(seed);
        let mut tuning = *tuning::choose(&traits);
        tuning.attention.min_matrix_tokens = 1;
        tuning.attention.matrix_fragments = random.pick(&[1, 2, 3, 4]);
        tuning.attention.matrix_fragments_few = random.pick(&[1, 2, 3, 4]);
        tuning.attention.matrix_subgroups = random.pick(&[1, 3, 4, 8]);
        tuning.attention.matrix_subgroups_few = random.pick(&[2, 5]);
        tuning.attention.target_matrix_groups = GroupCount::fixed(random.pick(&[1, 4, 1000]));
        let cores = traits.matrix_cores.expect("some");
        let on_matrix_cores = random_case(&mut random, cores).check(&tuning, &traits);
        assert!(on_matrix_cores, "{seed}, {cores:?}");
    }
}
