//! User settings that override the tuning table.
//!
//! Each line sets one number or switch of the device's row, for example `decode.threads = 128`. A comment starts with
//! `#`. Names are those of [`Tuning`]'s fields; their former names are still accepted.

use super::{AttentionTuning, GemvTuning, GroupCount, Tuning};
use crate::Traits;

/// Error in a tuning file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TuningError {
    /// A malformed line, an unknown name, or an invalid value.
    #[error("line {line}: {what}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The problem, and what is expected instead.
        what: String,
    },
    /// Valid settings that do not suit the device or each other.
    #[error("{0}")]
    Incompatible(String),
}

/// Maximum number of workgroups of a dispatch along one axis.
const MAX_GROUPS: usize = 65_535;

/// Field names that changed, with the names that replace them.
const RENAMED_FIELDS: [(&str, &str); 14] = [
    ("most_groups", "max_groups"),
    ("enough_groups", "target_groups"),
    ("most_vectors", "max_vectors"),
    ("most_beside_matrix", "max_vectors_beside_matrix"),
    ("loads_of_several", "batched_loads"),
    ("most_heads_split", "max_heads_split"),
    ("most_parts", "max_splits"),
    ("most_heads", "max_heads"),
    ("least_matrix_tokens", "min_matrix_tokens"),
    ("enough_matrix_groups", "target_matrix_groups"),
    ("most_for_a_pair", "max_experts_per_pair"),
    ("least_chunked", "min_chunked_tokens"),
    ("least_tokens", "min_tokens"),
    ("most_convolved_in_turn", "max_serial_conv_tokens"),
];

