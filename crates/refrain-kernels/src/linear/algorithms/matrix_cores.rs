//! GEMM on matrix cores for projections of many tokens. One call normalises x and packs it into f16 fragments; each
//! group of sections is one product.
//!
//! x is rounded to f16 after scaling by a power of two per token, which keeps any f32 in range. If the product is bound
//! by the bytes of the weights, x is the sum of two f16 terms. Weights with more bits are rounded to f16. Accumulation
//! is in f32. Models in f32 keep that precision: their weights, or the scales of them, are f32 and do not come here.

mod fragments;

pub(crate) use fragments::Fragments;

use super::split_k::SplitK;
use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::arguments::PushArguments;
use crate::kit::text::{SourceBuilder, grid};
use crate::linear::arguments::{InputSource, arguments};
use crate::linear::problem::{ProjectionProblem, SectionPart, SectionPlan, WeightPlanes};
use crate::linear::section::OP;
use crate::linear::source::{declare_input, declare_sections, generate};
use crate::tuning::{MatrixTile, SubgroupSplit, Tuning};
use crate::vocabulary::{FragmentOrder, MatrixCores};
use crate::{Call, CallOrder, DType, OperandSpec, Push, Traits, Unsupported};

/// Forward declarations of reference types in the arguments; later source defines them.
pub(crate) const REFERENCES: &str =
    "layout(buffer_reference) buffer packed_ref;\nlayout(buffer_reference) buffer factors_ref;\n";

/// Whether the device supports these kernels.
pub(crate) fn supported(traits: &Traits) -> bool {
    traits.matrix_cores.is_some() && traits.storage16
}

/// Fails if the operands cannot be loaded as fragments.
pub(crate) fn check(problem: &ProjectionProblem<'_>) -> Result<(), Unsupported> {
    let parts = problem.sections.iter().flat_map(|s| &s.parts);
    for part in parts {
        let takes = match &part.planes {
            WeightPlanes::Dense { dtype, wide, .. } => *wide && dtype.size() == 2,
            planes @ WeightPlanes::Quantised(_) => !planes.keep_x(),
        };
        let whole = problem.columns > 0 && problem.columns.is_multiple_of(chunk(&part.planes));
        if !takes || !whole || problem.batch.is_some() {
            let what = format!(
                "no fragments for {} columns of {} weights",
                problem.columns,
                part.planes.weights()
            );
            return Err(Unsupported::Size { op: OP, what });
        }
    }
    Ok(())
}

/// Consecutive values of a row that a lane loads at once.
fn chunk(planes: &WeightPlanes<'_>) -> usize {
    match planes {
        WeightPlanes::Quantised(weights) if weights.format.bits < 8 => 32,
        _ => 16,
    }
}

/// How the workgroups of a product find their tokens.
pub(crate) struct PackedTokens<'a> {
    /// Kernel family, for the kernel's name.
    pub family: &'a str,
    /// GLSL that finds the tokens.
    pub text: &'a str,
    /// Whether fragments without tokens are skipped.
    pub skip_empty: bool,
    /// Adds the arguments that `text` needs.
    pub arguments: &'a dyn Fn(&mut PushArguments),
    /// Number of tiles of tokens.
    pub tiles: usize,
    /// Splits of K.
    pub split_k: SplitK,
}

/// Returns the device's matrix cores.
pub(crate) fn cores_of(traits: &Traits) -> Result<MatrixCores, Unsupported> {
    let what = || "this device has no matrix cores that kernels can use".to_string();
    traits
        .matrix_cores
        .ok_or_else(|| Unsupported::Size { op: OP, what: what() })
}

/// A projection on matrix cores.
pub(crate) struct MatrixCoreProduct<'p>(pub &'p ProjectionProblem<'p>);

