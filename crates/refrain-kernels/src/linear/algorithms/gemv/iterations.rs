//! Loop iterations of the small-M GEMV kernel.

use super::GemvDivision;
use crate::Traits;
use crate::kit::iterations::{lane_reduction, loop_or_unrolled, looped};
use crate::kit::largest;
use crate::linear::problem::{ProjectionProblem, SectionPlan, WeightPlanes};
use crate::tuning::GemvTuning;

/// Returns the iterations of an invocation that stages x as floats, `tile` chunks at a time.
pub(super) fn iterations(
    traits: &Traits,
    gemv: &GemvTuning,
    problem: &ProjectionProblem<'_>,
    sections: &[&SectionPlan<'_>],
    division: &GemvDivision,
    tile: usize,
) -> usize {
    let unroll = |turns: usize, inner: usize| loop_or_unrolled(gemv.unrolled, turns, inner);
    let part = &sections[0].parts[0];
    let GemvDivision { lanes, rows, .. } = *division;
    let [each, loads] = [division.each, division.loads].map(|n| n as usize);
    let (chunk, matrices) = (part.chunk(), each * sections[0].parts.len());
    let load = match part.planes {
        WeightPlanes::Dense { wide: false, .. } => loads * matrices * unroll(chunk, 0),
        _ => 0,
    };
    let norms = match problem.norm {
        Some(_) => unroll(problem.tokens, lane_reduction(traits)) + unroll(problem.tokens, looped(rows as usize, 0)),
        None => 0,
    };
    let finish = matrices * problem.tokens * lane_reduction(traits);
    // Branches that are not taken still count: staging a tile, norms, and finishing a block.
    let idle = 2 * looped(1, looped(1, 0)) + finish + usize::from(norms > 0) * looped(2, looped(1, 0));
    // A chunk has at least one term. With more, fewer quads share a loop.
    let step = 1 + load + unroll(loads, unroll(chunk / 4, 0)) + idle;
    let steps = tile.div_ceil(lanes as usize * loads);
    let turns = (chunk / 4 * tile).div_ceil((lanes * rows) as usize);
    let stage = unroll(problem.tokens, looped(turns, 0));
    let tiles = problem.depth().div_ceil(chunk).div_ceil(tile);
    let block = tiles.saturating_mul(stage + steps * step) + norms;
    let blocks = division.blocks(sections).div_ceil(gemv.max_groups.on(traits));
    let batches = problem.repeats().div_ceil(65_535);
    let top_k = problem.top_k_of(sections).map_or(0, |(top_k, section)| {
        let found = largest::iterations(sections[section].rows, top_k.count, (lanes * rows) as usize);
        looped(problem.tokens, found)
    });
    batches.saturating_mul(top_k + looped(blocks, block))
}
