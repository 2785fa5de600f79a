//! Which files of a repository make up a model.

use crate::quant::{self, GgufSet, file_name, gguf_sets};

/// What is taken from a repository of GGUF files if the user does not choose, as Ollama and llama.cpp do.
pub(crate) const DEFAULT_QUANTS: [&str; 2] = ["Q4_K_M", "Q4_0"];

const CONFIG: &str = "config.json";
const WHOLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Its parts are separated by `/`.
    pub path: String,
    /// In bytes.
    pub size: u64,
}

/// What a model's weights are stored as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightsKind {
    /// A directory with `config.json`, safetensors files and the tokenizer's files.
    Safetensors,
    /// A GGUF file or the parts of one. Its quantisation, such as `Q4_K_M`.
    Gguf(String),
}

/// The files that make up one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// What it is stored as.
    pub kind: WeightsKind,
    /// Paths in the repository; weights stand last.
    pub files: Vec<String>,
    /// What the user should know about a choice that was made for them.
    pub notice: Option<String>,
}

impl Selection {
    /// What to open, relative to the snapshot: the first GGUF file, or nothing for the directory itself.
    pub(crate) fn entry(&self) -> &str {
        match self.kind {
            WeightsKind::Safetensors => "",
            WeightsKind::Gguf(_) => &self.files[0],
        }
    }
}

/// Why no model was selected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoChoice {
    /// What was asked for is not there.
    Missing(String),
    /// Several models fit.
    Ambiguous(String),
}

impl NoChoice {
    pub fn reason(self) -> String {
        match self {
            Self::Missing(reason) | Self::Ambiguous(reason) => reason,
        }
    }
}

/// Picks the model that the user means: with `quant` a GGUF model, without it the safetensors checkpoint
/// if there is one, else the usual GGUF model.
pub(crate) fn select(files: &[File], quant: Option<&str>) -> Result<Selection, NoChoice> {
    let sets = gguf_sets(files);
    match (quant, safetensors(files)) {
        (Some(quant), _) => named(&sets, quant),
        (None, Ok(checkpoint)) => Ok(checkpoint),
        (None, Err(_)) if !sets.is_empty() => usual(&sets),
        (None, Err(reason)) => Err(NoChoice::Missing(reason)),
    }
}

