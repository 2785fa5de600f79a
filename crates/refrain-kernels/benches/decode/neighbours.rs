//! Neighbours of a tuning row: rows that differ in the settings that a workload depends on.

use refrain_kernels::tuning::{
    DeltaTuning, ExpertTuning, GemvTuning, GroupCount, MatrixTile, SubgroupSplit, TileSize, Tuning,
};

use crate::workload::Workload;

/// Returns rows that differ from `row` in the settings that the workload depends on.
pub fn neighbours(row: &Tuning, workload: &Workload) -> Box<dyn Iterator<Item = Tuning>> {
    let row = *row;
    match *workload {
        Workload::Attention { .. } => Box::new(attention_rows(row)),
        Workload::PromptAttention { .. } => Box::new(prompt_attention_rows(row)),
        Workload::Delta { .. } => Box::new(delta_rows(row)),
        Workload::Convolution { .. } => {
            Box::new([0, usize::MAX].into_iter().map(move |max_serial_conv_tokens| Tuning {
                max_serial_conv_tokens,
                ..row
            }))
        }
        Workload::Preparation { .. } => Box::new(std::iter::once(row)),
        Workload::Experts { .. } => Box::new(expert_rows(row)),
        Workload::Projection { tokens: 9.., .. } if row.matrix.is_empty() => Box::new(tile_rows(row)),
        Workload::Projection {
            tokens: tokens @ 9.., ..
        } => Box::new(matrix_rows(row, tokens)),
        // The row itself may choose matrix cores.
        Workload::Projection { tokens: 3.., .. } => Box::new(gemv_rows(row).chain([row])),
        Workload::Projection { .. } | Workload::Router { .. } | Workload::TokenExperts { .. } => {
            Box::new(gemv_rows(row))
        }
    }
}

fn attention_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let together = [(128, 32), (128, 64), (256, 64), (256, 128)].map(|choice| (choice, false));
    let apart = [64, 128, 256]
        .into_iter()
        .flat_map(|t| [32, 64].map(|p| ((t, p), true)));
    let choices = together.into_iter().chain(apart);
    let choices = choices.flat_map(|choice| [1, 2, 4, 8].map(|heads| (choice, heads)));
    choices.flat_map(move |(((threads, positions), by_subgroups), max_heads)| {
        [264, 396, 528].map(|target_groups| {
            let mut row = row;
            row.decode.threads = threads;
            row.decode.positions = positions;
            row.decode.by_subgroups = by_subgroups;
            row.decode.max_heads = max_heads;
            row.decode.target_groups = GroupCount::fixed(target_groups);
            row.decode_many = &[];
            row.decode_short = None;
            row
        })
    })
}

/// Rows with the same number of subgroups for few and many workgroups, and with other block sizes.
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
    // The row itself chooses among its own settings.
    forced.chain([row])
}

fn matrix_rows(row: Tuning, tokens: usize) -> impl Iterator<Item = Tuning> {
    let sizes = [2, 4, 8, 16].into_iter();
    let sizes = sizes.flat_map(|s| [1, 2, 4].into_iter().flat_map(move |r| [1, 2, 4, 8].map(|t| (s, r, t))));
    let kinds = [
        (SubgroupSplit::Rows, 1),
        (SubgroupSplit::Depth, 1),
        (SubgroupSplit::Depth, 2),
    ];
    let sizes = sizes.flat_map(move |size| kinds.map(|kind| (size, kind)));
    let tokens = tokens.div_ceil(16) as u32;
    // Limits: registers of a lane, equal copies per lane, and shared memory.
    let fits = move |&((subgroups, rows, tiles), (split, _)): &((u32, u32, u32), (SubgroupSplit, u32))| match split {
        SubgroupSplit::Rows => {
            let min = tokens.min(4);
            (min..=16).contains(&(rows * tiles))
                && tiles >= min.min(2)
                && tiles <= tokens.next_power_of_two()
                && (2..16).contains(&subgroups)
                && 4 * tiles >= subgroups
        }
        SubgroupSplit::Depth => {
            tokens <= 32 && tiles == tokens.min(4) && rows * tiles * subgroups <= 88 && rows * tiles <= 16
        }
    };
    sizes
        .filter(fits)
        .map(|((subgroups, rows, tokens), (split, x_terms))| tile(split, [subgroups, rows, tokens, x_terms]))
        .flat_map(move |tile| {
            match tile.split {
                SubgroupSplit::Rows if tokens < 4 || tile.rows * tile.tokens >= 8 => vec![1, 2, 3, 4, 8],
                _ => vec![1],
            }
            .into_iter()
            .map(move |splits| MatrixTile { splits, ..tile })
        })
        .flat_map(|tile| {
            // A one-phase reduction needs more shared memory.
            let fragments = tile.subgroups * tile.rows * tile.tokens;
            let two_phase = match tile.split {
                SubgroupSplit::Depth => [false, true]
                    .into_iter()
                    .filter(|&two_phase| two_phase || fragments <= 44)
                    .collect(),
                SubgroupSplit::Rows => vec![false],
            };
            two_phase
                .into_iter()
                .map(move |two_phase| MatrixTile { two_phase, ..tile })
        })
        .map(move |tile| Tuning {
            matrix: Box::leak(Box::new([tile])),
            ..row
        })
}

