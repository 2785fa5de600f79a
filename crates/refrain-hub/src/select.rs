//! Selects the files of a repository that make up a model.

use crate::quant::{self, GgufSet, file_name, gguf_sets};

/// Default quantisations of a GGUF repository, in order of preference, as in Ollama and llama.cpp.
pub(crate) const DEFAULT_QUANTS: [&str; 2] = ["Q4_K_M", "Q4_0"];

const CONFIG: &str = "config.json";
const SINGLE_FILE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Path with `/` as separator.
    pub path: String,
    /// In bytes.
    pub size: u64,
}

/// Format of a model's weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightsKind {
    /// A directory with `config.json`, safetensors files and the tokenizer's files.
    Safetensors,
    /// A GGUF file or its shards. Holds its quantisation, such as `Q4_K_M`.
    Gguf(String),
}

/// The files that make up one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Format of the weights.
    pub kind: WeightsKind,
    /// Paths in the repository, weights last.
    pub files: Vec<String>,
    /// Message for the user about a default choice, such as the quantisation.
    pub notice: Option<String>,
}

impl Selection {
    /// Path to open, relative to the snapshot: the first GGUF file, or empty for the directory itself.
    pub(crate) fn entry(&self) -> &str {
        match self.kind {
            WeightsKind::Safetensors => "",
            WeightsKind::Gguf(_) => &self.files[0],
        }
    }
}

/// Why no model was selected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SelectError {
    /// The requested files are missing.
    Missing(String),
    /// Several models match.
    Ambiguous(String),
}

impl SelectError {
    pub fn reason(self) -> String {
        match self {
            Self::Missing(reason) | Self::Ambiguous(reason) => reason,
        }
    }
}

/// Selects a model. With `quant`: that GGUF model. Without: the safetensors checkpoint if there is one, else the
/// default GGUF model.
pub(crate) fn select(files: &[File], quant: Option<&str>) -> Result<Selection, SelectError> {
    let sets = gguf_sets(files);
    match (quant, safetensors(files)) {
        (Some(quant), _) => by_quant(&sets, quant),
        (None, Ok(checkpoint)) => Ok(checkpoint),
        (None, Err(_)) if !sets.is_empty() => default_gguf(&sets),
        (None, Err(reason)) => Err(SelectError::Missing(reason)),
    }
}

/// All models among the files.
pub(crate) fn all(files: &[File]) -> Vec<Selection> {
    let whole = gguf_sets(files).into_iter().filter(|set| set.is_complete);
    safetensors(files)
        .into_iter()
        .chain(whole.map(|set| gguf(&set)))
        .collect()
}

fn gguf(set: &GgufSet) -> Selection {
    Selection {
        kind: WeightsKind::Gguf(set.label.clone()),
        files: set.files.clone(),
        notice: None,
    }
}

fn by_quant(sets: &[GgufSet], quant: &str) -> Result<Selection, SelectError> {
    let fitting: Vec<&GgufSet> = sets.iter().filter(|set| set.is_called(quant)).collect();
    match fitting[..] {
        [] if sets.is_empty() => Err(SelectError::Missing(format!(
            "no GGUF files, so {quant:?} cannot be selected"
        ))),
        [] => Err(SelectError::Missing(format!(
            "no {quant:?}; available: {}",
            labels(sets)
        ))),
        [set] => complete(set),
        _ => Err(ambiguous(&fitting)),
    }
}

fn default_gguf(sets: &[GgufSet]) -> Result<Selection, SelectError> {
    let labelled = |label: &&&str| sets.iter().any(|set| set.label == **label);
    let label = DEFAULT_QUANTS.iter().find(labelled).copied().unwrap_or(&sets[0].label);
    let fitting: Vec<&GgufSet> = sets.iter().filter(|set| set.label == label).collect();
    let [set] = fitting[..] else {
        return Err(ambiguous(&fitting));
    };
    let mut selection = complete(set)?;
    if sets.len() > 1 {
        let others = labels(sets);
        selection.notice = Some(format!(
            "using {label}; select another with :QUANT, available: {others}"
        ));
    }
    Ok(selection)
}

fn complete(set: &GgufSet) -> Result<Selection, SelectError> {
    if set.is_complete {
        Ok(gguf(set))
    } else {
        Err(SelectError::Missing(format!("shards of {} are missing", set.stem)))
    }
}

fn ambiguous(sets: &[&GgufSet]) -> SelectError {
    let names: Vec<&str> = sets.iter().map(|set| file_name(&set.files[0])).collect();
    SelectError::Ambiguous(format!(
        "several models are {}; name the file after the colon: {}",
        sets[0].label,
        names.join(", ")
    ))
}

fn labels(sets: &[GgufSet]) -> String {
    let labels: Vec<&str> = sets.iter().map(|set| set.label.as_str()).collect();
    labels.join(", ")
}

/// Selects the safetensors checkpoint at the repository's root. The error says why there is none.
fn safetensors(files: &[File]) -> Result<Selection, String> {
    let top = || {
        files
            .iter()
            .map(|file| file.path.as_str())
            .filter(|path| !path.contains('/'))
    };
    let mut weights: Vec<&str> = top().filter(|path| is_weight_file(path)).collect();
    if weights.contains(&SINGLE_FILE) {
        weights = vec![SINGLE_FILE];
    }
    weights.sort_unstable();
    if weights.is_empty() || !top().any(|path| path == CONFIG) {
        return Err(no_checkpoint(files));
    }
    let (_, _, parts) = weights
        .iter()
        .find_map(|path| quant::split_part(path.strip_suffix(".safetensors")?))
        .unwrap_or(("", 1, weights.len()));
    if weights.len() < parts {
        return Err(format!(
            "only {} of the {parts} weight files are present",
            weights.len()
        ));
    }
    let others = files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| is_side_file(path));
    Ok(Selection {
        kind: WeightsKind::Safetensors,
        files: others.chain(weights).map(str::to_owned).collect(),
        notice: None,
    })
}

