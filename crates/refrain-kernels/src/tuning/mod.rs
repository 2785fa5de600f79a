//! Sizes that depend on the device and not on the result: a table of rows, the first that matches
//! and fits is used. Families take a row explicitly in `call_tuned`, so every row can be tried anywhere.

mod gemv;
mod matrix;
mod matrix_tiles;
mod measurement;
mod settings;
mod table;
mod tile;

pub use gemv::{GemvTuning, ShapedGemv};
pub use matrix::{Experts, MatrixTile, SharedBy};
pub use measurement::{KernelFamily, Measurement};
pub use settings::{BadTuning, read};
pub(crate) use table::MESA_SOFTWARE;
pub use table::TABLE;
pub use tile::{Tile, TileSize};

use std::fmt;

use refrain_quant::QuantFormat;

use crate::{Architecture, Traits};

/// A number of workgroups.
///
/// Where it is how many keep a device busy it follows from the device's compute units: it is kept as what it is on a
/// device of so many, and others, if they tell, have as many more or fewer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupCount {
    groups: usize,
    units: Option<u32>,
}

impl GroupCount {
    /// The same number on every device.
    pub const fn fixed(groups: usize) -> GroupCount {
        GroupCount { groups, units: None }
    }

    /// What it is on a device of `units` compute units.
    pub const fn of_units(groups: usize, units: u32) -> GroupCount {
        GroupCount {
            groups,
            units: Some(units),
        }
    }

    /// What it is on the device that has these traits.
    pub fn on(self, traits: &Traits) -> usize {
        match (self.units, traits.compute_units) {
            (Some(counted), Some(units)) => (self.groups * units as usize).div_ceil(counted as usize),
            _ => self.groups,
        }
    }
}

/// Attention: a workgroup takes one query head of one token; where there are so many that the device
/// is busy anyway, several heads that share a key head; where they are too few, a part of a head's
/// positions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttentionTuning {
    /// Invocations per workgroup of one head.
    pub threads: u32,
    /// Invocations per workgroup of several heads.
    pub grouped_threads: u32,
    /// Invocations per workgroup of a part of one head's positions.
    pub threads_split: u32,
    /// The most query heads that such a workgroup takes together.
    pub most_heads_split: u32,
    /// The most workgroups that share a head's positions: at most 64.
    pub most_parts: u32,
    /// The most query heads that a workgroup takes together.
    pub most_heads: u32,
    /// Workgroups that keep the device busy.
    pub enough_groups: GroupCount,
    /// The fewest tokens that matrix cores take.
    pub least_matrix_tokens: usize,
    /// The most fragments of positions that a workgroup with matrix cores takes together: fewer where there is no room
    /// for their keys and values.
    pub matrix_fragments: usize,
    /// The same where a workgroup has `matrix_subgroups_few` subgroups.
    pub matrix_fragments_few: usize,
    /// Subgroups of a workgroup with matrix cores.
    pub matrix_subgroups: u32,
    /// The same where workgroups of so many would be too few.
    pub matrix_subgroups_few: u32,
    /// Workgroups with matrix cores that are not too few.
    pub enough_matrix_groups: GroupCount,
}

/// Attention of single tokens: a workgroup takes some query heads of one key head, and a part of a
/// token's positions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DecodeTuning {
    /// Invocations per workgroup: a multiple of `positions`.
    pub threads: u32,
    /// Positions that a workgroup goes through at a time: a power of two.
    pub positions: u32,
    /// The most query heads that a workgroup takes together.
    pub most_heads: u32,
    /// The most workgroups that share a token's positions.
    pub most_parts: u32,
    /// Workgroups that keep the device busy.
    pub enough_groups: GroupCount,
    /// Whether loops over an invocation's values are unrolled.
    pub unrolled: bool,
}

