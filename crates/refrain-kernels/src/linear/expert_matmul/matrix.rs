//! Products of many tokens on matrix cores, all experts' in one call: another before it sorts the pairs of a
//! token and one of its experts by expert, so that tiles of them meet the same rows, and packs x as
//! [`crate::projection`] does.

use super::OP;
use crate::kit::arguments::PushArguments;
use crate::kit::iterations::{self, looped};
use crate::kit::text::{Text, address, grid, hash};
use crate::projection::matrix::{self, Fragments, PackedTokens, REFERENCES, cores_of};
use crate::projection::source::declared_input;
use crate::projection::{ProjectionProblem, StridedMatrix, WeightPlanes};
use crate::tuning::{self, Tuning};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

/// What is multiplied: checked operands, W of `experts` experts.
pub(super) struct GroupedProduct<'a> {
    pub x: &'a OperandSpec,
    pub ids: &'a OperandSpec,
    pub weights: WeightPlanes<'a>,
    pub experts: usize,
    pub out: &'a OperandSpec,
}

/// The calls, the second depending on the first, and their workspace, the operand behind the others. None
/// where the device, the tuning or a size is not for them.
pub(super) fn calls(
    tuning: &Tuning,
    traits: &Traits,
    product: GroupedProduct<'_>,
) -> Result<Option<(Vec<Call>, OperandSpec)>, Unsupported> {
    let &[tokens, used, columns] = &product.x.layout.shape[..] else {
        return Ok(None);
    };
    let (pairs, experts) = (tokens * used, product.experts);
    let tile = traits
        .matrix_cores
        .and_then(|cores| tuning.expert_tile(traits, cores.size, pairs, experts));
    let (true, Some(tile)) = (matrix::takes(traits), tile) else {
        return Ok(None);
    };
    let cores = cores_of(traits)?;
    let rows = product.out.layout.shape[2];
    let last = 2 + product.weights.weights().planes();
    let strides = &product.x.layout.strides;
    let shared = used == 1 || strides[1] == 0;
    let x = StridedMatrix::of(0, product.x, [strides[0], 1], &[if shared { 0 } else { strides[1] }])?;
    let out = StridedMatrix::of(last, product.out, [rows, 1], &[])?;
    let problem = ProjectionProblem::product(pairs, columns, x, (product.weights, rows), out);
    if matrix::check(&problem).is_err() {
        return Ok(None);
    }
    let sections = problem.alike();
    let fragments = problem.fragments_of(tile, traits, cores, &sections[0]);
    let grouped = Grouped {
        problem: &problem,
        fragments: &fragments,
        ids: address(OP, 1, product.ids)?,
        workspace: last + 1,
        experts,
        vectors: if shared { [tokens, 1] } else { [pairs, used] },
        between: if shared { 0 } else { strides[1] },
        sharing: if shared { used } else { 1 },
    };
    let threads = tuning.row_threads;
    if !grouped.fits(traits, threads) {
        return Ok(None);
    }
    let tokens = PackedTokens {
        family: OP,
        text: include_str!("tokens.glsl"),
        skips: tuning.experts.skips && tile.tokens > 1,
        arguments: &|arguments| grouped.product_arguments(arguments),
        tiles: grouped.tiles(),
    };
    let calls = vec![
        grouped.prepare(traits, threads)?,
        problem.multiply(traits, &fragments, &sections[0], &tokens)?,
    ];
    Ok(Some((
        calls,
        OperandSpec::contiguous(DType::U32, &[grouped.words()[3]]),
    )))
}

struct Grouped<'a> {
    problem: &'a ProjectionProblem<'a>,
    fragments: &'a Fragments,
    ids: Push,
    workspace: usize,
    experts: usize,
    /// Vectors of x, and how many are `between` elements apart before the next stride between tokens.
    vectors: [usize; 2],
    between: usize,
    /// Pairs that share a vector.
    sharing: usize,
}

