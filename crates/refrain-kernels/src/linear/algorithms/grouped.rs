//! Grouped GEMM over experts on matrix cores, for many tokens.
//!
//! The first call sorts (token, expert) pairs by expert, so that a tile of pairs needs one matrix, and packs x as
//! [`crate::projection`] does. The second call computes the products of all experts.

use super::matrix_cores::{self, Fragments, PackedTokens, REFERENCES};
use super::split_k::SplitK;
use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::arguments::PushArguments;
use crate::kit::iterations::{self, looped};
use crate::kit::text::{SourceBuilder, grid};
use crate::linear::arguments::{InputSource, arguments};
use crate::linear::problem::ProjectionProblem;
use crate::linear::routing::Routing;
use crate::linear::source::declare_input;
use crate::tuning::Tuning;
use crate::{Call, CallOrder, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "expert_matmul";

/// A grouped GEMM with checked operands.
pub(crate) struct Grouped<'p> {
    /// All (token, expert) pairs as the tokens of one product.
    pairs: ProjectionProblem<'p>,
    routing: Routing,
    /// Stride between the vectors of x of a token's experts, in elements; `None` if they share one.
    between: Option<usize>,
}

impl<'p> Grouped<'p> {
    /// The products of a problem with routing, where each expert yields a result. x has a row for each token; `between` is
    /// as in the struct.
    ///
    /// # Errors
    /// If the results of a token's experts are added up, or x is normalised.
    pub(crate) fn new(problem: ProjectionProblem<'p>, between: Option<usize>) -> Result<Grouped<'p>, Unsupported> {
        let mut pairs = problem;
        match pairs.routing.take() {
            Some(routing) if routing.weights.is_none() && pairs.norm.is_none() => {
                pairs.tokens = routing.repeats();
                Ok(Grouped {
                    pairs,
                    routing,
                    between,
                })
            }
            _ => Err(Unsupported::Size {
                op: OP,
                what: "a grouped GEMM neither normalises nor adds up".to_owned(),
            }),
        }
    }

    /// The tile; `None` if the device, the tuning row or a size does not allow matrix cores.
    fn fragments(&self, tuning: &Tuning, traits: &Traits) -> Option<Fragments> {
        let (problem, sections) = (&self.pairs, self.pairs.fusible_sections());
        let cores = traits.matrix_cores.filter(|_| matrix_cores::supported(traits))?;
        let parts = sections[0][0].parts.len();
        let tile = tuning.expert_tile(traits, cores.size, [problem.tokens, self.routing.count, parts])?;
        matrix_cores::check(problem).ok()?;
        let fragments = problem.fragments_of(tile, traits, cores, &sections[0]);
        let fits = self.sorted(&fragments).fits(traits, tuning.row_threads);
        fits.then_some(fragments)
    }

    fn required_fragments(&self, tuning: &Tuning, traits: &Traits) -> Result<Fragments, Unsupported> {
        self.fragments(tuning, traits).ok_or_else(|| Unsupported::Size {
            op: OP,
            what: format!("no matrix core tile for products with {} experts", self.routing.count),
        })
    }

    fn sorted<'s>(&'s self, fragments: &'s Fragments) -> SortedPairs<'s> {
        SortedPairs {
            grouped: self,
            fragments,
        }
    }
}

impl Algorithm for Grouped<'_> {
    /// Each tile of pairs reads a whole matrix.
    fn cost(&self, tuning: &Tuning, traits: &Traits) -> Option<ProductCost> {
        let fragments = self.fragments(tuning, traits)?;
        let passes = self.pairs.tokens.div_ceil(fragments.tile_tokens());
        Some(ProductCost { passes })
    }

    fn check(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        let fragments = self.required_fragments(tuning, traits)?;
        let sorted = self.sorted(&fragments);
        let (sections, packed) = (self.pairs.fusible_sections(), |all: &mut PushArguments| {
            sorted.product_arguments(all)
        });
        arguments(traits, &self.pairs, &sections[0], InputSource::Packed(&packed)).map(drop)
    }

    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let fragments = self.required_fragments(tuning, traits)?;
        let sorted = self.sorted(&fragments);
        let tokens = PackedTokens {
            family: OP,
            text: include_str!("grouped/tokens.glsl"),
            skip_empty: tuning.experts.skip_empty && fragments.tile.tokens > 1,
            arguments: &|arguments| sorted.product_arguments(arguments),
            tiles: sorted.tiles(),
            split_k: SplitK::NONE,
        };
        let sections = self.pairs.fusible_sections();
        let calls = vec![
            sorted.prepare(traits, tuning.row_threads)?,
            self.pairs.multiply(traits, &fragments, &sections[0], &tokens)?,
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
    grouped: &'a Grouped<'a>,
    fragments: &'a Fragments,
}

impl SortedPairs<'_> {
    /// Number of (token, expert) pairs.
    fn pairs(&self) -> usize {
        self.grouped.pairs.tokens
    }

