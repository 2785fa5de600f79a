//! Projections of many tokens on matrix cores: x is packed into fragments of halves, normalised on the way,
//! and each kind of sections is one product.
//!
//! x is rounded to f16, times a power of two for each token that keeps any f32 in range, or taken as the sum of
//! two halves where products cost less than the weights' bytes; weights are rounded to f16 where they have more
//! bits; sums are in f32.

use super::parts::SumParts;
use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::arguments::PushArguments;
use crate::kit::text::{Text, grid};
use crate::linear::arguments::{InputSource, arguments};
use crate::linear::problem::{ProjectionProblem, SectionPart, SectionPlan, WeightPlanes};
use crate::linear::section::OP;
use crate::linear::source::{declared_input, declared_sections, generated};
use crate::tuning::{MatrixTile, SharedBy, Tuning};
use crate::vocabulary::{FragmentOrder, MatrixCores};
use crate::{Call, CallOrder, DType, OperandSpec, Push, Traits, Unsupported, tuning};

/// The arguments hold these references; the bodies behind them define what they are to.
pub(crate) const REFERENCES: &str =
    "layout(buffer_reference) buffer packed_ref;\nlayout(buffer_reference) buffer factors_ref;\n";

/// Whether a device may compute products with such weights here.
pub(crate) fn supported(traits: &Traits) -> bool {
    traits.matrix_cores.is_some() && traits.storage16
}

/// Fails where the operands are not what fragments are made from.
pub(crate) fn check(problem: &ProjectionProblem<'_>) -> Result<(), Unsupported> {
    let parts = problem.sections.iter().flat_map(|s| &s.parts);
    for part in parts {
        let takes = match &part.planes {
            WeightPlanes::Dense { dtype, wide, .. } => *wide && dtype.size() == 2,
            WeightPlanes::Quantised(_) => true,
        };
        let whole = problem.columns > 0 && problem.columns.is_multiple_of(chunk(&part.planes));
        if !takes || !whole || problem.batch.is_some() {
            let what = format!(
                "no fragments of {} columns and {}",
                problem.columns,
                part.planes.weights()
            );
            return Err(Unsupported::Size { op: OP, what });
        }
    }
    Ok(())
}

/// Neighbouring values of a row that a lane takes at once.
fn chunk(planes: &WeightPlanes<'_>) -> usize {
    match planes {
        WeightPlanes::Quantised(weights) if weights.format.bits < 8 => 32,
        _ => 16,
    }
}

/// Runs of eight values that an invocation which packs x is to hold. The fewer, the shorter is its text: 512 tokens of
/// Qwen3-0.6B F16 on an H100 by six 112,130 tokens/s, by two 116,480, by one 116,780; 8 sequences of Qwen3-8B Q4_K_M 1,901,
/// 1,937 and 1,945.
const RUNS_HELD: usize = 1;

/// Sizes of a product's fragments.
pub(crate) struct Fragments {
    pub cores: MatrixCores,
    /// Lanes of a subgroup.
    lanes: u32,
    /// Neighbouring values of a row that a lane takes at once.
    chunk: usize,
    /// Such chunks, times the lanes that share a row, that a row has.
    pub blocks: usize,
    pub tile: MatrixTile,
}

impl Fragments {
    /// Halves that a vector of x is packed into: a row of whole blocks, perhaps another of what its halves leave.
    pub(crate) fn depth(&self) -> usize {
        let row = self.blocks * self.chunk * self.cores.lanes_per_row() as usize;
        self.tile.halves as usize * row
    }

    /// Tokens of a tile.
    pub(crate) fn tile_tokens(&self) -> usize {
        (self.tile.tokens * self.cores.columns()) as usize
    }

    /// Fragments of rows of all matrices of a section that a subgroup takes.
    fn matrices(&self, sections: &[&SectionPlan<'_>]) -> u32 {
        let parts = sections[0].parts.len() as u32;
        self.tile.rows / parts * parts
    }

    /// Workgroups that share the rows of sections that are alike.
    fn row_blocks(&self, sections: &[&SectionPlan<'_>]) -> usize {
        let each = self.matrices(sections) / sections[0].parts.len() as u32;
        let rows = (self.tile.subgroups_apart() * each * self.cores.size) as usize;
        sections.iter().map(|s| s.rows.div_ceil(rows)).sum()
    }

    fn steps(&self) -> u32 {
        self.chunk as u32 / self.cores.values()
    }

    /// How vectors of x are packed: invocations to a vector, and runs of eight values that each holds.
    pub(crate) fn packing(&self, traits: &Traits) -> [u32; 2] {
        let row = self.blocks * self.chunk * self.cores.lanes_per_row() as usize;
        let runs = row.div_ceil(8);
        let wanted = runs.div_ceil(RUNS_HELD).next_power_of_two() as u32;
        let lanes = wanted.min(traits.max_invocations).max(tuning::lanes(traits));
        [lanes, runs.div_ceil(lanes as usize) as u32]
    }

    /// What the order and the sizes are called in shaders.
    pub(crate) fn define<'t>(&self, traits: &Traits, text: Text<'t>) -> Text<'t> {
        self.cores
            .define(
                traits,
                text.define("CHUNK", self.chunk).define("HALVES", self.tile.halves),
            )
            .body(include_str!("matrix_cores/blocks.glsl"))
    }
}

