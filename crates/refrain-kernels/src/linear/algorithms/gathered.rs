//! Products with the matrices of experts, one (token, expert) pair per workgroup.

use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::iterations::{self, lane_reduction, looped};
use crate::kit::text::{SourceBuilder, address, is_wide};
use crate::linear::problem::WeightPlanes;
use crate::linear::sources::quant_run;
use crate::tuning::{self, Tuning};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "expert_matmul";

/// Products with the matrices of experts. The operands are x, the experts and the result; `all_rows` is the number of
/// rows of all experts.
pub(crate) struct GatheredGemv<'p> {
    pub operands: [&'p OperandSpec; 3],
    pub planes: &'p WeightPlanes<'p>,
    pub all_rows: usize,
    pub x_strides: &'p [Push],
}

impl Algorithm for GatheredGemv<'_> {
    /// Each pair reads a whole matrix.
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
        Ok(ProjectionCalls::independent(vec![call]))
    }
}

/// Returns the call. Each workgroup computes rows for one (token, expert) pair.
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
        let what = format!("{pairs} (token, expert) pairs exceed 65,535");
        return Err(Unsupported::Size { op: OP, what });
    }
    let text = SourceBuilder::new(traits, OP)
        .define("LANE_VALUE", "float")
        .input("x", x.dtype)
        .input("experts", DType::U32)
        .output("y", out.dtype);
    let text = match planes {
        WeightPlanes::Dense { dtype, wide, .. } => {
            // An invocation loads 16 bytes at once.
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
    let rounds = looped(k.div_ceil(lanes as usize), 0) + lane_reduction(traits);
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