    /// Number of vectors of x, in total and per token.
    fn vectors(&self) -> [usize; 2] {
        let Routing { tokens, used, .. } = self.grouped.routing;
        match self.grouped.between {
            Some(_) => [tokens * used, used],
            None => [tokens, 1],
        }
    }

    /// Maximum number of tiles of pairs: the last tile of each expert may hold only one pair.
    fn tiles(&self) -> usize {
        let pairs = self.pairs();
        let buckets = (self.grouped.routing.count + 1).min(pairs);
        (pairs - buckets) / self.fragments.tile_tokens() + buckets
    }

    /// Word offsets in the workspace, after packed x: factors, sorted pairs, tiles, and the end.
    fn words(&self) -> [usize; 4] {
        let [vectors, _] = self.vectors();
        let packed = vectors * self.fragments.depth() / 2;
        let sorted = packed + vectors;
        let tiles = sorted + self.pairs();
        [packed, sorted, tiles, tiles + 3 * self.tiles()]
    }

    /// Whether a workgroup of `threads` invocations can sort the pairs, and offsets fit 32 bits.
    fn fits(&self, traits: &Traits, threads: u32) -> bool {
        let width = threads as usize;
        let turns = looped(self.pairs().div_ceil(width), 0);
        let buckets = self.grouped.routing.count + 1;
        let each = buckets.div_ceil(width);
        let rounds = 2 * turns + looped(each, 0) + looped(self.tiles() + each, 0) + looped(32, 0);
        let shared = 4 * buckets + 12 * width + 1024;
        shared <= traits.shared_bytes as usize
            && iterations::max_iterations(traits).is_none_or(|max| rounds <= max)
            && u32::try_from(4 * self.words()[3]).is_ok()
    }

    fn workspace_address(&self, words: usize) -> Push {
        Push::Address {
            operand: self.grouped.pairs.operands,
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
        let Routing {
            count, used, between, ..
        } = self.grouped.routing;
        arguments.number("TOKENS", self.pairs());
        arguments.number("EXPERTS", count);
        arguments.number("EXPERT_ROWS", between);
        arguments.number("SHARING", used / self.vectors()[1]);
    }

    /// Returns the call that packs x and sorts pairs by expert, with workgroups of `threads` invocations.
    fn prepare(&self, traits: &Traits, threads: u32) -> Result<Call, Unsupported> {
        let Grouped {
            pairs: problem,
            routing,
            between,
        } = self.grouped;
        let [vectors, of_a_token] = self.vectors();
        let mut arguments = PushArguments::new(traits);
        arguments.address("x_ref x", problem.x.address.clone());
        arguments.address("experts_ref experts", routing.experts.clone());
        self.arguments("sorted_ref", &mut arguments);
        arguments.number("COLUMNS", problem.columns);
        arguments.number("PAIRS", problem.tokens);
        arguments.number("VECTORS", vectors);
        arguments.stride("X_VECTORS", of_a_token);
        arguments.stride("X_STRIDE", problem.x.strides[0]);
        arguments.stride("X_BETWEEN", between.unwrap_or(0));
        arguments.stride("X_WITHIN", problem.x.strides[1]);
        arguments.check(OP)?;
        let [lanes, held] = self.fragments.packing(traits);
        let rows = (threads / lanes).max(1);
        let declaration = arguments.declaration();
        let text = SourceBuilder::with_fragments(traits, &format!("{OP}.prepare"))
            .define("LANE_VALUE", "vec2")
            .define("HELD", format!("{held}u"))
            .input("experts", DType::U32);
        let text = self.fragments.define(traits, declare_input(text, problem, 8));
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
                (6, routing.count as u32 + 1),
            ]);
        Ok(Call {
            kernel,
            groups: grid(OP, 1 + vectors.div_ceil(rows as usize))?,
            push: arguments.push(),
        })
    }
}