/// Which tokens the workgroups of a product take.
pub(crate) struct PackedTokens<'a> {
    /// The operation, and how its tokens are found: a part of the text's name.
    pub family: &'a str,
    /// The text that finds them.
    pub text: &'a str,
    /// Whether fragments without tokens are skipped.
    pub skips: bool,
    /// Adds the arguments that the text names.
    pub arguments: &'a dyn Fn(&mut PushArguments),
    /// Tiles of them.
    pub tiles: usize,
    /// How workgroups share the sums of a tile.
    pub shared: SumParts,
}

/// The device's matrix cores.
pub(crate) fn cores_of(traits: &Traits) -> Result<MatrixCores, Unsupported> {
    let what = || "this device has no matrix cores that kernels can use".to_string();
    traits
        .matrix_cores
        .ok_or_else(|| Unsupported::Size { op: OP, what: what() })
}

/// A product of fragments.
pub(crate) struct MatrixCoreProduct<'p>(pub &'p ProjectionProblem<'p>);

impl Algorithm for MatrixCoreProduct<'_> {
    /// Tokens share what is read of the weights.
    fn cost(&self, _: &Tuning, traits: &Traits) -> Option<ProductCost> {
        (supported(traits) && check(self.0).is_ok()).then_some(ProductCost { passes: 1 })
    }

    fn check(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        let problem = self.0;
        check(problem)?;
        let cores = cores_of(traits)?;
        for sections in problem.alike() {
            let fragments = problem.fragments(tuning, traits, cores, &sections);
            problem.pack_arguments(traits, &fragments, problem.operands)?;
            let shared = problem.sum_parts(traits, &fragments, &sections);
            let packed =
                |arguments: &mut PushArguments| problem.given(&fragments, &shared, problem.operands, arguments);
            arguments(traits, problem, &sections, InputSource::Packed(&packed))?;
        }
        Ok(())
    }

    /// The calls on matrix cores, for each kind of sections one that packs x and one product.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let problem = self.0;
        check(problem)?;
        let cores = cores_of(traits)?;
        let workspace = problem.operands;
        let mut calls = Vec::new();
        let (mut packed, mut words, mut tickets) = (None, 0, 0);
        let (mut packings, mut sharing) = (0, 0);
        for sections in problem.alike() {
            let fragments = problem.fragments(tuning, traits, cores, &sections);
            let tiles = problem.tiles(&fragments);
            let shape = (fragments.chunk, tiles, fragments.tile.halves, fragments.tile.narrow);
            if packed != Some(shape) {
                calls.push(problem.pack(traits, &fragments, workspace)?);
                packed = Some(shape);
                packings += 1;
            }
            let shared = problem.sum_parts(traits, &fragments, &sections);
            let tokens = PackedTokens {
                family: OP,
                text: include_str!("matrix_cores/tokens.glsl"),
                skips: false,
                arguments: &|arguments| problem.given(&fragments, &shared, workspace, arguments),
                tiles: tiles / fragments.tile.tokens as usize,
                shared,
            };
            calls.push(problem.multiply(traits, &fragments, &sections, &tokens)?);
            words = words.max(problem.input_words(&fragments) + shared.words());
            tickets = tickets.max(shared.tickets());
            sharing += usize::from(shared.tickets() > 0);
        }
        // Products of one packing meet nowhere, but where two would leave sums in the same place.
        let order = if packings == 1 && sharing < 2 {
            CallOrder::BehindFirst
        } else {
            CallOrder::InTurn
        };
        Ok(ProjectionCalls {
            order,
            calls,
            workspace: Some(OperandSpec::contiguous(DType::U32, &[words])),
            tickets,
        })
    }
}

