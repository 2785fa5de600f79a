//! Grouped GEMM over experts on matrix cores, for many tokens.
//!
//! The first call sorts (token, expert) pairs by expert, so that a tile of pairs needs one matrix, and packs x as
//! [`crate::projection`] does. The second call computes the products of all experts.

use super::matrix_cores::{self, Fragments, PackedTokens, REFERENCES};
use super::split_k::SplitK;
use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::arguments::PushArguments;
use crate::kit::iterations::{self, looped};
use crate::kit::text::{SourceBuilder, address, grid};
use crate::linear::problem::{ProjectionProblem, StridedMatrix, WeightPlanes};
use crate::linear::source::declare_input;
use crate::tuning::Tuning;
use crate::{Call, CallOrder, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "expert_matmul";

/// A grouped GEMM with checked operands and the weights of `experts` experts.
pub(crate) struct Grouped<'p> {
    pub x: &'p OperandSpec,
    pub ids: &'p OperandSpec,
    pub weights: &'p WeightPlanes<'p>,
    pub experts: usize,
    pub out: &'p OperandSpec,
}

impl Grouped<'_> {
    /// T, U and K.
    fn extents(&self) -> [usize; 3] {
        [0, 1, 2].map(|d| self.x.layout.shape[d])
    }

    /// Whether a token's experts share one vector of x.
    fn is_shared(&self) -> bool {
        self.extents()[1] == 1 || self.x.layout.strides[1] == 0
    }

    /// All pairs as the tokens of one product.
    fn problem(&self) -> Result<ProjectionProblem<'_>, Unsupported> {
        let [tokens, used, columns] = self.extents();
        let (rows, strides) = (self.out.layout.shape[2], &self.x.layout.strides);
        let between = if self.is_shared() { 0 } else { strides[1] };
        let x = StridedMatrix::of(0, self.x, [strides[0], 1], &[between])?;
        let out = StridedMatrix::of(2 + self.weights.weights().planes(), self.out, [rows, 1], &[])?;
        let weights = (self.weights.clone(), rows);
        Ok(ProjectionProblem::product(tokens * used, columns, x, weights, out))
    }

    /// The tile; `None` if the device, the tuning row or a size does not allow matrix cores.
    fn fragments(&self, problem: &ProjectionProblem<'_>, tuning: &Tuning, traits: &Traits) -> Option<Fragments> {
        let cores = traits.matrix_cores.filter(|_| matrix_cores::supported(traits))?;
        let tile = tuning.expert_tile(traits, cores.size, problem.tokens, self.experts)?;
        matrix_cores::check(problem).ok()?;
        let fragments = problem.fragments_of(tile, traits, cores, &problem.fusible_sections()[0]);
        let fits = (self.sorted(problem, &fragments).ok()?).fits(traits, tuning.row_threads);
        fits.then_some(fragments)
    }

    fn sorted<'s>(
        &self,
        problem: &'s ProjectionProblem<'s>,
        fragments: &'s Fragments,
    ) -> Result<SortedPairs<'s>, Unsupported> {
        let [tokens, used, _] = self.extents();
        let shared = self.is_shared();
        Ok(SortedPairs {
            problem,
            fragments,
            ids: address(OP, 1, self.ids)?,
            workspace: 3 + self.weights.weights().planes(),
            experts: self.experts,
            vectors: if shared { [tokens, 1] } else { [tokens * used, used] },
            between: if shared { 0 } else { self.x.layout.strides[1] },
            sharing: if shared { used } else { 1 },
        })
    }
}

impl Algorithm for Grouped<'_> {
    /// Each tile of pairs reads a whole matrix.
    fn cost(&self, tuning: &Tuning, traits: &Traits) -> Option<ProductCost> {
        let problem = self.problem().ok()?;
        let fragments = self.fragments(&problem, tuning, traits)?;
        let passes = problem.tokens.div_ceil(fragments.tile_tokens());
        Some(ProductCost { passes })
    }

    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let problem = self.problem()?;
        let Some(fragments) = self.fragments(&problem, tuning, traits) else {
            let what = format!("no matrix core tile for products with {} experts", self.experts);
            return Err(Unsupported::Size { op: OP, what });
        };
        let sorted = self.sorted(&problem, &fragments)?;
        let tokens = PackedTokens {
            family: OP,
            text: include_str!("grouped/tokens.glsl"),
            skip_empty: tuning.experts.skip_empty && fragments.tile.tokens > 1,
            arguments: &|arguments| sorted.product_arguments(arguments),
            tiles: sorted.tiles(),
            split_k: SplitK::NONE,
        };
        let calls = vec![
            sorted.prepare(traits, tuning.row_threads)?,
            problem.multiply(traits, &fragments, &problem.fusible_sections()[0], &tokens)?,
        ];
        Ok(ProjectionCalls {
            calls,
            order: CallOrder::Sequential,
            workspace: Some(OperandSpec::contiguous(DType::U32, &[sorted.words()[3]])),
            tickets: 0,
        })
    }
}