/// The field behind a setting, and its minimum and maximum.
enum Slot<'r> {
    Switch(&'r mut bool),
    /// A power of two.
    Power(&'r mut u32, [u32; 2]),
    /// Any number.
    Number(&'r mut u32, [u32; 2]),
    /// Any number, stored as `usize`.
    Size(&'r mut usize, [usize; 2]),
    /// A number of workgroups, which no longer scales with the device.
    Groups(&'r mut GroupCount),
}

impl Slot<'_> {
    fn set(self, text: &str) -> Result<(), String> {
        let number = |[min, max]: [usize; 2]| match text.parse::<usize>() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(format!("expected a number from {min} to {max}, found {text:?}")),
        };
        let narrow = |[min, max]: [u32; 2]| number([min as usize, max as usize]).map(|number| number as u32);
        match self {
            Slot::Switch(switch) => {
                *switch = text
                    .parse()
                    .map_err(|_| format!("expected true or false, found {text:?}"))?;
            }
            Slot::Power(field, range) => {
                *field = narrow(range)?;
                if !field.is_power_of_two() {
                    return Err(format!("expected a power of two, found {text}"));
                }
            }
            Slot::Number(field, range) => *field = narrow(range)?,
            Slot::Size(field, range) => *field = number(range)?,
            Slot::Groups(field) => *field = GroupCount::fixed(number([1, MAX_GROUPS])?),
        }
        Ok(())
    }
}

/// Settings of small-M GEMV.
fn gemv(gemv: &mut GemvTuning) -> Vec<(&'static str, Slot<'_>)> {
    vec![
        ("threads", Slot::Power(&mut gemv.threads, [1, 1024])),
        ("rows", Slot::Power(&mut gemv.rows, [1, 16])),
        ("loads", Slot::Power(&mut gemv.loads, [1, 8])),
        ("batched_loads", Slot::Power(&mut gemv.batched_loads, [1, 8])),
        ("max_groups", Slot::Groups(&mut gemv.max_groups)),
        ("target_groups", Slot::Groups(&mut gemv.target_groups)),
        ("staged_bytes", Slot::Size(&mut gemv.staged_bytes, [4 << 10, 1 << 20])),
        ("unrolled", Slot::Switch(&mut gemv.unrolled)),
        ("max_vectors", Slot::Power(&mut gemv.max_vectors, [1, 8])),
        (
            "max_vectors_beside_matrix",
            Slot::Number(&mut gemv.max_vectors_beside_matrix, [1, 8]),
        ),
        (
            "max_weights_beside_matrix",
            Slot::Size(&mut gemv.max_weights_beside_matrix, [0, 1 << 32]),
        ),
    ]
}

/// Settings of prefill attention.
fn attention(attention: &mut AttentionTuning) -> Vec<(&'static str, Slot<'_>)> {
    vec![
        ("threads", Slot::Power(&mut attention.threads, [1, 1024])),
        (
            "grouped_threads",
            Slot::Power(&mut attention.grouped_threads, [1, 1024]),
        ),
        ("threads_split", Slot::Power(&mut attention.threads_split, [1, 1024])),
        ("max_heads_split", Slot::Number(&mut attention.max_heads_split, [1, 16])),
        ("max_splits", Slot::Number(&mut attention.max_splits, [1, 64])),
        ("max_heads", Slot::Number(&mut attention.max_heads, [1, 16])),
        ("target_groups", Slot::Groups(&mut attention.target_groups)),
        (
            "min_matrix_tokens",
            Slot::Size(&mut attention.min_matrix_tokens, [1, 1 << 20]),
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
            "target_matrix_groups",
            Slot::Groups(&mut attention.target_matrix_groups),
        ),
    ]
}

/// All settings by name.
fn slots(row: &mut Tuning) -> Vec<(String, Slot<'_>)> {
    let decode = &mut row.decode;
    let groups = [
        ("dense", gemv(&mut row.dense)),
        ("four_bit", gemv(&mut row.four_bit)),
        ("eight_bit", gemv(&mut row.eight_bit)),
        ("attention", attention(&mut row.attention)),
    ];
    let named = |(prefix, slots): (&'static str, Vec<(&'static str, _)>)| {
        slots
            .into_iter()
            .map(move |(name, slot)| (format!("{prefix}.{name}"), slot))
    };
    let others = [
        ("fixed_point", Slot::Switch(&mut row.fixed_point)),
        ("tile.max_splits", Slot::Number(&mut row.tile.max_splits, [1, 64])),
        ("tile.target_groups", Slot::Groups(&mut row.tile.target_groups)),
        (
            "experts.max_experts_per_pair",
            Slot::Size(&mut row.experts.max_experts_per_pair, [0, 64]),
        ),
        ("decode.threads", Slot::Power(&mut decode.threads, [1, 1024])),
        ("decode.positions", Slot::Power(&mut decode.positions, [4, 256])),
        ("decode.max_heads", Slot::Number(&mut decode.max_heads, [1, 16])),
        ("decode.max_splits", Slot::Number(&mut decode.max_splits, [1, 64])),
        ("decode.target_groups", Slot::Groups(&mut decode.target_groups)),
        ("decode.by_subgroups", Slot::Switch(&mut decode.by_subgroups)),
        ("decode.unrolled", Slot::Switch(&mut decode.unrolled)),
        ("delta.values", Slot::Power(&mut row.delta.values, [1, 8])),
        ("delta.lanes", Slot::Power(&mut row.delta.lanes, [1, 128])),
        ("delta.tile", Slot::Power(&mut row.delta.tile, [1, 256])),
        (
            "delta.head_threads",
            Slot::Power(&mut row.delta.head_threads, [1, 1024]),
        ),
        (
            "delta.head_threads_in_parts",
            Slot::Power(&mut row.delta.head_threads_in_parts, [1, 1024]),
        ),
        (
            "delta.min_chunked_tokens",
            Slot::Size(&mut row.delta.min_chunked_tokens, [1, 1 << 20]),
        ),
        ("delta.chunk", Slot::Power(&mut row.delta.chunk, [16, 64])),
        (
            "delta.chunk_threads",
            Slot::Power(&mut row.delta.chunk_threads, [1, 1024]),
        ),
        ("delta.min_tokens", Slot::Size(&mut row.delta.min_tokens, [1, 1 << 20])),
        (
            "max_serial_conv_tokens",
            Slot::Size(&mut row.max_serial_conv_tokens, [0, 1 << 20]),
        ),
        ("row_threads", Slot::Power(&mut row.row_threads, [1, 1024])),
    ];
    let others = others.into_iter().map(|(name, slot)| (name.to_owned(), slot));
    groups.into_iter().flat_map(named).chain(others).collect()
}

/// Returns the device's row with the settings of `text` applied.
///
/// # Errors
/// Malformed lines, unknown names and invalid values; workgroups that the device cannot run.
pub fn read(text: &str, traits: &Traits) -> Result<Tuning, TuningError> {
    let mut row = Tuning {
        measured: &[],
        ..*super::choose(traits)
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            set(&mut row, line).map_err(|what| TuningError::Line { line: number + 1, what })?;
        }
    }
    if !row.decode.threads.is_multiple_of(row.decode.positions) {
        let (threads, positions) = (row.decode.threads, row.decode.positions);
        let what = format!("decode.threads ({threads}) must be a multiple of decode.positions ({positions})");
        return Err(TuningError::Incompatible(what));
    }
    if row.fixed_point && !traits.integer_dot {
        return Err(TuningError::Incompatible(
            "fixed_point needs integer dot products, which the device does not have".into(),
        ));
    }
    if !row.fits(traits) {
        return Err(TuningError::Incompatible(format!(
            "the device cannot run a workgroup of this size: it supports {} to {} invocations and {} bytes of shared \
             memory",
            super::lanes(traits),
            traits.max_invocations,
            traits.shared_bytes
        )));
    }
    Ok(row)
}