/// All models among the files.
pub(crate) fn all(files: &[File]) -> Vec<Selection> {
    let whole = gguf_sets(files).into_iter().filter(|set| set.is_whole);
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

fn named(sets: &[GgufSet], quant: &str) -> Result<Selection, NoChoice> {
    let fitting: Vec<&GgufSet> = sets.iter().filter(|set| set.is_called(quant)).collect();
    match fitting[..] {
        [] if sets.is_empty() => Err(NoChoice::Missing(format!(
            "it has no GGUF files, so no {quant:?} to choose"
        ))),
        [] => Err(NoChoice::Missing(format!(
            "it has no {quant:?}; there are: {}",
            labels(sets)
        ))),
        [set] => whole(set),
        _ => Err(ambiguous(&fitting)),
    }
}

fn usual(sets: &[GgufSet]) -> Result<Selection, NoChoice> {
    let labelled = |label: &&&str| sets.iter().any(|set| set.label == **label);
    let label = DEFAULT_QUANTS.iter().find(labelled).copied().unwrap_or(&sets[0].label);
    let fitting: Vec<&GgufSet> = sets.iter().filter(|set| set.label == label).collect();
    let [set] = fitting[..] else {
        return Err(ambiguous(&fitting));
    };
    let mut selection = whole(set)?;
    if sets.len() > 1 {
        let others = labels(sets);
        selection.notice = Some(format!(
            "taking {label}; choose another with :QUANT, there are: {others}"
        ));
    }
    Ok(selection)
}

fn whole(set: &GgufSet) -> Result<Selection, NoChoice> {
    if set.is_whole {
        Ok(gguf(set))
    } else {
        Err(NoChoice::Missing(format!("parts of {} are missing", set.stem)))
    }
}

fn ambiguous(sets: &[&GgufSet]) -> NoChoice {
    let names: Vec<&str> = sets.iter().map(|set| file_name(&set.files[0])).collect();
    NoChoice::Ambiguous(format!(
        "several of its models are {}; name the file after the colon: {}",
        sets[0].label,
        names.join(", ")
    ))
}

fn labels(sets: &[GgufSet]) -> String {
    let labels: Vec<&str> = sets.iter().map(|set| set.label.as_str()).collect();
    labels.join(", ")
}

/// The safetensors checkpoint at the top of the repository, or why there is none.
fn safetensors(files: &[File]) -> Result<Selection, String> {
    let top = || {
        files
            .iter()
            .map(|file| file.path.as_str())
            .filter(|path| !path.contains('/'))
    };
    let mut weights: Vec<&str> = top().filter(|path| is_weight_file(path)).collect();
    if weights.contains(&WHOLE) {
        weights = vec![WHOLE];
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
        return Err(format!("it has only {} of the {parts} files of weights", weights.len()));
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

/// Weights in the names that transformers and MLX give them; not Mistral's second copy of them, not
/// adapters.
fn is_weight_file(path: &str) -> bool {
    path.ends_with(".safetensors") && !path.starts_with("consolidated") && !path.starts_with("adapter_")
}

/// Configurations, tokenizers and chat templates.
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
        return "it is an adapter (LoRA), which needs its base model; adapters are not supported".to_owned();
    }
    if has(&|path| path.ends_with(".bin") || path.ends_with(".pth") || path.ends_with(".pt")) {
        return "it has only PyTorch's pickled weights, which can run programs when they are read; \
                look for a repository with safetensors or GGUF files"
            .to_owned();
    }
    if has(&|path| path.ends_with(".safetensors")) {
        return "it has safetensors files, but not a language model's config.json beside them".to_owned();
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
            Err(NoChoice::Missing(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_checkpoint_is_its_safetensors_and_what_belongs_to_them() {
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
    fn a_checkpoint_of_which_a_part_is_missing_is_none() {
        let reason = missing(&["config.json", "model-00002-of-00003.safetensors"], None);
        assert!(reason.contains("1 of the 3"), "{reason}");
        assert!(missing(&["model.safetensors"], None).contains("config.json"));
    }

    #[test]
    fn the_usual_quantisation_is_taken_and_named_unless_the_user_chooses() {
        let repository = ["m-Q2_K.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"];
        let chosen = |paths: &[&str], quant| select(&files(paths), quant).unwrap();
        let usual = chosen(&repository, None);
        assert_eq!(usual.files, ["m-Q4_K_M.gguf"]);
        assert!(usual.notice.unwrap().contains("Q2_K, Q4_0, Q4_K_M, Q8_0"));
        assert_eq!(chosen(&repository[..2], None).files, ["m-Q4_0.gguf"]);
        assert_eq!(chosen(&["m-Q8_0.gguf", "m-F16.gguf"], None).files, ["m-F16.gguf"]);
        let single = chosen(&["m-Q8_0.gguf"], None);
        assert_eq!((single.files.len(), single.notice), (1, None));
        let asked = chosen(&repository, Some("q8_0"));
        assert_eq!((asked.kind, asked.notice), (WeightsKind::Gguf("Q8_0".to_owned()), None));
        assert!(missing(&repository, Some("Q5_K_M")).contains("Q2_K, Q4_0, Q4_K_M, Q8_0"));
    }

    #[test]
    fn two_models_of_one_quantisation_are_told_apart_by_their_files() {
        let repository = files(&["a-Q4_0.gguf", "b-Q4_0.gguf"]);
        for quant in [None, Some("Q4_0")] {
            let Err(NoChoice::Ambiguous(reason)) = select(&repository, quant) else {
                panic!("{quant:?} is ambiguous")
            };
            assert!(reason.contains("a-Q4_0.gguf, b-Q4_0.gguf"), "{reason}");
        }
        assert_eq!(select(&repository, Some("B-q4_0.gguf")).unwrap().files, ["b-Q4_0.gguf"]);
    }

    #[test]
    fn where_there_is_no_model_the_reason_is_said() {
        assert!(missing(&["config.json", "pytorch_model.bin"], None).contains("pickled"));
        assert!(missing(&["adapter_config.json", "adapter_model.safetensors"], None).contains("adapter"));
        assert!(missing(&["README.md"], None).contains("neither"));
        assert!(missing(&["config.json", "model.safetensors"], Some("Q4_0")).contains("no GGUF"));
    }
}