struct SortedPairs<'a> {
    problem: &'a ProjectionProblem<'a>,
    fragments: &'a Fragments,
    ids: Push,
    workspace: usize,
    experts: usize,
    /// Number of vectors of x, in total and per token.
    vectors: [usize; 2],
    /// Stride between the vectors of a token, in elements.
    between: usize,
    /// Pairs per vector.
    sharing: usize,
}

impl SortedPairs<'_> {
    /// Maximum number of tiles of pairs: the last tile of each expert may hold only one pair.
    fn tiles(&self) -> usize {
        let pairs = self.problem.tokens;
        let buckets = (self.experts + 1).min(pairs);
        (pairs - buckets) / self.fragments.tile_tokens() + buckets
    }

    /// Word offsets in the workspace, after packed x: factors, sorted pairs, tiles, and the end.
    fn words(&self) -> [usize; 4] {
        let packed = self.vectors[0] * self.fragments.depth() / 2;
        let sorted = packed + self.vectors[0];
        let tiles = sorted + self.problem.tokens;
        [packed, sorted, tiles, tiles + 3 * self.tiles()]
    }

    /// Whether a workgroup of `threads` invocations can sort the pairs, and offsets fit 32 bits.
    fn fits(&self, traits: &Traits, threads: u32) -> bool {
        let width = threads as usize;
        let turns = looped(self.problem.tokens.div_ceil(width), 0);
        let each = (self.experts + 1).div_ceil(width);
        let rounds = 2 * turns + looped(each, 0) + looped(self.tiles() + each, 0) + looped(32, 0);
        let shared = 4 * (self.experts + 1) + 12 * width + 1024;
        shared <= traits.shared_bytes as usize
            && iterations::max_iterations(traits).is_none_or(|max| rounds <= max)
            && u32::try_from(4 * self.words()[3]).is_ok()
    }

    fn workspace_address(&self, words: usize) -> Push {
        Push::Address {
            operand: self.workspace,
            bytes: 4 * words as u64,
        }
    }

    /// Adds the arguments that both calls share.
    fn arguments(&self, sorted_ref: &str, arguments: &mut PushArguments) {
        let [factors, sorted, tiles, _] = self.words();
        arguments.address("packed_ref packed", self.workspace_address(0));
        arguments.address("factors_ref factors", self.workspace_address(factors));
        arguments.address(format!("{sorted_ref} sorted"), self.workspace_address(sorted));
        arguments.address(format!("{sorted_ref} tiles"), self.workspace_address(tiles));
        arguments.number("BLOCKS", self.fragments.blocks);
        arguments.number("TILES", self.tiles());
    }

    fn product_arguments(&self, arguments: &mut PushArguments) {
        self.arguments("words_ref", arguments);
        arguments.number("TOKENS", self.problem.tokens);
        arguments.number("EXPERTS", self.experts);
        arguments.number("SHARING", self.sharing);
    }

    /// Returns the call that packs x and sorts pairs by expert, with workgroups of `threads` invocations.
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
        let [lanes, held] = self.fragments.packing(traits);
        let rows = (threads / lanes).max(1);
        let declaration = arguments.declaration();
        let text = SourceBuilder::with_fragments(traits, &format!("{OP}.prepare"))
            .define("LANE_VALUE", "vec2")
            .define("HELD", format!("{held}u"))
            .input("experts", DType::U32);
        let text = self.fragments.define(traits, declare_input(text, self.problem, 8));
        let kernel = text
            .body(REFERENCES)
            .body("layout(buffer_reference) buffer sorted_ref;\n")
            .body(&declaration)
            .body(include_str!("../../kit/lanes.glsl"))
            .body(include_str!("matrix_cores/pack.glsl"))
            .body(include_str!("grouped/sort.glsl"))
            .body(include_str!("grouped/prepare.comp"))
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