/// Whether the path is a weight file as transformers and MLX name them. Excludes Mistral's second copy
/// (`consolidated`) and adapters.
fn is_weight_file(path: &str) -> bool {
    path.ends_with(".safetensors") && !path.starts_with("consolidated") && !path.starts_with("adapter_")
}

/// Whether the path is a configuration, tokenizer or chat template.
fn is_side_file(path: &str) -> bool {
    let other_index = path.ends_with(".index.json") && path != INDEX;
    match path.split_once('/') {
        Some((folder, name)) => folder == "additional_chat_templates" && name.ends_with(".jinja"),
        None => {
            [".json", ".jinja", ".model", ".tiktoken"]
                .iter()
                .any(|ending| path.ends_with(ending))
                && !other_index
                || matches!(path, "merges.txt" | "vocab.txt")
        }
    }
}

fn no_checkpoint(files: &[File]) -> String {
    let has = |condition: &dyn Fn(&str) -> bool| files.iter().any(|file| condition(&file.path));
    if has(&|path| path == "adapter_config.json") {
        return "LoRA adapters are not supported".to_owned();
    }
    if has(&|path| path.ends_with(".bin") || path.ends_with(".pth") || path.ends_with(".pt")) {
        return "it has only PyTorch's pickled weights, which can run arbitrary code when they are loaded; \
                look for a repository with safetensors or GGUF files"
            .to_owned();
    }
    if has(&|path| path.ends_with(".safetensors")) {
        return "it has safetensors files, but no config.json of a language model".to_owned();
    }
    "it has neither safetensors nor GGUF files".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<File> {
        let file = |path: &&str| File {
            path: (*path).to_owned(),
            size: 1,
        };
        paths.iter().map(file).collect()
    }

    fn missing(paths: &[&str], quant: Option<&str>) -> String {
        match select(&files(paths), quant) {
            Err(SelectError::Missing(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn selects_safetensors_with_configuration_and_tokenizer() {
        let selection = select(
            &files(&[
                ".gitattributes",
                "README.md",
                "config.json",
                "consolidated.safetensors",
                "generation_config.json",
                "merges.txt",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "model.safetensors.index.json",
                "onnx/model.onnx",
                "original/consolidated.00.pth",
                "pytorch_model-00001-of-00001.bin",
                "pytorch_model.bin.index.json",
                "tokenizer.json",
                "tokenizer.model",
                "chat_template.jinja",
                "additional_chat_templates/rag.jinja",
            ]),
            None,
        )
        .unwrap();
        assert_eq!(selection.kind, WeightsKind::Safetensors);
        assert_eq!(
            selection.files,
            [
                "config.json",
                "generation_config.json",
                "merges.txt",
                "model.safetensors.index.json",
                "tokenizer.json",
                "tokenizer.model",
                "chat_template.jinja",
                "additional_chat_templates/rag.jinja",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
            ]
        );
        let selection = select(
            &files(&["config.json", "model-00001-of-00001.safetensors", "model.safetensors"]),
            None,
        );
        assert_eq!(selection.unwrap().files, ["config.json", "model.safetensors"]);
    }

    #[test]
    fn rejects_incomplete_checkpoints() {
        let reason = missing(&["config.json", "model-00002-of-00003.safetensors"], None);
        assert!(reason.contains("1 of the 3"), "{reason}");
        assert!(missing(&["model.safetensors"], None).contains("config.json"));
    }

    #[test]
    fn default_quantisation_is_selected_with_a_notice() {
        let repository = ["m-Q2_K.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"];
        let chosen = |paths: &[&str], quant| select(&files(paths), quant).unwrap();
        let default = chosen(&repository, None);
        assert_eq!(default.files, ["m-Q4_K_M.gguf"]);
        assert!(default.notice.unwrap().contains("Q2_K, Q4_0, Q4_K_M, Q8_0"));
        assert_eq!(chosen(&repository[..2], None).files, ["m-Q4_0.gguf"]);
        assert_eq!(chosen(&["m-Q8_0.gguf", "m-F16.gguf"], None).files, ["m-F16.gguf"]);
        let single = chosen(&["m-Q8_0.gguf"], None);
        assert_eq!((single.files.len(), single.notice), (1, None));
        let asked = chosen(&repository, Some("q8_0"));
        assert_eq!((asked.kind, asked.notice), (WeightsKind::Gguf("Q8_0".to_owned()), None));
        assert!(missing(&repository, Some("Q5_K_M")).contains("Q2_K, Q4_0, Q4_K_M, Q8_0"));
    }

    #[test]
    fn ambiguous_quantisation_needs_the_file_name() {
        let repository = files(&["a-Q4_0.gguf", "b-Q4_0.gguf"]);
        for quant in [None, Some("Q4_0")] {
            let Err(SelectError::Ambiguous(reason)) = select(&repository, quant) else {
                panic!("{quant:?} is ambiguous")
            };
            assert!(reason.contains("a-Q4_0.gguf, b-Q4_0.gguf"), "{reason}");
        }
        assert_eq!(select(&repository, Some("B-q4_0.gguf")).unwrap().files, ["b-Q4_0.gguf"]);
    }

    #[test]
    fn missing_models_are_explained() {
        assert!(missing(&["config.json", "pytorch_model.bin"], None).contains("pickled"));
        assert!(missing(&["adapter_config.json", "adapter_model.safetensors"], None).contains("adapter"));
        assert!(missing(&["README.md"], None).contains("neither"));
        assert!(missing(&["config.json", "model.safetensors"], Some("Q4_0")).contains("no GGUF"));
    }
}
