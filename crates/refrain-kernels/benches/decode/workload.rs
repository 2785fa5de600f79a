//! The measured workloads: kernels of several models at their real sizes.

use refrain_kernels::Traits;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::tuning::{MatrixTile, TileSize, Tuning};
use refrain_vulkan::{Buffer, Device};

use crate::attentions::{HEAD_DIM, Heads, PAGE, decode_attention, page_table, preparation_calls, prompt_attention};
use crate::hybrid::{self, EXPERTS, USED};
use crate::products::{planes, projection_calls};
use crate::recorded::{RecordedCalls, upload};
use crate::router::{self, RouterStorage};
use crate::token_experts;

/// A kernel with its sizes.
pub enum Workload {
    Projection {
        model: &'static str,
        part: &'static str,
        weights: WeightStorage,
        columns: usize,
        /// Rows of each matrix.
        rows: Vec<usize>,
        tokens: usize,
    },
    /// A projection of one token with top-k, fused or in a separate step.
    Router {
        model: &'static str,
        stored: RouterStorage,
        /// Rows of each matrix. Those of the first are the experts.
        rows: &'static [usize],
        separate: bool,
    },
    Experts {
        part: &'static str,
        weights: WeightStorage,
        columns: usize,
        /// Rows per expert.
        rows: usize,
        tokens: usize,
    },
    TokenExperts {
        model: &'static str,
        part: &'static str,
        weights: WeightStorage,
        columns: usize,
        /// Rows per expert.
        rows: usize,
        tokens: usize,
    },
    Delta {
        tokens: usize,
    },
    Convolution {
        tokens: usize,
    },
    Attention {
        model: &'static str,
        heads: Heads,
        /// Context length.
        context: usize,
        sequences: usize,
    },
    PromptAttention {
        model: &'static str,
        heads: usize,
        kv_heads: usize,
        tokens: usize,
        /// Positions before the chunk.
        depth: usize,
    },
    Preparation {
        model: &'static str,
        heads: usize,
        kv_heads: usize,
        tokens: usize,
    },
}

impl Workload {
    pub fn name(&self) -> String {
        match self {
            Workload::Projection {
                model,
                part,
                weights,
                tokens,
                ..
            } => format!("{model}.{part} {weights} t{tokens}."),
            Workload::Router {
                model,
                stored,
                separate,
                ..
            } => format!("{model}.choice {stored}{}.", if *separate { " apart" } else { "" }),
            Workload::Experts {
                part, weights, tokens, ..
            } => format!("35b.experts.{part} {weights} t{tokens}."),
            Workload::TokenExperts {
                model,
                part,
                weights,
                tokens,
                ..
            } => format!("{model}.token-experts.{part} {weights} t{tokens}."),
            Workload::Delta { tokens } => format!("35b.delta t{tokens}."),
            Workload::Convolution { tokens } => format!("35b.conv t{tokens}."),
            Workload::Attention {
                model,
                context,
                sequences,
                ..
            } => format!("{model}.attention {context} ×{sequences}."),
            Workload::PromptAttention {
                model, tokens, depth, ..
            } => format!("{model}.prompt-attention t{tokens} d{depth}."),
            Workload::Preparation { model, tokens, .. } => format!("{model}.prepare t{tokens}."),
        }
    }

