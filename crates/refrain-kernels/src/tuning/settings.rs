//! A user's own row of the table, read from a text.
//!
//! Each line sets one number or switch of the row that the device has without it, as `decode.threads = 128`; what
//! follows a `#` is a remark. Names are those of [`Tuning`]'s fields.

use super::{AttentionTuning, GemvTuning, GroupCount, Tuning};
use crate::Traits;

/// What is wrong with a text of settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadTuning {
    /// A line that sets nothing, or what there is not, or to what it cannot be.
    #[error("line {line}: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it, and what would be right.
        what: String,
    },
    /// Settings that are possible, but not on this device or not with each other.
    #[error("{0}")]
    Unfit(String),
}

/// The most workgroups of a dispatch along an axis.
const MOST_GROUPS: usize = 65_535;

/// Where a setting is kept, and what it may be.
enum Slot<'r> {
    Switch(&'r mut bool),
    /// A workgroup's extent or the like: a power of two from the least to the most.
    Power(&'r mut u32, [u32; 2]),
    /// Any number from the least to the most.
    Number(&'r mut u32, [u32; 2]),
    /// The same of what is no part of a workgroup.
    Size(&'r mut usize, [usize; 2]),
    Groups(&'r mut GroupCount),
}

impl Slot<'_> {
    fn set(self, text: &str) -> Result<(), String> {
        let number = |[least, most]: [usize; 2]| match text.parse::<usize>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(format!("{text:?} is no number from {least} to {most}")),
        };
        let narrow = |[least, most]: [u32; 2]| number([least as usize, most as usize]).map(|number| number as u32);
        match self {
            Slot::Switch(switch) => {
                *switch = text
                    .parse()
                    .map_err(|_| format!("{text:?} is neither true nor false"))?;
            }
            Slot::Power(kept, range) => {
                *kept = narrow(range)?;
                if !kept.is_power_of_two() {
                    return Err(format!("{text} is no power of two"));
                }
            }
            Slot::Number(kept, range) => *kept = narrow(range)?,
            Slot::Size(kept, range) => *kept = number(range)?,
            Slot::Groups(kept) => *kept = GroupCount::fixed(number([1, MOST_GROUPS])?),
        }
        Ok(())
    }
}

/// The settings of a way to divide products with few vectors.
fn gemv(gemv: &mut GemvTuning) -> Vec<(&'static str, Slot<'_>)> {
    vec![
        ("threads", Slot::Power(&mut gemv.threads, [1, 1024])),
        ("rows", Slot::Power(&mut gemv.rows, [1, 16])),
        ("loads", Slot::Power(&mut gemv.loads, [1, 8])),
        ("loads_of_several", Slot::Power(&mut gemv.loads_of_several, [1, 8])),
        ("most_groups", Slot::Groups(&mut gemv.most_groups)),
        ("enough_groups", Slot::Groups(&mut gemv.enough_groups)),
        ("staged_bytes", Slot::Size(&mut gemv.staged_bytes, [4 << 10, 1 << 20])),
        ("unrolled", Slot::Switch(&mut gemv.unrolled)),
        ("most_vectors", Slot::Power(&mut gemv.most_vectors, [1, 8])),
        ("most_beside_matrix", Slot::Number(&mut gemv.most_beside_matrix, [1, 8])),
    ]
}

/// The settings of attention of prompts.
fn attention(attention: &mut AttentionTuning) -> Vec<(&'static str, Slot<'_>)> {
    vec![
        ("threads", Slot::Power(&mut attention.threads, [1, 1024])),
        (
            "grouped_threads",
            Slot::Power(&mut attention.grouped_threads, [1, 1024]),
        ),
        ("threads_split", Slot::Power(&mut attention.threads_split, [1, 1024])),
        (
            "most_heads_split",
            Slot::Number(&mut attention.most_heads_split, [1, 16]),
        ),
        ("most_parts", Slot::Number(&mut attention.most_parts, [1, 64])),
        ("most_heads", Slot::Number(&mut attention.most_heads, [1, 16])),
        ("enough_groups", Slot::Groups(&mut attention.enough_groups)),
        (
            "least_matrix_tokens",
            Slot::Size(&mut attention.least_matrix_tokens, [1, 1 << 20]),
        ),
        ("matrix_fragments", Slot::Size(&mut attention.matrix_fragments, [1, 8])),
        (
            "matrix_fragments_few",
            Slot::Size(&mut attention.matrix_fragments_few, [1, 8]),
        ),
        (
            "matrix_subgroups",
            Slot::Number(&mut attention.matrix_subgroups, [1, 16]),
        ),
        (
            "matrix_subgroups_few",
            Slot::Number(&mut attention.matrix_subgroups_few, [1, 16]),
        ),
        (
            "enough_matrix_groups",
            Slot::Groups(&mut attention.enough_matrix_groups),
        ),
    ]
}

/// All that can be set, by name.
fn slots(row: &mut Tuning) -> Vec<(String, Slot<'_>)> {
    let decode = &mut row.decode;
    let parts = [
        ("dense", gemv(&mut row.dense)),
        ("four_bit", gemv(&mut row.four_bit)),
        ("eight_bit", gemv(&mut row.eight_bit)),
        ("attention", attention(&mut row.attention)),
    ];
    let named = |(of, slots): (&'static str, Vec<(&'static str, _)>)| {
        slots
            .into_iter()
            .map(move |(name, slot)| (format!("{of}.{name}"), slot))
    };
    let others = [
        ("fixed_point", Slot::Switch(&mut row.fixed_point)),
        ("tile.most_parts", Slot::Number(&mut row.tile.most_parts, [1, 64])),
        ("tile.enough_groups", Slot::Groups(&mut row.tile.enough_groups)),
        (
            "experts.most_for_a_pair",
            Slot::Size(&mut row.experts.most_for_a_pair, [0, 64]),
        ),
        ("decode.threads", Slot::Power(&mut decode.threads, [1, 1024])),
        ("decode.positions", Slot::Power(&mut decode.positions, [4, 256])),
        ("decode.most_heads", Slot::Number(&mut decode.most_heads, [1, 16])),
        ("decode.most_parts", Slot::Number(&mut decode.most_parts, [1, 64])),
        ("decode.enough_groups", Slot::Groups(&mut decode.enough_groups)),
        ("decode.unrolled", Slot::Switch(&mut decode.unrolled)),
        ("delta.values", Slot::Power(&mut row.delta.values, [1, 8])),
        ("delta.lanes", Slot::Power(&mut row.delta.lanes, [1, 128])),
        ("delta.tile", Slot::Power(&mut row.delta.tile, [1, 256])),
        (
            "delta.head_threads",
            Slot::Power(&mut row.delta.head_threads, [1, 1024]),
        ),
        (
            "delta.least_chunked",
            Slot::Size(&mut row.delta.least_chunked, [1, 1 << 20]),
        ),
        ("delta.chunk", Slot::Power(&mut row.delta.chunk, [16, 64])),
        (
            "delta.chunk_threads",
            Slot::Power(&mut row.delta.chunk_threads, [1, 1024]),
        ),
        (
            "delta.least_tokens",
            Slot::Size(&mut row.delta.least_tokens, [1, 1 << 20]),
        ),
        (
            "most_convolved_in_turn",
            Slot::Size(&mut row.most_convolved_in_turn, [0, 1 << 20]),
        ),
        ("row_threads", Slot::Power(&mut row.row_threads, [1, 1024])),
    ];
    let others = others.into_iter().map(|(name, slot)| (name.to_owned(), slot));
    parts.into_iter().flat_map(named).chain(others).collect()
}

/// The row for a device that a text makes of the table's.
///
/// # Errors
/// A line that is none, sets what there is not or to what it cannot be; workgroups larger than the device's.
pub fn read(text: &str, traits: &Traits) -> Result<Tuning, BadTuning> {
    let mut row = Tuning {
        measured: &[],
        ..*super::choose(traits)
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            set(&mut row, line).map_err(|what| BadTuning::Line { line: number + 1, what })?;
        }
    }
    if !row.decode.threads.is_multiple_of(row.decode.positions) {
        let (threads, positions) = (row.decode.threads, row.decode.positions);
        let what = format!("decode.threads ({threads}) is no multiple of decode.positions ({positions})");
        return Err(BadTuning::Unfit(what));
    }
    if row.fixed_point && !traits.integer_dot {
        return Err(BadTuning::Unfit(
            "the device has no dot products of bytes for fixed_point".into(),
        ));
    }
    if !row.fits(traits) {
        return Err(BadTuning::Unfit(format!(
            "a workgroup is too large for the device or smaller than its subgroups of {}: it takes {} invocations and {} \
             bytes of shared memory",
            super::lanes(traits),
            traits.max_invocations,
            traits.shared_bytes
        )));
    }
    Ok(row)
}

