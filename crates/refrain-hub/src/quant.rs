//! GGUF files of a repository: groups the shards of one model, and reads the quantisation from names.

use std::collections::BTreeMap;

use crate::select::File;

/// One model in one quantisation: a single file, or all shards of one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GgufSet {
    /// Its quantisation in capital letters, such as `Q4_K_M`, or its file name if that has none.
    pub label: String,
    /// Its path without the shard's number and `.gguf`.
    pub stem: String,
    /// The paths of its shards, in order.
    pub files: Vec<String>,
    /// Whether all shards are present.
    pub is_complete: bool,
}

impl GgufSet {
    /// Whether `query` is its quantisation or file name. Case-insensitive.
    pub fn is_called(&self, query: &str) -> bool {
        let file = file_name(&self.files[0]);
        let names = [
            &self.label,
            file,
            without_extension(file).unwrap_or(file),
            file_name(&self.stem),
        ];
        names.iter().any(|name| name.eq_ignore_ascii_case(query))
    }
}

/// All GGUF models among the files, sorted by path. Skips vision projectors and importance matrices, which are GGUF
/// files too.
pub(crate) fn gguf_sets(files: &[File]) -> Vec<GgufSet> {
    let mut found: BTreeMap<(&str, usize), Vec<(usize, &str)>> = BTreeMap::new();
    for File { path, .. } in files {
        let lower = file_name(path).to_ascii_lowercase();
        if lower.contains("mmproj") || lower.contains("imatrix") {
            continue;
        }
        if let Some(stem) = without_extension(path) {
            let (stem, part, parts) = split_part(stem).unwrap_or((stem, 1, 1));
            found.entry((stem, parts)).or_default().push((part, path));
        }
    }
    let set = |((stem, parts), mut files): ((&str, usize), Vec<(usize, &str)>)| {
        files.sort_unstable();
        GgufSet {
            label: label(file_name(stem)).unwrap_or_else(|| file_name(stem).to_owned()),
            stem: stem.to_owned(),
            is_complete: files.iter().map(|(part, _)| *part).eq(1..=parts),
            files: files.into_iter().map(|(_, path)| path.to_owned()).collect(),
        }
    };
    found.into_iter().map(set).collect()
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn without_extension(path: &str) -> Option<&str> {
    let (stem, ending) = path.rsplit_once('.')?;
    ending.eq_ignore_ascii_case("gguf").then_some(stem)
}

/// Splits a shard's suffix such as `-00002-of-00003` from a name: the rest, 2 and 3.
pub(crate) fn split_part(stem: &str) -> Option<(&str, usize, usize)> {
    let number = |digits: &str| (digits.len() == 5).then(|| digits.parse::<usize>().ok()).flatten();
    let (rest, parts) = stem.rsplit_once("-of-")?;
    let (rest, part) = rest.rsplit_once('-')?;
    Some((rest, number(part)?, number(parts)?))
}

/// Returns the quantisation at the end of a file's name, as in `llama-3-8b.Q4_K_M` and `Qwen3-8B-UD-Q4_K_XL`.
fn label(stem: &str) -> Option<String> {
    let mut parts = stem.rsplit(['-', '.']);
    let last = parts.next()?.to_ascii_uppercase();
    let dynamic = parts.next().is_some_and(|part| part.eq_ignore_ascii_case("UD"));
    let after_underscores = last.match_indices('_').map(|(at, _)| &last[at + 1..]);
    let quant = std::iter::once(last.as_str())
        .chain(after_underscores)
        .find(|part| is_quant(part))?;
    Some(if dynamic {
        format!("UD-{quant}")
    } else {
        quant.to_owned()
    })
}

/// Whether capital letters name a quantisation, supported by this program or not.
fn is_quant(name: &str) -> bool {
    let digit_after = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    matches!(name, "F16" | "F32" | "BF16" | "FP16" | "FP32" | "I2_S" | "I8_S")
        || ["Q", "IQ", "TQ", "MXFP", "NVFP"].into_iter().any(digit_after)
}

#[cfg(test)]
mod tests;