    /// The relevant settings of a tuning row.
    pub fn row(&self, row: &Tuning) -> String {
        let gemv = match self {
            Workload::Attention { .. } => {
                let d = row.decode;
                let form = if d.by_subgroups { " by subgroups" } else { "" };
                return format!(
                    "{}t {}p {}h {}g{form}",
                    d.threads, d.positions, d.max_heads, d.target_groups
                );
            }
            Workload::PromptAttention { .. } => {
                let a = row.attention;
                let many = format!("{}s {}f", a.matrix_subgroups, a.matrix_fragments);
                let few = format!("{}s {}f", a.matrix_subgroups_few, a.matrix_fragments_few);
                return format!("{many}, {few} {}g", a.target_matrix_groups);
            }
            Workload::Convolution { tokens } => {
                let is_serial = *tokens <= row.max_serial_conv_tokens;
                return if is_serial { "serial" } else { "parallel" }.into();
            }
            Workload::Delta { tokens } => return hybrid::delta_row(&row.delta, *tokens),
            Workload::Preparation { .. } => return String::new(),
            Workload::Projection { tokens: 9.., .. } if row.matrix.is_empty() => return scalar_tile(row),
            Workload::Projection { tokens: 9.., .. } => return tile(&row.matrix[0]),
            Workload::Projection { tokens, .. } if *tokens > row.dense.max_vectors_beside_matrix as usize => {
                // Matrix cores, unless there are few weights.
                return "as the row chooses".into();
            }
            Workload::Experts { tokens, .. } => {
                let pairs = tokens * USED;
                let each = pairs.div_ceil(EXPERTS);
                let wanted = row.experts.tiles.iter().find(|tile| each <= tile.max_tokens);
                return match wanted {
                    Some(wanted) if EXPERTS < pairs.saturating_mul(row.experts.max_experts_per_pair) => {
                        let skip_empty = row.experts.skip_empty && wanted.tokens > 1;
                        format!("{}{}", tile(wanted), if skip_empty { " skip-empty" } else { "" })
                    }
                    _ => "dots".into(),
                };
            }
            Workload::TokenExperts {
                weights,
                columns,
                rows,
                tokens,
                ..
            } => row.gemv(weights.format(), [*columns, *rows, *tokens], true),
            Workload::Router { stored, rows, .. } => {
                row.gemv(stored.format(), [router::HIDDEN, rows.iter().sum(), 1], false)
            }
            Workload::Projection {
                weights,
                columns,
                rows,
                tokens,
                ..
            } => row.gemv(weights.format(), [*columns, rows.iter().sum(), *tokens], false),
        };
        let groups = format!("{}-{}g", gemv.target_groups, gemv.max_groups);
        format!("{}t {}r {}l {groups}", gemv.threads, gemv.rows, gemv.loads)
    }

    /// Multiplications and additions; 0 for workloads that are bound by memory.
    pub fn operations(&self) -> usize {
        match self {
            Workload::Projection {
                columns, rows, tokens, ..
            } => 2 * tokens * columns * rows.iter().sum::<usize>(),
            Workload::Experts {
                columns, rows, tokens, ..
            } => 2 * tokens * USED * columns * rows,
            Workload::TokenExperts {
                part,
                columns,
                rows,
                tokens,
                ..
            } => 2 * tokens * USED * token_experts::parts(part) * columns * rows,
            Workload::Router { rows, .. } => 2 * router::HIDDEN * rows.iter().sum::<usize>(),
            // Three products with the state per token.
            Workload::Delta { tokens } => 2 * 3 * tokens * hybrid::state_bytes() / 4,
            Workload::PromptAttention {
                heads, tokens, depth, ..
            } => {
                let seen: usize = (1..=*tokens).map(|own| depth + own).sum();
                4 * heads * HEAD_DIM * seen
            }
            Workload::Convolution { .. } | Workload::Attention { .. } | Workload::Preparation { .. } => 0,
        }
    }

    /// Bytes of weights, or of keys and values, that a dispatch reads.
    pub fn bytes(&self) -> usize {
        match self {
            Workload::Projection {
                weights, columns, rows, ..
            } => {
                let planes = rows.iter().flat_map(|&rows| planes(*weights, rows, *columns));
                planes.map(|o| o.layout.count() * o.dtype.size()).sum()
            }
            Workload::Router { stored, rows, .. } => {
                let planes = rows.iter().flat_map(|&rows| stored.planes(rows));
                planes.map(|o| o.layout.count() * o.dtype.size()).sum()
            }
            Workload::Experts {
                weights, columns, rows, ..
            } => {
                let planes = planes(*weights, EXPERTS * rows, *columns).into_iter();
                planes.map(|o| o.layout.count() * o.dtype.size()).sum()
            }
            Workload::TokenExperts {
                part,
                weights,
                columns,
                rows,
                tokens,
                ..
            } => token_experts::parts(part) * token_experts::matrix_bytes(*weights, [*columns, *rows, *tokens]),
            Workload::Delta { .. } => hybrid::state_bytes(),
            Workload::Convolution { tokens } => tokens * hybrid::token_bytes(),
            Workload::Attention {
                heads,
                context,
                sequences,
                ..
            } => heads.bytes(context.next_multiple_of(PAGE) * sequences),
            Workload::PromptAttention {
                kv_heads,
                tokens,
                depth,
                ..
            } => 2 * 2 * kv_heads * HEAD_DIM * (depth + tokens).next_multiple_of(PAGE),
            Workload::Preparation { kv_heads, tokens, .. } => {
                2 * 2 * kv_heads * HEAD_DIM * tokens.next_multiple_of(PAGE)
            }
        }
    }

