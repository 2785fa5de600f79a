//! Products with the matrices of the experts that each token is routed to, of which alone anything is
//! read.
//!
//! `x` `[T, U, K]` floats, `experts` `[T, U]` u32, W of E experts as rows `[E·N, K]` (those of one expert
//! together), floats or quantised in the resident layout of [`crate::quantised`] → `out` `[T, U, N]`, any
//! float type: `out[t, u, n] = Σ_k x[t, u, k] · W[experts[t, u]·N + n, k]`, in f32. Zeros for an expert that
//! there is not.

use crate::iterations::{self, joined_lanes, looped};
use crate::matmul::Rows;
use crate::quantised::{self, QuantFormat, Weights};
use crate::text::{Text, address, is_wide, require_dtype, require_float, require_shape};
use crate::{Call, DType, Operand, Push, Traits, Unsupported, recurrence, tuning};

const OP: &str = "expert_matmul";

/// The experts' matrices, as operands from number 2 on.
#[derive(Clone, Copy)]
pub enum Matrices<'a> {
    /// Floats `[E·N, K]`.
    Dense(&'a Operand),
    /// Planes of a quantised matrix: quants, scales and, where the format has them, biases.
    Quantised(QuantFormat, [&'a Operand; 2], Option<&'a Operand>),
}

/// The call. Operands: x 0, experts 1, the matrices' from 2 on, then out. None where `out` is empty.
///
/// # Errors
/// When dtypes or shapes do not fit, an operand must be copied first
/// ([`Unsupported::NeedsContiguous`]), or a size is beyond what a kernel takes.
pub fn call(
    traits: &Traits,
    x: &Operand,
    experts: &Operand,
    matrices: Matrices<'_>,
    out: &Operand,
) -> Result<Vec<Call>, Unsupported> {
    require_float(OP, x)?;
    require_float(OP, out)?;
    require_dtype(OP, experts, DType::U32)?;
    let (&[tokens, used, k], &[.., rows]) = (&x.layout.shape[..], &out.layout.shape[..]) else {
        let what = format!("x has shape {:?}, expected three dimensions", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    };
    require_shape(OP, "the experts", experts, &[tokens, used])?;
    require_shape(OP, "the result", out, &[tokens, used, rows])?;
    if out.layout.count() == 0 {
        return Ok(Vec::new());
    }
    let text = Text::new(traits, OP)
        .define("LANE_VALUE", "float")
        .input("x", x.dtype)
        .input("experts", DType::U32)
        .output("y", out.dtype);
    let x_strides = recurrence::strides(OP, 0, x)?;
    let (text, all_rows, addresses, group) = match matrices {
        Matrices::Dense(w) => dense(text, x, w)?,
        Matrices::Quantised(format, [quants, scales], biases) => {
            let weights = Weights::new(format, 2, quants, scales, biases)?;
            require_shape(OP, "x", x, &[tokens, used, weights.columns])?;
            let run = quantised::run(format);
            let wide = is_wide(x, &x.layout.strides[..2]);
            let text = weights.declare(text).runs("x", x.dtype, run, wide);
            (text, weights.rows, weights.addresses().collect(), format.group)
        }
    };
    let last = 2 + addresses.len();
    for (number, operand) in [(1, experts), (last, out)] {
        if !operand.layout.is_contiguous() {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    let pairs = tokens * used;
    if pairs > 65_535 || !all_rows.is_multiple_of(rows) {
        let what = format!("{pairs} products with matrices of {rows} of {all_rows} rows");
        return Err(Unsupported::Size { op: OP, what });
    }
    let lanes = tuning::lanes(traits);
    let rounds = looped(k.div_ceil(lanes as usize), 0) + joined_lanes(traits);
    iterations::check(OP, traits, rounds, || format!("sums over {k} products"))?;
    let together = (traits.workgroup(128) / lanes).max(1);
    let kernel = text
        .body(include_str!("shaders/lanes.glsl"))
        .body(include_str!("shaders/expert_matmul.comp"))
        .kernel(vec![(0, lanes * together), (3, lanes), (4, together), (8, group)]);
    let mut push = vec![address(OP, 0, x)?, address(OP, 1, experts)?];
    push.extend(addresses);
    push.push(address(OP, last, out)?);
    push.extend([used, all_rows / rows, rows, k].map(|v| Push::U32(v as u32)));
    push.extend(x_strides);
    let groups = [rows.div_ceil(together as usize) as u32, pairs as u32, 1];
    Ok(vec![Call { kernel, groups, push }])
}

type Declared<'t> = (Text<'t>, usize, Vec<Push>, u32);

fn dense<'t>(text: Text<'t>, x: &Operand, w: &Operand) -> Result<Declared<'t>, Unsupported> {
    require_float(OP, w)?;
    let &[rows, columns] = &w.layout.shape[..] else {
        let what = format!("the experts have shape {:?}, expected a matrix", w.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    };
    require_shape(OP, "x", x, &[x.layout.shape[0], x.layout.shape[1], columns])?;
    if !w.layout.is_contiguous() {
        return Err(Unsupported::NeedsContiguous { op: OP, operand: 2 });
    }
    // As many elements as fill 16 bytes: what an invocation loads at once.
    let run = 16 / w.dtype.size();
    let mut text = text.input("w", w.dtype);
    if columns.is_multiple_of(run) && is_wide(w, &[]) && is_wide(x, &x.layout.strides[..2]) {
        let runs = |text: Text<'t>, name, dtype| text.runs(name, dtype, run, true);
        text = runs(runs(text.define("RUN", run), "x", x.dtype), "w", w.dtype);
    }
    Ok((text, rows, vec![address(OP, 2, w)?], 1))
}

/// The same in plain Rust: `x` `[T, U, K]` and `experts` `[T, U]`, gapless; `w` the matrices of all
/// experts, `rows` rows each. Each expert's are read once.
///
/// # Panics
/// When `x` does not have a row for each of `experts`.
pub fn reference(x: &[f32], experts: &[u32], w: &dyn Rows, rows: usize) -> Vec<f32> {
    let k = w.columns();
    let mut out = vec![0.0; experts.len() * rows];
    let mut wanted: Vec<u32> = experts.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    for expert in wanted {
        let first = expert as usize * rows;
        if first + rows > w.count() {
            continue;
        }
        let pairs: Vec<usize> = (0..experts.len()).filter(|&pair| experts[pair] == expert).collect();
        let x: Vec<f32> = pairs.iter().flat_map(|&pair| &x[pair * k..][..k]).copied().collect();
        let mut products = vec![0.0; pairs.len() * rows];
        w.multiply(&x, first..first + rows, &mut products);
        for (&pair, products) in pairs.iter().zip(products.chunks(rows)) {
            out[pair * rows..][..rows].copy_from_slice(products);
        }
    }
    out
}
