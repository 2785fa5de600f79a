//! Prompts that ask a model to fill the gap between two texts.
//!
//! Models that can do so have marks for it in their vocabulary: one before the text ahead of the gap, one before the
//! text behind it, and one where the answer begins.

use std::sync::Arc;

use refrain_text::Tokenizer;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Refusal;
use crate::served::ServedModel;
use crate::tokenize::TextLimit;

/// Marks of the text before the gap, of the text behind it, and of the answer, in the notations of published models.
const NOTATIONS: [[&str; 3]; 7] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
    ["<PRE>", "<SUF>", "<MID>"],
];
/// Names of the mark before a repository's name.
const REPOSITORY: [&str; 5] = [
    "<|repo_name|>",
    "<|fim_repo|>",
    "<fim-repo>",
    "<repo_name>",
    "<reponame>",
];
/// Names of the mark before a file's name.
const FILE: [&str; 3] = ["<|file_sep|>", "<file_sep>", "<file-sep>"];
/// Names of the repository and of the file with the gap, which clients do not give. They are llama-server's.
const REPOSITORY_NAME: &str = "myproject\n";
const FILE_NAME: &str = "filename\n";
/// Names of the mark that fills up sequences in training.
const PADDING: [&str; 4] = ["<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<PAD>"];

/// The text of another file, for models that read several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct ExtraFile {
    #[serde(default)]
    pub filename: String,
    pub text: String,
}

/// The texts around a gap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gap {
    pub prefix: String,
    pub suffix: String,
    /// The beginning of the answer.
    pub begun: String,
    /// Other files, which come before.
    pub extra: Vec<ExtraFile>,
}

/// The ids of a tokenizer's marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FillMarks {
    prefix: u32,
    suffix: u32,
    middle: u32,
    repository: Option<u32>,
    file: Option<u32>,
    padding: Option<u32>,
}

impl FillMarks {
    fn of(tokenizer: &Tokenizer) -> Option<FillMarks> {
        let first = |names: &[&str]| names.iter().find_map(|name| tokenizer.id(name));
        NOTATIONS.iter().find_map(|[prefix, suffix, middle]| {
            Some(FillMarks {
                prefix: tokenizer.id(prefix)?,
                suffix: tokenizer.id(suffix)?,
                middle: tokenizer.id(middle)?,
                repository: first(&REPOSITORY),
                file: first(&FILE),
                padding: first(&PADDING),
            })
        })
    }

    /// The tokens that end an answer beside the model's own: it begins another text.
    fn ends(&self) -> Vec<u32> {
        let others = [self.repository, self.file, self.padding];
        let marks = [self.prefix, self.suffix, self.middle];
        marks.into_iter().chain(others.into_iter().flatten()).collect()
    }

    /// Puts tokenized texts together, behind the token that begins every text.
    fn prompt(&self, first: Option<u32>, texts: &FillTexts) -> Vec<u32> {
        let mut prompt: Vec<u32> = first.into_iter().collect();
        let has_files = !texts.files.is_empty();
        if let Some(mark) = self.repository.filter(|_| has_files) {
            prompt.push(mark);
            prompt.extend(&texts.repository);
        }
        for [name, text] in &texts.files {
            prompt.extend(self.file);
            prompt.extend(name);
            prompt.extend(text);
        }
        if let Some(mark) = self.file.filter(|_| has_files) {
            prompt.push(mark);
            prompt.extend(&texts.name);
        }
        prompt.push(self.prefix);
        prompt.extend(&texts.prefix);
        prompt.push(self.suffix);
        prompt.extend(&texts.suffix);
        prompt.push(self.middle);
        prompt.extend(&texts.begun);
        prompt
    }
}

/// The tokens of the texts of a prompt.
#[derive(Debug, Clone, Default)]
struct FillTexts {
    /// The names of the repository and of the file with the gap.
    repository: Vec<u32>,
    name: Vec<u32>,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    begun: Vec<u32>,
    /// The names of other files, each with the text of the file.
    files: Vec<[Vec<u32>; 2]>,
}

/// A prompt that asks for the text of a gap.
pub(crate) struct FillPrompt {
    pub tokens: Vec<u32>,
    /// Tokens that end the answer beside the model's own.
    pub ends: Vec<u32>,
}

impl ServedModel {
    /// Whether it can fill gaps.
    pub(crate) fn fills(&self) -> bool {
        FillMarks::of(&self.tokenizer).is_some()
    }

    /// Returns the prompt that asks for the text of a gap. Marks within the texts are text. `field` is named in errors.
    ///
    /// # Errors
    /// A model whose tokenizer has no marks for it, or texts that are too long.
    pub(crate) async fn fill_prompt(self: &Arc<Self>, gap: Gap, field: &'static str) -> Result<FillPrompt, Refusal> {
        let Some(marks) = FillMarks::of(&self.tokenizer) else {
            let why = "this model cannot fill gaps: its tokenizer has no fill-in-the-middle tokens";
            return Err(Refusal::field(field, why));
        };
        let name = |name: &str| match marks.file {
            Some(_) if name.is_empty() => FILE_NAME.to_owned(),
            Some(_) => format!("{name}\n"),
            // As llama-server separates them for models that were not trained with several files.
            None => "\n\n--- snippet ---\n\n".to_owned(),
        };
        let names = [REPOSITORY_NAME, FILE_NAME].map(str::to_owned);
        let mut texts = Vec::from(names);
        texts.extend([gap.prefix, gap.suffix, gap.begun]);
        let count = gap.extra.len();
        for file in gap.extra {
            texts.push(name(&file.filename));
            texts.push(file.text);
        }
        let mut encoded = self.encode(texts, false, TextLimit::Context).await?.into_iter();
        let mut next = || encoded.next().unwrap_or_default();
        let texts = FillTexts {
            repository: next(),
            name: next(),
            prefix: next(),
            suffix: next(),
            begun: next(),
            files: (0..count).map(|_| [next(), next()]).collect(),
        };
        // An empty text becomes the tokens that the tokenizer adds by itself.
        let added = self.tokenizer.encode("", true)?;
        let first = self.tokenizer.bos_id().filter(|bos| added.first() == Some(bos));
        Ok(FillPrompt {
            tokens: marks.prompt(first, &texts),
            ends: marks.ends(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_behind_their_marks() {
        let marks = FillMarks {
            prefix: 100,
            suffix: 101,
            middle: 102,
            repository: Some(103),
            file: Some(104),
            padding: None,
        };
        let mut texts = FillTexts {
            repository: vec![5],
            name: vec![6],
            prefix: vec![1, 2],
            suffix: vec![3],
            begun: vec![4],
            files: vec![],
        };
        assert_eq!(marks.prompt(None, &texts), [100, 1, 2, 101, 3, 102, 4]);
        texts.files = vec![[vec![7], vec![8, 9]]];
        assert_eq!(
            marks.prompt(Some(0), &texts),
            [0, 103, 5, 104, 7, 8, 9, 104, 6, 100, 1, 2, 101, 3, 102, 4]
        );
        assert_eq!(marks.ends(), [100, 101, 102, 103, 104]);
        let marks = FillMarks {
            repository: None,
            file: None,
            ..marks
        };
        assert_eq!(marks.prompt(None, &texts), [7, 8, 9, 100, 1, 2, 101, 3, 102, 4]);
    }
}