    pub fn calls(&self, row: &Tuning, traits: &Traits) -> RecordedCalls {
        match self {
            Workload::Projection {
                part,
                weights,
                columns,
                rows,
                tokens,
                ..
            } => projection_calls(row, traits, part, *weights, *columns, rows, *tokens),
            Workload::Router {
                stored, rows, separate, ..
            } => router::router_calls(row, traits, *stored, rows, *separate),
            Workload::Experts {
                part,
                weights,
                columns,
                rows,
                tokens,
            } => hybrid::expert_calls(row, traits, part, *weights, [*columns, *rows, *tokens]),
            Workload::TokenExperts {
                part,
                weights,
                columns,
                rows,
                tokens,
                ..
            } => token_experts::expert_calls(row, traits, part, *weights, [*columns, *rows, *tokens]),
            Workload::Delta { tokens } => hybrid::delta_calls(row, traits, *tokens),
            Workload::Convolution { tokens } => hybrid::convolution_calls(row, traits, *tokens),
            Workload::Attention {
                heads,
                context,
                sequences,
                ..
            } => decode_attention(row, traits, heads, [*context, *sequences]),
            Workload::PromptAttention {
                heads,
                kv_heads,
                tokens,
                depth,
                ..
            } => prompt_attention(row, traits, [*heads, *kv_heads], [*tokens, *depth]),
            Workload::Preparation {
                heads,
                kv_heads,
                tokens,
                ..
            } => preparation_calls(traits, [*heads, *kv_heads], *tokens),
        }
    }

    /// Fills the small operands: zeros, except positions, pages and experts.
    pub fn small(&self, device: &Device, recorded: &RecordedCalls) -> Buffer {
        let mut bytes = vec![0u8; recorded.small_bytes];
        let mut put = |number: usize, words: &[u32]| {
            let at = recorded.offsets[number].1 as usize;
            bytes[at..at + 4 * words.len()].copy_from_slice(bytemuck::cast_slice(words));
        };
        if let Workload::Experts { tokens, .. } = self {
            put(1, &hybrid::expert_ids(*tokens));
        }
        if let Workload::TokenExperts { tokens, .. } = self {
            put(1, &token_experts::expert_ids(*tokens));
        }
        let pages = |context: usize| Vec::from_iter(0..context.div_ceil(PAGE) as u32);
        // Positions of a sequence that continues.
        let positions = |tokens: usize| (1..=tokens as u32).collect::<Vec<_>>();
        match self {
            Workload::Delta { tokens } => put(5, &positions(*tokens)),
            Workload::Convolution { tokens } => put(2, &positions(*tokens)),
            _ => {}
        }
        if let Workload::Attention { context, sequences, .. } = self {
            put(5, &vec![*context as u32 - 1; *sequences]);
            put(6, &Vec::from_iter(0..*sequences as u32));
            put(7, &page_table(*context, *sequences));
        }
        if let Workload::PromptAttention { tokens, depth, .. } = self {
            put(3, &Vec::from_iter(*depth as u32..(depth + tokens) as u32));
            put(5, &pages(depth + tokens));
        }
        if let Workload::Preparation { tokens, .. } = self {
            let indices = Vec::from_iter(0..*tokens as u32);
            put(5, &indices);
            put(6, &indices);
        }
        upload(device, &bytes)
    }
}

/// Describes a tile on matrix cores.
fn tile(tile: &MatrixTile) -> String {
    let MatrixTile {
        split,
        subgroups,
        rows,
        tokens,
        x_terms,
        two_phase,
        splits,
        ..
    } = tile;
    format!(
        "{split:?} {subgroups}s {rows}r {tokens}t {x_terms}x {splits}k{}",
        if *two_phase { " two-phase" } else { "" }
    )
}

/// Describes the tile size without matrix cores if the row has only one: tile, register tile and invocations.
fn scalar_tile(row: &Tuning) -> String {
    match row.tile.sizes {
        [size] => {
            let TileSize {
                register_tile, depth, ..
            } = size;
            let [rows, columns] = [size.tile_rows(), size.tile_columns()];
            let [own_rows, own_columns] = register_tile.map(|quads| 4 * quads);
            format!("{rows}×{columns}×{depth} {own_rows}×{own_columns} {}t", size.threads())
        }
        _ => "chosen".into(),
    }
}