/// The gated delta rule: a row of invocations takes some values of a head.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Delta {
    /// Values that it takes, sharing what it loads of keys and queries, where there are many tokens.
    pub values: u32,
    /// The fewest tokens that are many, if they are more than there are sequences: of fewer it takes one value.
    pub least_tokens: usize,
    /// Lanes that share a value's memory, where rows of them can share a subgroup: else all of it.
    pub lanes: u32,
    /// Tokens whose keys, queries and values the workgroup brings at once, if there is room for them: a power of two.
    pub tile: u32,
    /// Invocations of the workgroup that goes from the convolution of a head to its gate: where registers do not hold
    /// the head's memory, more.
    pub head_threads: u32,
    /// The fewest tokens that matrix cores take in chunks, if they are more than there are sequences.
    pub least_chunked: usize,
    /// Tokens of a chunk, if there is room for them: a power of two.
    pub chunk: u32,
    /// Invocations of a workgroup that works on one.
    pub chunk_threads: u32,
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuning {
    /// The vendor whose cards it is for; `None` for any.
    pub vendor: Option<u32>,
    /// The line of cards for which alone it is; `None` for any.
    pub architecture: Option<Architecture>,
    /// What its families were measured with; none where they were not, or no record is kept.
    pub measured: &'static [Measurement],
    /// The smallest subgroup for which it is used.
    pub smallest_subgroup: u32,
    /// Matrix of floats times few vectors.
    pub dense: GemvTuning,
    /// Matrix of values of at most 4 bits times few vectors.
    pub four_bit: GemvTuning,
    /// What suits some products better than the row for their kind: the first that fits.
    pub by_shape: &'static [ShapedGemv],
    /// Matrix of values of 5 to 8 bits times few vectors.
    pub eight_bit: GemvTuning,
    /// Whether few vectors are taken in fixed point where weights are quantised: for devices with fast dot
    /// products of bytes.
    pub fixed_point: bool,
    /// Tiled matrix product.
    pub tile: Tile,
    /// Products on matrix cores, by tokens; the last is for any number.
    pub matrix: &'static [MatrixTile],
    /// Products with the matrices of experts on matrix cores.
    pub experts: Experts,
    /// Attention.
    pub attention: AttentionTuning,
    /// Attention of single tokens.
    pub decode: DecodeTuning,
    /// The same of many sequences: the first whose workgroups are enough for the device.
    pub decode_many: &'static [DecodeTuning],
    /// The gated delta rule.
    pub delta: Delta,
    /// The most tokens that an invocation of a causal convolution takes one after another.
    pub most_convolved_in_turn: usize,
    /// Invocations per workgroup for norms and other reductions over a row.
    pub row_threads: u32,
}

impl Tuning {
    /// How few vectors, `sizes[2]` of `sizes[0]` values, meet `sizes[1]` rows of weights of `format`, or of floats: those of
    /// an expert, where tokens are `routed` to such.
    pub fn gemv(&self, format: Option<QuantFormat>, sizes: [usize; 3], routed: bool) -> &GemvTuning {
        let mut shapes = self.by_shape.iter();
        let found = shapes.find(|shape| shape.fits(format, sizes, routed));
        found.map_or_else(|| self.gemv_kind(format), |shape| &shape.gemv)
    }

    /// The row for weights of a format, or for floats, of no shape in particular.
    pub(crate) fn gemv_kind(&self, format: Option<QuantFormat>) -> &GemvTuning {
        match format {
            None => &self.dense,
            Some(format) if format.bits <= 4 => &self.four_bit,
            Some(_) => &self.eight_bit,
        }
    }

    /// How a product of `tokens` tokens of `depth` values with `rows` rows of each of `parts` matrices is divided,
    /// where fragments have `size` rows: of three quarters of a power of two as of that, with fewer tokens to a tile, so
    /// that as many workgroups do less.
    pub(crate) fn matrix_tile(
        &self,
        traits: &Traits,
        size: u32,
        [tokens, depth, rows, parts]: [usize; 4],
    ) -> MatrixTile {
        let whole = tokens.next_power_of_two();
        if 4 * tokens == 3 * whole {
            let tile = self.matrix_tile(traits, size, [whole, depth, rows, parts]);
            if let Some(tile) = tile.three_quarters(traits) {
                return tile;
            }
        }
        let tiles = self.matrix.iter();
        let tiles =
            tiles.filter(|tile| tokens <= tile.most_tokens && (tile.least_depth..=tile.most_depth).contains(&depth));
        let tiles = tiles.map(|tile| tile.narrowed(traits, size, tokens));
        let tiles = tiles.map(|tile| tile.with_room(traits, size, tokens, parts as u32));
        let groups = |tile: &MatrixTile| {
            let each = (tile.rows / parts as u32 * tile.subgroups_apart() * size) as usize;
            rows.div_ceil(each) * tokens.div_ceil((tile.tokens * tile.columns(size)) as usize)
        };
        let mut tiles = tiles.skip_while(|tile| groups(tile) < tile.least_groups.on(traits));
        tiles.next().expect("the last tile of a row is for any number")
    }

