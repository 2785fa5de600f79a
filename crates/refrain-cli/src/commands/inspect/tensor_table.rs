//! The table of a checkpoint's tensors. Layers with equal tensors are shown once, with the range of their indices.

use std::collections::BTreeMap;

use refrain_formats::TensorInfo;

use crate::output::human_bytes;

/// Tensors of equal shape and type; in a folded row their names differ only in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    name: String,
    shape: Vec<usize>,
    encoding: String,
    /// Bytes of each tensor.
    bytes: u64,
    count: usize,
}

impl Row {
    fn new(tensor: &TensorInfo) -> Row {
        Row {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            encoding: tensor.encoding.to_string(),
            bytes: tensor.bytes,
            count: 1,
        }
    }

    fn total(&self) -> u64 {
        self.count as u64 * self.bytes
    }

    fn size(&self) -> String {
        let each = human_bytes(self.bytes);
        if self.count > 1 {
            format!("{} × {each}", self.count)
        } else {
            each
        }
    }
}

/// A part of the table.
enum Section {
    Tensor(Row),
    /// Layers whose tensors are equal; the rows' names lack the layer's prefix.
    Layers {
        prefix: String,
        indices: Vec<usize>,
        rows: Vec<Row>,
    },
}

/// Formats the table; `all` lists every tensor instead of folding layers.
pub(super) fn table<'a>(tensors: impl Iterator<Item = &'a TensorInfo>, all: bool) -> String {
    let rows: Vec<Row> = tensors.map(Row::new).collect();
    let sections: Vec<Section> = if all {
        rows.into_iter().map(Section::Tensor).collect()
    } else {
        folded(rows)
    };
    let is_folded = sections.iter().any(|section| matches!(section, Section::Layers { .. }));
    let mut lines = vec![["tensor", "shape", "type", "size"].map(str::to_owned)];
    for section in &sections {
        match section {
            Section::Tensor(row) => lines.push(cells("", row)),
            Section::Layers { prefix, indices, rows } => {
                lines.push([
                    heading(prefix, indices, rows),
                    String::new(),
                    String::new(),
                    String::new(),
                ]);
                lines.extend(rows.iter().map(|row| cells("  ", row)));
            }
        }
    }
    // Headings of layers may be wider than the column.
    let in_column = |line: &&[String; 4]| !line[1].is_empty();
    let width = |column: usize| {
        let widths = lines.iter().filter(in_column).map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let [name, shape, encoding, size] = [0, 1, 2, 3].map(width);
    let mut text = String::from("\n");
    for [a, b, c, d] in &lines {
        let line = format!("{a:<name$}  {b:<shape$}  {c:<encoding$}  {d:>size$}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if is_folded {
        text.push_str("\nequal layers are shown once; --all lists every tensor\n");
    }
    text
}

fn cells(indent: &str, row: &Row) -> [String; 4] {
    [
        format!("{indent}{}", row.name),
        format!("{:?}", row.shape),
        row.encoding.clone(),
        row.size(),
    ]
}

fn heading(prefix: &str, indices: &[usize], rows: &[Row]) -> String {
    let size = human_bytes(rows.iter().map(Row::total).sum());
    let ranges = ranges(indices);
    match indices.len() {
        1 => format!("{prefix}.{ranges}: {size}"),
        count => format!("{prefix}.{ranges}: {count} layers of {size} each"),
    }
}

/// Groups the tensors of numbered layers, and merges layers with equal tensors.
fn folded(rows: Vec<Row>) -> Vec<Section> {
    enum Entry {
        Tensor(Row),
        Stack(String, BTreeMap<usize, Vec<Row>>),
    }
    let mut entries: Vec<Entry> = Vec::new();
    for row in rows {
        let Some((prefix, index, rest)) = split_index(&row.name) else {
            entries.push(Entry::Tensor(row));
            continue;
        };
        let inner = Row {
            name: rest.to_owned(),
            ..row.clone()
        };
        let stack = entries.iter_mut().find_map(|entry| match entry {
            Entry::Stack(name, layers) if name == prefix => Some(layers),
            _ => None,
        });
        match stack {
            Some(layers) => layers.entry(index).or_default().push(inner),
            None => entries.push(Entry::Stack(prefix.to_owned(), BTreeMap::from([(index, vec![inner])]))),
        }
    }
    let section = |entry| match entry {
        Entry::Tensor(row) => vec![Section::Tensor(row)],
        Entry::Stack(prefix, layers) => merged_layers(&prefix, layers),
    };
    entries.into_iter().flat_map(section).collect()
}

fn merged_layers(prefix: &str, layers: BTreeMap<usize, Vec<Row>>) -> Vec<Section> {
    let mut groups: Vec<(Vec<usize>, Vec<Row>)> = Vec::new();
    for (index, rows) in layers {
        let rows = merged_experts(rows);
        match groups.iter_mut().find(|(_, known)| *known == rows) {
            Some((indices, _)) => indices.push(index),
            None => groups.push((vec![index], rows)),
        }
    }
    let section = |(indices, rows)| Section::Layers {
        prefix: prefix.to_owned(),
        indices,
        rows,
    };
    groups.into_iter().map(section).collect()
}

/// Merges tensors of one layer that are equal but for an index in their names, such as those of experts.
fn merged_experts(rows: Vec<Row>) -> Vec<Row> {
    let mut groups: Vec<(Row, Vec<usize>)> = Vec::new();
    for row in rows {
        let Some((prefix, index, rest)) = split_index(&row.name) else {
            groups.push((row, Vec::new()));
            continue;
        };
        // The index is filled in below.
        let name = format!("{prefix}.\0.{rest}");
        let row = Row { name, ..row };
        match groups.iter_mut().find(|(known, _)| *known == row) {
            Some((_, indices)) => indices.push(index),
            None => groups.push((row, vec![index])),
        }
    }
    let merged = |(row, mut indices): (Row, Vec<usize>)| {
        indices.sort_unstable();
        Row {
            name: row.name.replace('\0', &ranges(&indices)),
            count: indices.len().max(1),
            ..row
        }
    };
    groups.into_iter().map(merged).collect()
}

/// Splits `layers.7.mlp.weight` into `layers`, 7 and `mlp.weight`, at the first component that is a number.
fn split_index(name: &str) -> Option<(&str, usize, &str)> {
    let mut start = 0;
    for component in name.split('.') {
        let end = start + component.len();
        let is_inner = start > 0 && end < name.len();
        if let Some(index) = component.parse().ok().filter(|_| is_inner) {
            return Some((&name[..start - 1], index, &name[end + 1..]));
        }
        start = end + 1;
    }
    None
}

/// Formats sorted indices as ranges: `0-2,4,6-7`.
fn ranges(indices: &[usize]) -> String {
    let runs = indices.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(usize::to_string).collect(),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, bytes: u64) -> Row {
        Row {
            name: name.to_owned(),
            shape: vec![2],
            encoding: "F16".to_owned(),
            bytes,
            count: 1,
        }
    }

    /// Layers with different sizes, one of them with experts.
    fn rows() -> Vec<Row> {
        let mut rows = vec![row("embed.weight", 8)];
        for layer in 0..12 {
            rows.push(row(
                &format!("layers.{layer}.q.weight"),
                if layer % 4 == 3 { 3 } else { 2 },
            ));
            rows.extend((0..5).map(|expert| row(&format!("layers.{layer}.experts.{expert}.up.weight"), 4)));
        }
        rows.push(row("norm.weight", 8));
        rows
    }

    #[test]
    fn equal_layers_and_experts_are_shown_once() {
        let mut names = Vec::new();
        for section in folded(rows()) {
            match section {
                Section::Tensor(row) => names.push(row.name),
                Section::Layers { prefix, indices, rows } => {
                    names.push(heading(&prefix, &indices, &rows));
                    names.extend(rows.into_iter().map(|row| format!("{} {}", row.name, row.size())));
                }
            }
        }
        let expected = [
            "embed.weight",
            "layers.0-2,4-6,8-10: 9 layers of 22 B each",
            "q.weight 2 B",
            "experts.0-4.up.weight 5 × 4 B",
            "layers.3,7,11: 3 layers of 23 B each",
            "q.weight 3 B",
            "experts.0-4.up.weight 5 × 4 B",
            "norm.weight",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn all_tensors_are_counted() {
        let mut total = 0;
        for section in folded(rows()) {
            total += match section {
                Section::Tensor(row) => row.total(),
                Section::Layers { indices, rows, .. } => {
                    indices.len() as u64 * rows.iter().map(Row::total).sum::<u64>()
                }
            };
        }
        assert_eq!(total, rows().iter().map(|row| row.bytes).sum::<u64>());
    }

    #[test]
    fn splits_names_at_the_first_number() {
        assert_eq!(split_index("a.12.b.3.c"), Some(("a", 12, "b.3.c")));
        assert_eq!(split_index("a.b2.c"), None);
        assert_eq!(split_index("a.2"), None);
        assert_eq!(ranges(&[0, 1, 2, 4, 6, 7]), "0-2,4,6-7");
    }
}