/// Rows with one tile size without matrix cores, and the row itself, which chooses among its own sizes.
fn tile_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let shapes = [[16, 16], [16, 8], [8, 16], [8, 8], [4, 16], [4, 8]];
    let sizes = shapes
        .into_iter()
        .flat_map(|shape| [[2, 2], [2, 1], [1, 1]].map(|register_tile| (shape, register_tile)));
    let sizes = sizes.flat_map(|size| [16, 32, 64].map(|depth| (size, depth)));
    let sizes = sizes.flat_map(|(([rows, columns], register_tile), depth)| {
        let threads = [128, 256].into_iter().filter(move |threads| *threads >= rows * columns);
        threads.map(move |threads| TileSize {
            min_groups: GroupCount::fixed(1),
            rows,
            columns,
            register_tile,
            slices: threads / (rows * columns),
            depth,
        })
    });
    // Each of two matrices has at least four columns.
    let fits = |size: &TileSize| {
        let register_tile = [size.register_tile[0], 2];
        let both = TileSize { register_tile, ..*size };
        size.divides_evenly() && both.divides_evenly() && both.shared_bytes() <= 48 << 10
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
            .flat_map(|max| [1, 32, 128, 264].map(|target| (target, max)));
        groups.map(move |(target_groups, max_groups)| {
            let gemv = GemvTuning {
                threads,
                rows,
                loads,
                batched_loads: loads,
                max_groups: GroupCount::fixed(max_groups),
                target_groups: GroupCount::fixed(target_groups),
                max_vectors_beside_matrix: row.dense.max_vectors,
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

/// Rows that run the delta rule recurrently, with other values per row of lanes and other tiles, or chunked, with other
/// chunk sizes.
fn delta_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let all = [1, 2, 4, 8]
        .into_iter()
        .flat_map(|values| [4, 8, 16, 32].map(|tile| (values, tile)));
    let recurrent = all.map(move |(values, tile)| DeltaTuning {
        values,
        min_tokens: 1,
        tile,
        min_chunked_tokens: usize::MAX,
        ..row.delta
    });
    let chunks = [16, 32]
        .into_iter()
        .flat_map(|chunk| [128, 256, 512].map(|threads| (chunk, threads)));
    let chunked = chunks.map(move |(chunk, chunk_threads)| DeltaTuning {
        chunk,
        chunk_threads,
        min_chunked_tokens: 1,
        ..row.delta
    });
    recurrent.chain(chunked).map(move |delta| Tuning { delta, ..row })
}

/// Rows with one tile for any number of tokens per expert, and a row without tiles.
fn expert_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let sizes = [2, 4, 8].into_iter();
    let sizes = sizes.flat_map(|s| [1, 2, 4].into_iter().flat_map(move |r| [1, 2, 4, 8].map(|t| [s, r, t])));
    let kinds = [
        (SubgroupSplit::Rows, 1),
        (SubgroupSplit::Depth, 1),
        (SubgroupSplit::Depth, 2),
    ];
    let fits = |&(split, [subgroups, rows, tokens, _]): &(SubgroupSplit, [u32; 4])| match split {
        SubgroupSplit::Rows => rows * tokens <= 16 && subgroups > 2 && 4 * tokens >= subgroups,
        SubgroupSplit::Depth => rows * tokens * subgroups <= 44 && tokens <= 4,
    };
    let all = sizes.flat_map(move |[s, r, t]| kinds.map(|(split, x_terms)| (split, [s, r, t, x_terms])));
    let tiles = all.filter(fits).map(|(split, sizes)| tile(split, sizes));
    let with = move |max_experts_per_pair, tiles: Vec<MatrixTile>, skip_empty| Tuning {
        experts: ExpertTuning {
            max_experts_per_pair,
            tiles: Box::leak(tiles.into_boxed_slice()),
            skip_empty,
        },
        ..row
    };
    let skipping = tiles.clone().filter(|tile| tile.tokens > 1);
    tiles
        .map(move |tile| with(usize::MAX, vec![tile], false))
        .chain(skipping.map(move |tile| with(usize::MAX, vec![tile], true)))
        .chain([with(0, Vec::new(), false)])
}

/// A tile that applies to any number of tokens.
fn tile(split: SubgroupSplit, [subgroups, rows, tokens, x_terms]: [u32; 4]) -> MatrixTile {
    MatrixTile {
        max_tokens: usize::MAX,
        min_depth: 0,
        max_depth: usize::MAX,
        min_groups: GroupCount::fixed(1),
        split,
        subgroups,
        rows,
        tokens,
        narrow: false,
        x_terms,
        splits: 1,
        two_phase: false,
        prefetch: false,
        unrolled: true,
    }
}
