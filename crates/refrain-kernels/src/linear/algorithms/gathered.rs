//! Matrices of experts times vectors that are routed to them, each pair of a token and an expert by itself.

use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::iterations::{self, joined_lanes, looped};
use crate::kit::text::{Text, address, is_wide};
use crate::linear::problem::WeightPlanes;
use crate::linear::sources::quant_run;
use crate::tuning::{self, Tuning};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "expert_matmul";

/// Such products: x, the experts and the result, the matrices and how many rows they have in all.
pub(crate) struct GatheredGemv<'p> {
    pub operands: [&'p OperandSpec; 3],
    pub planes: &'p WeightPlanes<'p>,
    pub all_rows: usize,
    pub x_strides: &'p [Push],
}

impl Algorithm for GatheredGemv<'_> {
    /// Each pair reads a matrix.
    fn cost(&self, _: &Tuning, _: &Traits) -> Option<ProductCost> {
        let passes = self.operands[1].layout.count();
        Some(ProductCost { passes })
    }

    fn calls(&self, _: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let call = dots(
            traits,
            self.operands,
            self.planes,
            self.all_rows,
            self.x_strides.to_vec(),
        )?;
        Ok(ProjectionCalls::apart(vec![call]))
    }
}

/// The call of which each workgroup takes rows for one pair of a token and an expert.
fn dots(
    traits: &Traits,
    [x, experts, out]: [&OperandSpec; 3],
    planes: &WeightPlanes<'_>,
    all_rows: usize,
    x_strides: Vec<Push>,
) -> Result<Call, Unsupported> {
    let &[tokens, used, k] = &x.layout.shape[..] else {
        unreachable!("checked");
    };
    let (pairs, rows) = (tokens * used, out.layout.shape[2]);
    if pairs > 65_535 {
        let what = format!("{pairs} products of a token and an expert");
        return Err(Unsupported::Size { op: OP, what });
    }
    let text = Text::new(traits, OP)
        .define("LANE_VALUE", "float")
        .input("x", x.dtype)
        .input("experts", DType::U32)
        .output("y", out.dtype);
    let text = match planes {
        WeightPlanes::Dense { dtype, wide, .. } => {
            // As many elements as fill 16 bytes: what an invocation loads at once.
            let run = 16 / dtype.size();
            let text = text.input("w", *dtype);
            if *wide && is_wide(x, &x.layout.strides[..2]) {
                text.define("RUN", run)
                    .runs("x", x.dtype, run, true)
                    .runs("w", *dtype, run, true)
            } else {
                text
            }
        }
        WeightPlanes::Quantised(weights) => {
            let wide = is_wide(x, &x.layout.strides[..2]);
            let run = quant_run(weights.format);
            weights.declare(text).runs("x", x.dtype, run, wide)
        }
    };
    let lanes = tuning::lanes(traits);
    let rounds = looped(k.div_ceil(lanes as usize), 0) + joined_lanes(traits);
    iterations::check(OP, traits, rounds, || format!("sums over {k} products"))?;
    let rows_per_group = (traits.workgroup(128) / lanes).max(1);
    let kernel = text
        .body(include_str!("../../kit/lanes.glsl"))
        .body(include_str!("gathered/gathered.comp"))
        .kernel(vec![
            (0, lanes * rows_per_group),
            (3, lanes),
            (4, rows_per_group),
            (8, planes.weights().group()),
        ]);
    let mut push = vec![address(OP, 0, x)?, address(OP, 1, experts)?];
    push.extend(planes.addresses());
    push.push(address(OP, push.len(), out)?);
    push.extend([used, all_rows / rows, rows, k].map(|v| Push::U32(v as u32)));
    push.extend(x_strides);
    let groups = [rows.div_ceil(rows_per_group as usize) as u32, pairs as u32, 1];
    Ok(Call { kernel, groups, push })
}
