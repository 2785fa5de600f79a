//! Attention over a paged key and value state, on the flat token axis.
//!
//! `q` `[T, H, D]`, `keys` and `values` `[slots, KVH, D]` (f32, f16 or bf16 each; D even, 2 to 256),
//! `positions` `[T]` i32, `sequences` `[T]` u32, `pages` `[S, P]` u32 → `out` `[T, H, D]`, any float
//! type. Token `t` attends over the positions `p` from `max(0, positions[t] − window + 1)` up to and
//! including `positions[t]` of sequence `s = sequences[t]`; position `p` lies in slot
//! `pages[s, p / page_size] · page_size + p % page_size`, and query head `h` reads key head
//! `h / (H / KVH)`. `out = Σ_p softmax_p(scale · q·k_p) · v_p`, accumulated in f32.
//!
//! A token whose position is negative is padding and gives zeros. Nothing outside the operands is
//! ever read: a sequence number is clamped to the last one, a page to the last that holds a slot, a
//! slot to the last slot, and positions from `P · page_size` on do not exist. A softmax over no
//! position gives zeros.

mod reference;

pub use reference::{Inputs, reference};

use crate::text::{Text, address, require_dtype, require_float, require_shape};
use crate::tuning::{self, Tuning};
use crate::{Call, DType, Kernel, Operand, Push, Traits, Unsupported};

const OP: &str = "attention";

/// What [`call`] is asked for beside its operands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// Factor of the scores, usually `1/√D`.
    pub scale: f32,
    /// Slots per page.
    pub page_size: u32,
    /// How many positions, the token's own included, are attended over; `None` for all.
    pub window: Option<u32>,
}

/// The call that computes attention. Operands: q 0, keys 1, values 2, positions 3, sequences 4,
/// pages 5, out 6.
///
/// # Errors
/// When dtypes or shapes do not fit, the last dimension of `q` or `out` does not lie together or
/// another operand has gaps ([`Unsupported::NeedsContiguous`]), or a size is beyond what a dispatch or
/// 32-bit indices reach.
#[allow(clippy::too_many_arguments)]
pub fn call(
    traits: &Traits,
    q: &Operand,
    keys: &Operand,
    values: &Operand,
    positions: &Operand,
    sequences: &Operand,
    pages: &Operand,
    out: &Operand,
    params: &Params,
) -> Result<Call, Unsupported> {
    let operands = [q, keys, values, positions, sequences, pages, out];
    call_tuned(tuning::choose(traits), traits, operands, params)
}

/// [`call`] with a given row of the tuning table; operands in their order.
pub fn call_tuned(
    tuning: &Tuning,
    traits: &Traits,
    operands: [&Operand; 7],
    params: &Params,
) -> Result<Call, Unsupported> {
    let sizes = Sizes::of(operands, params)?;
    let mut push = Vec::new();
    for (number, operand) in operands.into_iter().enumerate() {
        push.push(address(OP, number, operand)?);
    }
    let [q, .., out] = operands;
    let pages_reach = sizes.table * params.page_size as usize;
    let numbers = [
        (sizes.heads / sizes.kv_heads) as u32,
        sizes.kv_heads as u32,
        sizes.head_dim as u32,
        sizes.slots as u32,
        sizes.sequences as u32,
        sizes.table as u32,
        pages_reach.min(i32::MAX as usize) as u32,
        params.window.unwrap_or(u32::MAX),
        q.layout.strides[0] as u32,
        q.layout.strides[1] as u32,
        out.layout.strides[0] as u32,
        out.layout.strides[1] as u32,
    ];
    push.extend(numbers.map(Push::U32));
    push.push(Push::F32(params.scale));
    let together = heads_together(tuning, &sizes);
    let groups = [sizes.heads / together, sizes.tokens, 1];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!("{} tokens and {} heads; the most is 65535", sizes.tokens, sizes.heads);
        return Err(Unsupported::Size { op: OP, what });
    }
    Ok(Call {
        kernel: kernel(tuning, traits, operands, &sizes, (together, params.page_size)),
        groups: groups.map(|g| g.max(1) as u32),
        push,
    })
}

/// Checked extents.
struct Sizes {
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    slots: usize,
    sequences: usize,
    table: usize,
}