impl ProjectionProblem<'_> {
    /// How the product of sections that are alike is divided.
    fn fragments(
        &self,
        tuning: &Tuning,
        traits: &Traits,
        cores: MatrixCores,
        sections: &[&SectionPlan<'_>],
    ) -> Fragments {
        let rows = sections.iter().map(|s| s.rows).sum();
        let tile = tuning.matrix_tile(
            traits,
            cores.size,
            [self.tokens, self.columns, rows, sections[0].parts.len()],
        );
        self.fragments_of(tile, traits, cores, sections)
    }

    /// The same for a given tile.
    pub(crate) fn fragments_of(
        &self,
        tile: MatrixTile,
        traits: &Traits,
        cores: MatrixCores,
        sections: &[&SectionPlan<'_>],
    ) -> Fragments {
        let chunk = chunk(&sections[0].parts[0].planes);
        let block = chunk * cores.lanes_per_row() as usize;
        Fragments {
            cores: if tile.narrow { cores.narrowed() } else { cores },
            lanes: traits.subgroup_size,
            chunk,
            blocks: self.columns.div_ceil(block),
            tile,
        }
    }

    /// Fragments of tokens, whole tiles of them.
    fn tiles(&self, fragments: &Fragments) -> usize {
        let tokens = self.tokens.div_ceil(fragments.cores.columns() as usize);
        tokens.next_multiple_of(fragments.tile.tokens as usize)
    }

    fn packed_words(&self, fragments: &Fragments) -> usize {
        self.tiles(fragments) * fragments.cores.columns() as usize * fragments.depth() / 2
    }

    /// The arguments of the call that packs x.
    fn pack_arguments(
        &self,
        traits: &Traits,
        fragments: &Fragments,
        workspace: usize,
    ) -> Result<PushArguments, Unsupported> {
        let mut arguments = PushArguments::new(traits);
        arguments.address("x_ref x", self.x.address.clone());
        if let Some((_, Some(norm_weight))) = &self.norm {
            arguments.address("norm_weight_ref norm_weight", norm_weight.address.clone());
        }
        self.packed(fragments, workspace, &mut arguments);
        arguments.number("COLUMNS", self.columns);
        arguments.stride("X_STRIDE", self.x.strides[0]);
        arguments.stride("X_WITHIN", self.x.strides[1]);
        if let Some((eps, _)) = self.norm {
            arguments.number("EPS", eps.to_bits() as usize);
        }
        arguments.check(OP)?;
        Ok(arguments)
    }

    /// Adds where the workspace holds x, and each token's factor, and how much of it there is.
    fn packed(&self, fragments: &Fragments, workspace: usize, arguments: &mut PushArguments) {
        let at = |bytes: u64| Push::Address {
            operand: workspace,
            bytes,
        };
        arguments.address("packed_ref packed", at(0));
        arguments.address("factors_ref factors", at(4 * self.packed_words(fragments) as u64));
        arguments.number("TOKENS", self.tokens);
        arguments.number("TILES", self.tiles(fragments));
        arguments.number("BLOCKS", fragments.blocks);
    }

    /// Words of packed x and its factors.
    fn input_words(&self, fragments: &Fragments) -> usize {
        self.packed_words(fragments) + self.tiles(fragments) * fragments.cores.columns() as usize
    }

    /// How workgroups share the sums of sections that are alike.
    fn sum_parts(&self, traits: &Traits, fragments: &Fragments, sections: &[&SectionPlan<'_>]) -> SumParts {
        let tile = &fragments.tile;
        let token_tiles = self.tiles(fragments) / tile.tokens as usize;
        let sums = fragments.matrices(sections)
            * tile.subgroups
            * tile.tokens
            * fragments.cores.size
            * fragments.cores.columns();
        // Sums whose order is hidden are not put back into fragments.
        let wanted = if fragments.cores.is_hidden() { 1 } else { tile.parts };
        SumParts {
            count: SumParts::most(traits, wanted, fragments.blocks),
            sums: sums as usize,
            results: fragments.row_blocks(sections) * token_tiles,
        }
    }

    /// Adds what a product takes beside weights: packed x, and where workgroups leave sums behind it.
    fn given(&self, fragments: &Fragments, shared: &SumParts, workspace: usize, arguments: &mut PushArguments) {
        self.packed(fragments, workspace, arguments);
        shared.arguments(workspace, 4 * self.input_words(fragments) as u64, arguments);
    }

    /// Whether four neighbouring results of a token are stored at once: products with eight-bit weights are 2 to 4 %
    /// faster so on an H200, those with four bits or floats up to 3 % slower.
    fn stores_fours(&self, fragments: &Fragments, sections: &[&SectionPlan<'_>]) -> bool {
        let whole = |section: &&SectionPlan<'_>| section.rows.is_multiple_of(4) && section.column.is_multiple_of(4);
        let is_eight = |part: &SectionPart<'_>| match &part.planes {
            WeightPlanes::Quantised(weights) => weights.format.bits == 8,
            WeightPlanes::Dense { .. } => false,
        };
        fragments.cores.order == FragmentOrder::Quads
            && !fragments.tile.narrow
            && is_eight(&sections[0].parts[0])
            && self.out.wide
            && sections.iter().all(whole)
    }

    /// The call that packs x, and behind it a factor for each token.
    fn pack(&self, traits: &Traits, fragments: &Fragments, workspace: usize) -> Result<Call, Unsupported> {
        let arguments = self.pack_arguments(traits, fragments, workspace)?;
        let [lanes, held] = fragments.packing(traits);
        let declaration = arguments.declaration();
        let text = Text::with_fragments(traits, &format!("{OP}.pack"));
        let text = fragments.define(traits, declared_input(text, self, 8).define("LANE_VALUE", "vec2"));
        let kernel = text
            .define("HELD", format!("{held}u"))
            .body(REFERENCES)
            .body(&declaration)
            .body(include_str!("../../kit/lanes.glsl"))
            .body(include_str!("matrix_cores/pack.glsl"))
            .body(include_str!("matrix_cores/pack.comp"))
            .kernel(vec![(0, lanes), (3, lanes), (4, 1)]);
        Ok(Call {
            kernel,
            groups: grid(OP, self.tiles(fragments) * fragments.cores.columns() as usize)?,
            push: arguments.push(),
        })
    }

    /// The product of what was packed with sections that are alike.
    pub(crate) fn multiply(
        &self,
        traits: &Traits,
        fragments: &Fragments,
        sections: &[&SectionPlan<'_>],
        tokens: &PackedTokens<'_>,
    ) -> Result<Call, Unsupported> {
        let MatrixTile {
            subgroups,
            unrolled,
            shared,
            ..
        } = fragments.tile;
        let matrices = fragments.matrices(sections);
        let each = matrices / sections[0].parts.len() as u32;
        let arguments = arguments(traits, self, sections, InputSource::Packed(tokens.arguments))?;
        let generated = generated(self, sections, &arguments)?;
        let stage = fragments.steps().min(4);
        let (subgroup_rows, body) = match shared {
            SharedBy::Tokens => (subgroups, include_str!("matrix_cores/matrix.comp")),
            SharedBy::Sums => (1, include_str!("matrix_cores/split.comp")),
        };
        let text = Text::with_fragments(traits, &format!("{}.{shared:?}", tokens.family))
            .define("SUBGROUPS", format!("{subgroups}u"))
            .define("MET", format!("{}u", fragments.tile.subgroups_met()))
            .flag("FOLDED", fragments.tile.subgroups_met() < subgroups)
            .flag("PINNED", fragments.tile.pinned)
            .define("MATRICES", format!("{matrices}u"))
            .define("TOKEN_TILES", format!("{}u", fragments.tile.tokens))
            .define("STAGE", format!("{stage}u"))
            .unrolled(unrolled)
            .body(&format!(
                "const uint ROWS = {subgroup_rows}u, EACH = {}u;\n",
                each * fragments.cores.size
            ));
        let is_hidden = fragments.cores.is_hidden();
        let planes = &sections[0].parts[0].planes;
        let bfloat = matches!(planes, WeightPlanes::Dense { dtype: DType::BF16, .. });
        let text = fragments.define(
            traits,
            declared_sections(text, self, sections, fragments.chunk).flag("BFLOAT16", bfloat),
        );
        let text = if self.stores_fours(fragments, sections) {
            text.define("Y_WIDE", 1).stored_fours("y", self.out.dtype, true)
        } else {
            text
        };
        let text = tokens.shared.define(text.body(REFERENCES)).body(&generated);
        let text = match planes {
            WeightPlanes::Dense { .. } => text.body(include_str!("matrix_cores/dense.glsl")),
            WeightPlanes::Quantised(_) => text
                .body(include_str!("gemv/quantised.glsl"))
                .body(include_str!("matrix_cores/quantised.glsl")),
        };
        let text = text
            .flag("SKIPS", tokens.skips)
            .body("layout(local_size_x_id = 0) in;\n");
        let kernel = (tokens.shared)
            .joined(text)
            .body(tokens.text)
            .body(include_str!("matrix_cores/product.glsl"))
            .body(if is_hidden {
                concat!(
                    include_str!("../../kit/fragments/meet.glsl"),
                    include_str!("matrix_cores/passed.glsl")
                )
            } else {
                include_str!("matrix_cores/held.glsl")
            })
            .body(include_str!("matrix_cores/finish.glsl"))
            .body(body)
            .kernel(vec![(0, subgroups * fragments.lanes), (8, planes.weights().group())]);
        Ok(Call {
            kernel,
            groups: grid(OP, fragments.row_blocks(sections) * tokens.tiles * tokens.shared.count)?,
            push: arguments.push(),
        })
    }
}