    /// How products of `pairs` tokens in all with the matrices of `experts` experts are divided; none where
    /// matrix cores are not for so few.
    pub(crate) fn expert_tile(&self, traits: &Traits, size: u32, pairs: usize, experts: usize) -> Option<MatrixTile> {
        let Experts {
            most_for_a_pair, tiles, ..
        } = self.experts;
        let tile = tiles
            .iter()
            .find(|tile| pairs <= tile.most_tokens.saturating_mul(experts))?;
        let enough = experts > 0 && experts < pairs.saturating_mul(most_for_a_pair);
        enough.then(|| tile.with_room(traits, size, pairs, 1))
    }

    /// Whether a device can run the row's kernels at all.
    pub fn fits(&self, traits: &Traits) -> bool {
        let threads = [
            self.dense.threads,
            self.four_bit.threads,
            self.eight_bit.threads,
            self.attention.threads,
            self.attention.grouped_threads,
            self.attention.threads_split,
            self.decode.threads,
            self.row_threads,
        ];
        let tile = self.tile.sizes.last().is_some_and(|size| size.has_room(traits));
        let attention = [
            self.attention.threads,
            self.attention.grouped_threads,
            self.attention.threads_split,
        ];
        let shared = attention.map(attention_bytes).into_iter().max();
        let fits = |&t: &u32| t <= traits.max_invocations && t >= lanes(traits);
        tile && threads.iter().all(fits) && shared <= Some(traits.shared_bytes)
    }
}

/// Shared memory of a workgroup of attention: a vec4 per invocation, beside the rows' maxima and sums.
pub(crate) fn attention_bytes(threads: u32) -> u32 {
    24 * threads
}

/// The row for a device: the user's, if there is one.
pub fn choose(traits: &Traits) -> &Tuning {
    if let Some(tuning) = &traits.tuning {
        return tuning;
    }
    let matches = |row: &&Tuning| {
        row.vendor.is_none_or(|vendor| vendor == traits.vendor)
            && row.architecture.is_none_or(|wanted| wanted == traits.architecture)
            && row.smallest_subgroup <= traits.subgroup_size
            && (traits.integer_dot || !row.fixed_point)
            && row.fits(traits)
    };
    TABLE.iter().find(matches).unwrap_or(&TABLE[TABLE.len() - 1])
}

/// Invocations that share a row where a subgroup is to take it: a subgroup, or, without subgroup
/// arithmetic, a number that suits a tree in shared memory.
pub(crate) fn lanes(traits: &Traits) -> u32 {
    if traits.subgroup_arithmetic {
        traits.subgroup_size
    } else {
        32
    }
}

/// Invocations per row of `columns` values, and rows per workgroup, for a reduction over rows: a few
/// values for each invocation.
pub(crate) fn row_lanes(traits: &Traits, columns: usize) -> (u32, u32) {
    let (threads, lanes) = (choose(traits).row_threads, lanes(traits));
    if columns > 16 * lanes as usize {
        let wanted = columns.div_ceil(4).next_power_of_two();
        (threads.min(wanted as u32), 1)
    } else {
        (lanes, threads.min(256) / lanes)
    }
}

