//! Rows of the tuning table that differ from a row in what a workload depends on.

use refrain_kernels::tuning::{Delta, Experts, GemvTuning, GroupCount, MatrixTile, SharedBy, TileSize, Tuning};

use crate::workload::Workload;

/// Rows that differ from `row` in what the workload depends on.
pub fn neighbours(row: &Tuning, workload: &Workload) -> Box<dyn Iterator<Item = Tuning>> {
    let row = *row;
    match *workload {
        Workload::Attention { .. } => Box::new(attention_rows(row)),
        Workload::PromptAttention { .. } => Box::new(prompt_attention_rows(row)),
        Workload::Delta { .. } => Box::new(delta_rows(row)),
        Workload::Convolution { .. } => {
            Box::new([0, usize::MAX].into_iter().map(move |most_convolved_in_turn| Tuning {
                most_convolved_in_turn,
                ..row
            }))
        }
        Workload::Preparation { .. } => Box::new(std::iter::once(row)),
        Workload::Experts { .. } => Box::new(expert_rows(row)),
        Workload::Projection { tokens: 9.., .. } if row.matrix.is_empty() => Box::new(tile_rows(row)),
        Workload::Projection {
            tokens: tokens @ 9.., ..
        } => Box::new(matrix_rows(row, tokens)),
        Workload::Projection { .. } | Workload::Router { .. } | Workload::TokenExperts { .. } => {
            Box::new(gemv_rows(row))
        }
    }
}

fn attention_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let choices = [128, 256, 512].into_iter().flat_map(|t| [32, 64, 128].map(|p| (t, p)));
    let choices = choices.flat_map(|(t, p)| [1, 2, 4].map(|h| (t, p, h)));
    choices.flat_map(move |(threads, positions, most_heads)| {
        [132, 264, 528].map(|enough_groups| {
            let mut row = row;
            row.decode.threads = threads;
            row.decode.positions = positions;
            row.decode.most_heads = most_heads;
            row.decode.enough_groups = GroupCount::fixed(enough_groups);
            row.decode_many = &[];
            row
        })
    })
}

/// Rows with one number of subgroups, be their workgroups few or many, and blocks of other sizes.
fn prompt_attention_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let choices = [2, 4, 8, 12].into_iter().flat_map(|s| [1, 2, 4].map(|f| (s, f)));
    let forced = choices.map(move |(subgroups, fragments)| {
        let mut row = row;
        row.attention.matrix_subgroups = subgroups;
        row.attention.matrix_subgroups_few = subgroups;
        row.attention.matrix_fragments = fragments;
        row.attention.matrix_fragments_few = fragments;
        row
    });
    // What the row itself chooses.
    forced.chain([row])
}

fn matrix_rows(row: Tuning, tokens: usize) -> impl Iterator<Item = Tuning> {
    let sizes = [2, 4, 8, 16].into_iter();
    let sizes = sizes.flat_map(|s| [1, 2, 4].into_iter().flat_map(move |r| [1, 2, 4, 8].map(|t| (s, r, t))));
    let kinds = [(SharedBy::Tokens, 1), (SharedBy::Sums, 1), (SharedBy::Sums, 2)];
    let sizes = sizes.flat_map(move |size| kinds.map(|kind| (size, kind)));
    let tokens = tokens.div_ceil(16) as u32;
    // What a lane's registers hold, what lanes copy in equal parts, and what shared memory holds.
    let fits = move |&((subgroups, rows, tiles), (shared, _)): &((u32, u32, u32), (SharedBy, u32))| match shared {
        SharedBy::Tokens => {
            let least = tokens.min(4);
            (least..=16).contains(&(rows * tiles))
                && tiles >= least.min(2)
                && tiles <= tokens.next_power_of_two()
                && (2..16).contains(&subgroups)
                && 4 * tiles >= subgroups
        }
        SharedBy::Sums => {
            tokens <= 32 && tiles == tokens.min(4) && rows * tiles * subgroups <= 88 && rows * tiles <= 16
        }
    };
    sizes
        .filter(fits)
        .map(|((subgroups, rows, tokens), (shared, halves))| tile(shared, [subgroups, rows, tokens, halves]))
        .flat_map(move |tile| {
            match tile.shared {
                SharedBy::Tokens if tokens < 4 || tile.rows * tile.tokens >= 8 => vec![1, 2, 3, 4, 8],
                _ => vec![1],
            }
            .into_iter()
            .map(move |parts| MatrixTile { parts, ..tile })
        })
        .flat_map(|tile| {
            // Unfolded where there is room.
            let met = tile.subgroups * tile.rows * tile.tokens;
            let folded = match tile.shared {
                SharedBy::Sums => [false, true]
                    .into_iter()
                    .filter(|&folded| folded || met <= 44)
                    .collect(),
                SharedBy::Tokens => vec![false],
            };
            folded.into_iter().map(move |folded| MatrixTile { folded, ..tile })
        })
        .map(move |tile| Tuning {
            matrix: Box::leak(Box::new([tile])),
            ..row
        })
}