impl Algorithm for MatrixCoreProduct<'_> {
    /// All tokens share one pass over the weights.
    fn cost(&self, _: &Tuning, traits: &Traits) -> Option<ProductCost> {
        (supported(traits) && check(self.0).is_ok()).then_some(ProductCost { passes: 1 })
    }

    fn check(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        let problem = self.0;
        check(problem)?;
        let cores = cores_of(traits)?;
        for sections in problem.fusible_sections() {
            let fragments = problem.fragments(tuning, traits, cores, &sections);
            problem.pack_arguments(traits, &fragments, problem.operands)?;
            let split_k = problem.split_k(traits, &fragments, &sections);
            let packed = |arguments: &mut PushArguments| {
                problem.product_arguments(&fragments, &split_k, problem.operands, arguments)
            };
            arguments(traits, problem, &sections, InputSource::Packed(&packed))?;
        }
        Ok(())
    }

    /// Returns, for each group of sections, a call that packs x (if the previous packing does not fit) and a product.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let problem = self.0;
        check(problem)?;
        let cores = cores_of(traits)?;
        let workspace = problem.operands;
        let mut calls = Vec::new();
        let (mut packed, mut words, mut tickets) = (None, 0, 0);
        let (mut packings, mut split_products) = (0, 0);
        for sections in problem.fusible_sections() {
            let fragments = problem.fragments(tuning, traits, cores, &sections);
            let tiles = problem.tiles(&fragments);
            let shape = (fragments.chunk, tiles, fragments.tile.x_terms, fragments.tile.narrow);
            if packed != Some(shape) {
                calls.push(problem.pack(traits, &fragments, workspace)?);
                packed = Some(shape);
                packings += 1;
            }
            let split_k = problem.split_k(traits, &fragments, &sections);
            let tokens = PackedTokens {
                family: OP,
                text: include_str!("matrix_cores/tokens.glsl"),
                skip_empty: false,
                arguments: &|arguments| problem.product_arguments(&fragments, &split_k, workspace, arguments),
                tiles: tiles / fragments.tile.tokens as usize,
                split_k,
            };
            calls.push(problem.multiply(traits, &fragments, &sections, &tokens)?);
            words = words.max(problem.input_words(&fragments) + split_k.words());
            tickets = tickets.max(split_k.tickets());
            split_products += usize::from(split_k.tickets() > 0);
        }
        // Products of one packing are independent unless two of them use the workspace for partial sums.
        let order = if packings == 1 && split_products < 2 {
            CallOrder::AfterFirst
        } else {
            CallOrder::Sequential
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
    /// Fragments and tile for a group of sections.
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

    /// Fragments for a given tile.
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

    /// Number of fragments of tokens, rounded up to whole tiles.
    fn tiles(&self, fragments: &Fragments) -> usize {
        let tokens = self.tokens.div_ceil(fragments.cores.columns() as usize);
        tokens.next_multiple_of(fragments.tile.tokens as usize)
    }

    fn packed_words(&self, fragments: &Fragments) -> usize {
        self.tiles(fragments) * fragments.cores.columns() as usize * fragments.depth() / 2
    }

    /// Builds the arguments of the call that packs x.
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

    /// Adds the workspace's addresses of packed x and of each token's factor, and the extents of packed x.
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

    /// Size of packed x and its factors in words.
    fn input_words(&self, fragments: &Fragments) -> usize {
        self.packed_words(fragments) + self.tiles(fragments) * fragments.cores.columns() as usize
    }

    /// Splits of K for a group of sections.
    fn split_k(&self, traits: &Traits, fragments: &Fragments, sections: &[&SectionPlan<'_>]) -> SplitK {
        let tile = &fragments.tile;
        let token_tiles = self.tiles(fragments) / tile.tokens as usize;
        let sums = fragments.matrices(sections)
            * tile.subgroups
            * tile.tokens
            * fragments.cores.size
            * fragments.cores.columns();
        // Sums with an opaque layout cannot be loaded back into fragments.
        let wanted = if fragments.cores.is_opaque() { 1 } else { tile.splits };
        SplitK {
            splits: SplitK::clamp_splits(traits, wanted, fragments.blocks),
            sums: sums as usize,
            tiles: fragments.row_blocks(sections) * token_tiles,
        }
    }

    /// Adds a product's arguments besides the weights: packed x, and the partial sums after it in the workspace.
    fn product_arguments(
        &self,
        fragments: &Fragments,
        split_k: &SplitK,
        workspace: usize,
        arguments: &mut PushArguments,
    ) {
        self.packed(fragments, workspace, arguments);
        split_k.arguments(workspace, 4 * self.input_words(fragments) as u64, arguments);
    }

    /// Whether four consecutive results of a token are stored at once. On an H200 this makes products with eight-bit
    /// weights 2 to 4 % faster, but those with four-bit or float weights up to 3 % slower.
    fn stores_vec4(&self, fragments: &Fragments, sections: &[&SectionPlan<'_>]) -> bool {
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

    /// Returns the call that packs x, followed by a factor for each token.
    fn pack(&self, traits: &Traits, fragments: &Fragments, workspace: usize) -> Result<Call, Unsupported> {
        let arguments = self.pack_arguments(traits, fragments, workspace)?;
        let [lanes, held] = fragments.packing(traits);
        let declaration = arguments.declaration();
        let text = SourceBuilder::with_fragments(traits, &format!("{OP}.pack"));
        let text = fragments.define(traits, declare_input(text, self, 8).define("LANE_VALUE", "vec2"));
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

    /// Returns the call that multiplies packed x with a group of sections.
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
            split,
            ..
        } = fragments.tile;
        let matrices = fragments.matrices(sections);
        let each = matrices / sections[0].parts.len() as u32;
        let arguments = arguments(traits, self, sections, InputSource::Packed(tokens.arguments))?;
        let generated = generate(self, sections, &arguments)?;
        let stage = fragments.steps().min(4);
        let (subgroup_rows, variant, body) = match split {
            SubgroupSplit::Rows => (subgroups, "split_rows", include_str!("matrix_cores/split_rows.comp")),
            SubgroupSplit::Depth => (1, "split_depth", include_str!("matrix_cores/split_depth.comp")),
        };
        let text = SourceBuilder::with_fragments(traits, &format!("{}.{variant}", tokens.family))
            .define("SUBGROUPS", format!("{subgroups}u"))
            .define(
                "REDUCED_SUBGROUPS",
                format!("{}u", fragments.tile.reduction_subgroups()),
            )
            .flag("TWO_PHASE", fragments.tile.reduction_subgroups() < subgroups)
            .flag("PREFETCH", fragments.tile.prefetch)
            .define("MATRICES", format!("{matrices}u"))
            .define("TOKEN_TILES", format!("{}u", fragments.tile.tokens))
            .define("STAGE", format!("{stage}u"))
            .unrolled(unrolled)
            .body(&format!(
                "const uint ROWS = {subgroup_rows}u, EACH = {}u;\n",
                each * fragments.cores.size
            ));
        let planes = &sections[0].parts[0].planes;
        let bfloat = matches!(planes, WeightPlanes::Dense { dtype: DType::BF16, .. });
        let text = fragments.define(
            traits,
            declare_sections(text, self, sections, fragments.chunk).flag("BFLOAT16", bfloat),
        );
        let text = if self.stores_vec4(fragments, sections) {
            text.define("Y_WIDE", 1).store_vec4("y", self.out.dtype, true)
        } else {
            text
        };
        let text = tokens.split_k.define(text.body(REFERENCES)).body(&generated);
        let text = match planes {
            WeightPlanes::Dense { .. } => text.body(include_str!("matrix_cores/dense.glsl")),
            WeightPlanes::Quantised(_) => text
                .body(include_str!("gemv/quantised.glsl"))
                .body(include_str!("matrix_cores/quantised.glsl")),
        };
        let text = text
            .flag("SKIP_EMPTY", tokens.skip_empty)
            .body("layout(local_size_x_id = 0) in;\n");
        let kernel = (tokens.split_k)
            .functions(text)
            .body(tokens.text)
            .body(include_str!("matrix_cores/product.glsl"))
            .body(fragment_access(fragments.cores.is_opaque()))
            .body(include_str!("matrix_cores/finish.glsl"))
            .body(body)
            .kernel(vec![(0, subgroups * fragments.lanes), (8, planes.weights().group())]);
        Ok(Call {
            kernel,
            groups: grid(
                OP,
                fragments.row_blocks(sections) * tokens.tiles * tokens.split_k.splits,
            )?,
            push: arguments.push(),
        })
    }
}

/// The text that loads and stores fragments.
fn fragment_access(is_opaque: bool) -> &'static str {
    if is_opaque {
        concat!(
            include_str!("../../kit/fragments/meet.glsl"),
            include_str!("matrix_cores/opaque_layout.glsl")
        )
    } else {
        include_str!("matrix_cores/known_layout.glsl")
    }
}