impl Grouped<'_> {
    /// The most tiles of pairs: all experts' last ones may have a pair alone.
    fn tiles(&self) -> usize {
        let pairs = self.problem.tokens;
        let buckets = (self.experts + 1).min(pairs);
        (pairs - buckets) / self.fragments.tile_tokens() + buckets
    }

    /// Where the workspace holds, behind packed x: factors, sorted pairs and tiles; and its end.
    fn words(&self) -> [usize; 4] {
        let packed = self.vectors[0] * self.fragments.depth() / 2;
        let sorted = packed + self.vectors[0];
        let tiles = sorted + self.problem.tokens;
        [packed, sorted, tiles, tiles + 3 * self.tiles()]
    }

    /// Whether a workgroup of `threads` invocations can sort the pairs, and numbers reach.
    fn fits(&self, traits: &Traits, threads: u32) -> bool {
        let width = threads as usize;
        let turns = looped(self.problem.tokens.div_ceil(width), 0);
        let each = (self.experts + 1).div_ceil(width);
        let rounds = 2 * turns + looped(each, 0) + looped(self.tiles() + each, 0) + looped(32, 0);
        let shared = 4 * (self.experts + 1) + 12 * width + 1024;
        shared <= traits.shared_bytes as usize
            && iterations::most(traits).is_none_or(|most| rounds <= most)
            && u32::try_from(4 * self.words()[3]).is_ok()
    }

    fn place(&self, words: usize) -> Push {
        Push::Address {
            operand: self.workspace,
            bytes: 4 * words as u64,
        }
    }

    /// The arguments that both calls have.
    fn arguments(&self, sorted_ref: &str, arguments: &mut PushArguments) {
        let [factors, sorted, tiles, _] = self.words();
        arguments.address("packed_ref packed", self.place(0));
        arguments.address("factors_ref factors", self.place(factors));
        arguments.address(format!("{sorted_ref} sorted"), self.place(sorted));
        arguments.address(format!("{sorted_ref} tiles"), self.place(tiles));
        arguments.number("BLOCKS", self.fragments.blocks);
        arguments.number("TILES", self.tiles());
    }

    fn product_arguments(&self, arguments: &mut PushArguments) {
        self.arguments("words_ref", arguments);
        arguments.number("TOKENS", self.problem.tokens);
        arguments.number("EXPERTS", self.experts);
        arguments.number("SHARING", self.sharing);
    }

    /// The call that packs x and sorts pairs by expert, with workgroups of `threads` invocations.
    fn prepare(&self, traits: &Traits, threads: u32) -> Result<Call, Unsupported> {
        let mut arguments = PushArguments::new(traits);
        arguments.address("x_ref x", self.problem.x.address.clone());
        arguments.address("experts_ref experts", self.ids.clone());
        self.arguments("sorted_ref", &mut arguments);
        arguments.number("COLUMNS", self.problem.columns);
        arguments.number("PAIRS", self.problem.tokens);
        arguments.number("VECTORS", self.vectors[0]);
        arguments.stride("X_VECTORS", self.vectors[1]);
        arguments.stride("X_STRIDE", self.problem.x.strides[0]);
        arguments.stride("X_BETWEEN", self.between);
        arguments.stride("X_WITHIN", 1);
        arguments.check(OP)?;
        // Two times eight values for each invocation.
        let wanted = (self.problem.columns / 16).next_power_of_two() as u32;
        let lanes = threads.min(wanted).max(tuning::lanes(traits));
        let rows = threads / lanes;
        let declaration = arguments.declaration();
        let text = Text::with_fragments(traits, &format!("{OP}.prepare.{:016x}", hash(&declaration)))
            .define("LANE_VALUE", "float")
            .input("experts", DType::U32);
        let text = self.fragments.define(traits, declared_input(text, self.problem, 8));
        let kernel = text
            .body(REFERENCES)
            .body("layout(buffer_reference) buffer sorted_ref;\n")
            .body(&declaration)
            .body(include_str!("../../kit/lanes.glsl"))
            .body(include_str!("../projection/matrix/pack.glsl"))
            .body(include_str!("sort.glsl"))
            .body(include_str!("prepare.comp"))
            .kernel(vec![
                (0, lanes * rows),
                (3, lanes),
                (4, rows),
                (5, self.fragments.tile_tokens() as u32),
                (6, self.experts as u32 + 1),
            ]);
        Ok(Call {
            kernel,
            groups: grid(OP, 1 + self.vectors[0].div_ceil(rows as usize))?,
            push: arguments.push(),
        })
    }
}