/// Does what a line says.
fn set(row: &mut Tuning, line: &str) -> Result<(), String> {
    let (name, value) = line.split_once('=').ok_or("a line is NAME = VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    if name.starts_with("decode.") {
        row.decode_many = &[];
    }
    if ["dense.", "four_bit.", "eight_bit."]
        .iter()
        .any(|kind| name.starts_with(kind))
    {
        // What was better for some shapes was so beside the row's own numbers.
        row.by_shape = &[];
    }
    let mut names = Vec::new();
    for (known, slot) in slots(row) {
        if known == name {
            return slot.set(value).map_err(|what| format!("{name}: {what}"));
        }
        names.push(known);
    }
    Err(format!("{name:?} is none of {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning;

    #[test]
    fn what_a_text_sets_takes_the_place_of_the_tables() {
        let traits = Traits::minimal();
        let text = "# mine\n\ndecode.threads = 64 # half\nfour_bit.most_groups=40\ndense.unrolled = true\n";
        let row = read(text, &traits).expect("good settings");
        assert_eq!((row.decode.threads, row.dense.unrolled), (64, true));
        assert_eq!(row.four_bit.most_groups, GroupCount::fixed(40));
        assert_eq!(row.eight_bit, tuning::choose(&traits).eight_bit);
        let traits = Traits {
            tuning: Some(row.into()),
            ..traits
        };
        assert_eq!(*tuning::choose(&traits), row);
        assert_eq!(read("", &traits), Ok(row), "settings go on from what the device has");
    }

    #[test]
    fn every_setting_may_be_what_it_is_and_not_everything_else() {
        for row in tuning::TABLE {
            let mut row = row;
            for (name, slot) in slots(&mut row) {
                let value = match &slot {
                    Slot::Switch(value) => value.to_string(),
                    Slot::Power(value, _) | Slot::Number(value, _) => value.to_string(),
                    Slot::Size(value, _) => value.to_string(),
                    Slot::Groups(value) => value.on(&Traits::minimal()).to_string(),
                };
                assert_eq!(slot.set(&value), Ok(()), "{name} = {value}");
            }
            for (name, slot) in slots(&mut row) {
                assert!(slot.set("a few").is_err(), "{name}");
            }
        }
    }

    #[test]
    fn a_bad_line_is_named_with_what_would_be_right() {
        let said = |text: &str| read(text, &Traits::minimal()).expect_err("bad settings").to_string();
        assert!(said("\nthreads = 64").starts_with("line 2: \"threads\" is none of dense.threads, "));
        assert_eq!(said("decode.threads 64"), "line 1: a line is NAME = VALUE");
        assert_eq!(
            said("decode.threads = 96"),
            "line 1: decode.threads: 96 is no power of two"
        );
        assert_eq!(
            said("delta.values = 0"),
            "line 1: delta.values: \"0\" is no number from 1 to 8"
        );
        assert_eq!(
            said("dense.unrolled = 1"),
            "line 1: dense.unrolled: \"1\" is neither true nor false"
        );
        assert!(said("decode.threads = 16").contains("no multiple of decode.positions (32)"));
        assert!(said("row_threads = 1024").contains("it takes 128 invocations"));
        assert!(said("fixed_point = true").contains("no dot products"));
    }
}