/// Rows with one size of tiles without matrix cores, and the row itself, which chooses among its own.
fn tile_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let places = [[16, 16], [16, 8], [8, 16], [8, 8], [4, 16], [4, 8]];
    let sizes = places
        .into_iter()
        .flat_map(|places| [[2, 2], [2, 1], [1, 1]].map(|fours| (places, fours)));
    let sizes = sizes.flat_map(|size| [16, 32, 64].map(|depth| (size, depth)));
    let sizes = sizes.flat_map(|(([rows, columns], fours), depth)| {
        let enough = [128, 256].into_iter().filter(move |threads| *threads >= rows * columns);
        enough.map(move |threads| TileSize {
            least_groups: GroupCount::fixed(1),
            rows,
            columns,
            fours,
            slices: threads / (rows * columns),
            depth,
        })
    });
    // Two matrices have a four of columns each at least.
    let fits = |size: &TileSize| {
        let fours = [size.fours[0], 2];
        let both = TileSize { fours, ..*size };
        size.is_even() && both.is_even() && both.shared_bytes() <= 48 << 10
    };
    let forced = sizes.filter(fits).map(move |size| {
        let mut row = row;
        row.tile.sizes = Box::leak(Box::new([size]));
        row
    });
    forced.chain([row])
}

fn gemv_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let choices = [128, 256, 512, 1024]
        .into_iter()
        .flat_map(|t| [1, 2, 4].map(|r| (t, r)));
    let choices = choices.flat_map(|(t, r)| [1, 2, 4].map(|l| (t, r, l)));
    choices.flat_map(move |(threads, rows, loads)| {
        let groups = [264, 528, 65_535]
            .into_iter()
            .flat_map(|most| [1, 32, 128, 264].map(|enough| (enough, most)));
        groups.map(move |(enough_groups, most_groups)| {
            let gemv = GemvTuning {
                threads,
                rows,
                loads,
                loads_of_several: loads,
                most_groups: GroupCount::fixed(most_groups),
                enough_groups: GroupCount::fixed(enough_groups),
                ..row.dense
            };
            Tuning {
                dense: gemv,
                four_bit: gemv,
                by_shape: &[],
                eight_bit: gemv,
                ..row
            }
        })
    })
}

/// Rows that take other chunks of tokens of the delta rule, or none, then other numbers of values together, and bring other
/// numbers of tokens.
fn delta_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let all = [1, 2, 4, 8]
        .into_iter()
        .flat_map(|values| [4, 8, 16, 32].map(|tile| (values, tile)));
    let in_turn = all.map(move |(values, tile)| Delta {
        values,
        least_tokens: 1,
        tile,
        least_chunked: usize::MAX,
        ..row.delta
    });
    let chunks = [16, 32]
        .into_iter()
        .flat_map(|chunk| [128, 256, 512].map(|threads| (chunk, threads)));
    let chunked = chunks.map(move |(chunk, chunk_threads)| Delta {
        chunk,
        chunk_threads,
        least_chunked: 1,
        ..row.delta
    });
    in_turn.chain(chunked).map(move |delta| Tuning { delta, ..row })
}

/// Rows with one tile for any number of tokens of experts, and one that has none.
fn expert_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let sizes = [2, 4, 8].into_iter();
    let sizes = sizes.flat_map(|s| [1, 2, 4].into_iter().flat_map(move |r| [1, 2, 4, 8].map(|t| [s, r, t])));
    let kinds = [(SharedBy::Tokens, 1), (SharedBy::Sums, 1), (SharedBy::Sums, 2)];
    let fits = |&(shared, [subgroups, rows, tokens, _]): &(SharedBy, [u32; 4])| match shared {
        SharedBy::Tokens => rows * tokens <= 16 && subgroups > 2 && 4 * tokens >= subgroups,
        SharedBy::Sums => rows * tokens * subgroups <= 44 && tokens <= 4,
    };
    let all = sizes.flat_map(move |[s, r, t]| kinds.map(|(shared, halves)| (shared, [s, r, t, halves])));
    let tiles = all.filter(fits).map(|(shared, sizes)| tile(shared, sizes));
    let with = move |most_for_a_pair, tiles: Vec<MatrixTile>, skips| Tuning {
        experts: Experts {
            most_for_a_pair,
            tiles: Box::leak(tiles.into_boxed_slice()),
            skips,
        },
        ..row
    };
    let skipping = tiles.clone().filter(|tile| tile.tokens > 1);
    tiles
        .map(move |tile| with(usize::MAX, vec![tile], false))
        .chain(skipping.map(move |tile| with(usize::MAX, vec![tile], true)))
        .chain([with(0, Vec::new(), false)])
}

/// A tile for any number of tokens.
fn tile(shared: SharedBy, [subgroups, rows, tokens, halves]: [u32; 4]) -> MatrixTile {
    MatrixTile {
        most_tokens: usize::MAX,
        least_depth: 0,
        most_depth: usize::MAX,
        least_groups: GroupCount::fixed(1),
        shared,
        subgroups,
        rows,
        tokens,
        narrow: false,
        halves,
        parts: 1,
        folded: false,
        pinned: false,
        unrolled: true,
    }
}