impl fmt::Display for GroupCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.groups.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::table::{AMD, H200, INTEL, NVIDIA};
    use super::*;
    use crate::MemoryKind;

    #[test]
    fn several_vectors_are_not_divided_as_what_suits_one_alone() {
        let few_rows = |format, vectors| H200.gemv(Some(format), [4096, 6144, vectors], false).threads;
        for format in QuantFormat::ALL {
            let suits_one = format.bits <= 4 && !format.has_records();
            assert_eq!(few_rows(format, 1), if suits_one { 256 } else { 512 }, "{format}");
            assert_eq!(few_rows(format, 2), 512, "{format}");
        }
    }

    #[test]
    fn three_quarters_of_tokens_are_divided_as_the_whole_with_fewer_to_a_tile() {
        let traits = Traits {
            compute_units: Some(132),
            subgroup_size: 32,
            shared_bytes: 48 << 10,
            ..Traits::minimal()
        };
        let tile = |tokens, rows| H200.matrix_tile(&traits, 16, [tokens, 4096, rows, 1]);
        for (rows, whole, fewer) in [(24_576, 8, 6), (4096, 4, 3)] {
            let tiles = [512, 384].map(|tokens| tile(tokens, rows));
            assert_eq!(tiles.map(|tile| tile.tokens), [whole, fewer]);
            assert_eq!(
                tiles[0],
                MatrixTile {
                    tokens: whole,
                    ..tiles[1]
                }
            );
        }
    }

    #[test]
    fn the_last_row_fits_the_least_device() {
        let least = Traits::minimal();
        assert!(TABLE[TABLE.len() - 1].fits(&least));
        assert_eq!(choose(&least), &TABLE[TABLE.len() - 1]);
    }

    #[test]
    fn rows_that_were_measured_say_where_when_and_what_and_are_for_no_other_line_of_cards() {
        for (number, row) in TABLE.iter().enumerate() {
            for measured in row.measured {
                let said = [measured.device, measured.driver, measured.date, measured.figure];
                assert!(said.iter().all(|word| !word.is_empty()), "row {number}");
                let line = Architecture::of(row.vendor.unwrap_or(0), measured.device, 32);
                assert_eq!(row.architecture, Some(line), "row {number}");
            }
            let families: Vec<KernelFamily> = row.measured.iter().map(|measured| measured.family).collect();
            assert!(
                families.is_empty() || families == KernelFamily::ALL,
                "row {number}: each once"
            );
        }
    }

    #[test]
    fn numbers_of_workgroups_follow_from_compute_units_and_are_an_h200s_where_nobody_tells() {
        let on = |compute_units| Traits {
            compute_units,
            ..Traits::minimal()
        };
        let busy = GroupCount::of_units(264, 132);
        assert_eq!(
            [None, Some(132), Some(66), Some(24)].map(|units| busy.on(&on(units))),
            [264, 264, 132, 48]
        );
        assert_eq!(GroupCount::fixed(3).on(&on(Some(24))), 3);
    }

    #[test]
    fn a_vendors_row_is_used_for_that_vendor_alone() {
        let traits = Traits {
            vendor: NVIDIA,
            architecture: Architecture::Hopper,
            compute_units: Some(132),
            memory: MemoryKind::Discrete,
            subgroup_size: 32,
            subgroup_required: false,
            full_subgroups: true,
            subgroup_uniform_flow: true,
            subgroup_arithmetic: true,
            subgroup_shuffle: true,
            storage16: true,
            storage8: true,
            integer_dot: true,
            subnormal_halves: true,
            tickets: true,
            max_invocations: 1024,
            push_bytes: 256,
            shared_bytes: 49152,
            matrix_cores: None,
            tuning: None,
        };
        assert_eq!(choose(&traits), &H200);
        let without_dots = Traits {
            integer_dot: false,
            ..traits.clone()
        };
        assert!(choose(&without_dots).vendor == Some(NVIDIA) && !choose(&without_dots).fixed_point);
        let card = Traits {
            architecture: Architecture::Unknown,
            ..traits.clone()
        };
        assert!(choose(&card).vendor == Some(NVIDIA) && choose(&card).measured.is_empty());
        let amd = |architecture| Traits {
            vendor: AMD,
            architecture,
            subgroup_size: 64,
            ..traits.clone()
        };
        for architecture in [Architecture::Gcn, Architecture::Rdna] {
            let row = *choose(&amd(architecture));
            assert_eq!((row.vendor, row.architecture), (Some(AMD), Some(architecture)));
            assert!(row.measured.is_empty());
        }
        let other = Traits { vendor: 1, ..traits };
        assert_eq!(choose(&other).vendor, None);
        let intel = Traits {
            vendor: INTEL,
            subgroup_size: 16,
            ..other
        };
        assert_eq!(choose(&intel).vendor, Some(INTEL));
    }
}