/// Replaces a former field name by the present one.
fn current_name(name: &str) -> String {
    let (prefix, field) = name
        .rsplit_once('.')
        .map_or(("", name), |(prefix, field)| (prefix, field));
    let renamed = RENAMED_FIELDS.iter().find(|(former, _)| *former == field);
    let field = renamed.map_or(field, |(_, current)| *current);
    if prefix.is_empty() {
        field.to_owned()
    } else {
        format!("{prefix}.{field}")
    }
}

/// Applies one line.
fn set(row: &mut Tuning, line: &str) -> Result<(), String> {
    let (name, value) = line.split_once('=').ok_or("expected NAME = VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    let current = current_name(name);
    if name.starts_with("decode.") {
        row.decode_many = &[];
        row.decode_short = None;
    }
    if ["dense.", "four_bit.", "eight_bit."]
        .iter()
        .any(|kind| name.starts_with(kind))
    {
        // Entries by shape were tuned against the row's own numbers.
        row.by_shape = &[];
    }
    let mut names = Vec::new();
    for (known, slot) in slots(row) {
        if known == current {
            return slot.set(value).map_err(|what| format!("{name}: {what}"));
        }
        names.push(known);
    }
    Err(format!("unknown setting {name:?}; known: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning;

    #[test]
    fn settings_override_the_table() {
        let traits = Traits::minimal();
        let text = "# mine\n\ndecode.threads = 64 # half\nfour_bit.max_groups=40\ndense.unrolled = true\n";
        let row = read(text, &traits).expect("good settings");
        assert_eq!((row.decode.threads, row.dense.unrolled), (64, true));
        assert_eq!(row.four_bit.max_groups, GroupCount::fixed(40));
        assert_eq!(row.eight_bit, tuning::choose(&traits).eight_bit);
        let traits = Traits {
            tuning: Some(row.into()),
            ..traits
        };
        assert_eq!(*tuning::choose(&traits), row);
        assert_eq!(read("", &traits), Ok(row), "settings apply to the device's present row");
    }

    #[test]
    fn every_setting_accepts_its_table_value_and_rejects_text() {
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
    fn former_names_are_accepted() {
        let traits = Traits::minimal();
        for (former, current) in RENAMED_FIELDS {
            let mut row = *tuning::choose(&traits);
            let settings: Vec<String> = slots(&mut row).into_iter().map(|(name, _)| name).collect();
            let is_field = |name: &&String| name.rsplit('.').next() == Some(current);
            let name = settings
                .iter()
                .find(is_field)
                .expect("a setting for each renamed field");
            let former = name.replace(current, former);
            let read = |name: &str| read(&format!("{name} = 2"), &traits);
            assert_eq!(read(&former), read(name), "{former}");
            assert!(read(&former).is_ok(), "{former}");
        }
    }

    #[test]
    fn bad_lines_are_reported_with_what_is_expected() {
        let error = |text: &str| read(text, &Traits::minimal()).expect_err("bad settings").to_string();
        assert!(error("\nthreads = 64").starts_with("line 2: unknown setting \"threads\"; known: dense.threads, "));
        assert_eq!(error("decode.threads 64"), "line 1: expected NAME = VALUE");
        assert_eq!(
            error("decode.threads = 96"),
            "line 1: decode.threads: expected a power of two, found 96"
        );
        assert_eq!(
            error("delta.values = 0"),
            "line 1: delta.values: expected a number from 1 to 8, found \"0\""
        );
        assert_eq!(
            error("dense.unrolled = 1"),
            "line 1: dense.unrolled: expected true or false, found \"1\""
        );
        assert!(error("decode.threads = 16").contains("must be a multiple of decode.positions (32)"));
        assert!(error("row_threads = 1024").contains("to 128 invocations"));
        assert!(error("fixed_point = true").contains("needs integer dot products"));
    }
}