impl Sizes {
    fn of(operands: [&Operand; 7], params: &Params) -> Result<Sizes, Unsupported> {
        let [q, keys, values, positions, sequences, pages, out] = operands;
        let size = |what: String| Unsupported::Size { op: OP, what };
        for operand in [q, keys, values, out] {
            require_float(OP, operand)?;
        }
        require_dtype(OP, positions, DType::I32)?;
        require_dtype(OP, sequences, DType::U32)?;
        require_dtype(OP, pages, DType::U32)?;
        let shapes = (&q.layout.shape[..], &keys.layout.shape[..], &pages.layout.shape[..]);
        let (&[tokens, heads, head_dim], &[slots, kv_heads, _], &[rows, table]) = shapes else {
            return Err(size(format!(
                "q, keys and pages have shapes {:?}, {:?} and {:?}, expected 3, 3 and 2 dimensions",
                shapes.0, shapes.1, shapes.2
            )));
        };
        require_shape(OP, "keys", keys, &[slots, kv_heads, head_dim])?;
        require_shape(OP, "values", values, &[slots, kv_heads, head_dim])?;
        require_shape(OP, "positions", positions, &[tokens])?;
        require_shape(OP, "sequences", sequences, &[tokens])?;
        require_shape(OP, "the result", out, &[tokens, heads, head_dim])?;
        if head_dim % 2 != 0 || !(2..=256).contains(&head_dim) {
            return Err(size(format!(
                "heads of {head_dim} values; an even number up to 256 is needed"
            )));
        }
        if kv_heads == 0 || heads % kv_heads != 0 {
            return Err(size(format!(
                "{heads} query heads do not share {kv_heads} key heads evenly"
            )));
        }
        if params.page_size == 0 {
            return Err(size("pages of 0 slots".to_string()));
        }
        for (operand, number) in operands.into_iter().zip(0..) {
            let together = match number {
                0 | 6 => operand.layout.strides[2] == 1,
                // Pairs of elements are loaded at once.
                1 | 2 => operand.layout.is_contiguous() && operand.layout.offset % 8 == 0,
                _ => operand.layout.is_contiguous(),
            };
            if !together {
                return Err(Unsupported::NeedsContiguous {
                    op: OP,
                    operand: number,
                });
            }
        }
        Ok(Sizes {
            tokens,
            heads,
            kv_heads,
            head_dim,
            slots,
            sequences: rows,
            table,
        })
    }
}

/// How many query heads of one key head a workgroup takes: the more, the fewer times keys and values
/// are read, as long as there are enough workgroups.
fn heads_together(tuning: &Tuning, sizes: &Sizes) -> usize {
    let ratio = sizes.heads / sizes.kv_heads;
    let attention = tuning.attention;
    (1..=attention.most_heads as usize)
        .filter(|&n| ratio.is_multiple_of(n))
        .filter(|&n| n == 1 || sizes.tokens * sizes.heads / n >= attention.enough_groups)
        .max()
        .unwrap_or(1)
}

fn kernel(
    tuning: &Tuning,
    traits: &Traits,
    [q, keys, values, .., out]: [&Operand; 7],
    sizes: &Sizes,
    (together, page_size): (usize, u32),
) -> Kernel {
    let lanes = tuning::lanes(traits);
    let threads = match together {
        1 => tuning.attention.threads,
        _ => tuning.attention.threads_together,
    };
    let rows = threads / lanes;
    let pairs = (sizes.head_dim / 2).div_ceil(lanes as usize);
    // Narrow subgroups hold many pairs per invocation; unrolled, such a kernel takes seconds to
    // compile on software drivers, and arrays in memory cost those nothing.
    let unroll_pairs = u32::from(lanes >= 16);
    Text::new(traits, OP)
        .define("LANE_VALUE", "vec4")
        .define("UNROLL_PAIRS", unroll_pairs)
        .input("q", q.dtype)
        .pairs("keys", keys.dtype)
        .pairs("values", values.dtype)
        .input("positions", DType::I32)
        .input("sequences", DType::U32)
        .input("pages", DType::U32)
        .output("y", out.dtype)
        .body(include_str!("../shaders/lanes.glsl"))
        .body(include_str!("../shaders/attention.comp"))
        .kernel(vec![
            (0, lanes * rows),
            (3, lanes),
            (4, rows),
            (5, pairs as u32),
            (6, together as u32),
            (7, page_size),
        ])
}
