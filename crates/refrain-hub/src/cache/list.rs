//! Lists all models of the cache.

use std::fs;

use serde_json::Value;

use super::repository::read_text;
use super::{CachedModel, HubCache, Repository, repository};
use crate::Error;
use crate::blob;
use crate::name::{DEFAULT_REVISION, ModelName};
use crate::select::{self, Selection, WeightsKind};

/// Result of [`HubCache::list`].
#[derive(Debug, Default)]
pub struct List {
    /// Complete models, sorted by repository.
    pub models: Vec<CachedModel>,
    /// Repositories with interrupted downloads, and the bytes that those occupy.
    pub interrupted: Vec<(String, u64)>,
}

impl HubCache {
    /// Lists the cached models. Skips repositories without a model that this program could read.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub fn list(&self) -> Result<List, Error> {
        let mut list = List::default();
        for repository in self.repositories()? {
            for commit in repository.commits()? {
                list.models.extend(models(&repository, &commit)?);
            }
            let bytes = interrupted(&repository)?;
            if bytes > 0 {
                list.interrupted.push((repository.name().to_owned(), bytes));
            }
        }
        Ok(list)
    }
}

/// The models of a snapshot.
fn models(repository: &Repository, commit: &str) -> Result<Vec<CachedModel>, Error> {
    let revision = revision(repository, commit)?;
    let selections = select::all(&repository.files(commit)?);
    let model = |selection: &Selection| {
        let same = selections.iter().filter(|other| other.kind == selection.kind).count();
        let quant = match &selection.kind {
            WeightsKind::Safetensors => None,
            WeightsKind::Gguf(label) if same == 1 => Some(label.clone()),
            WeightsKind::Gguf(_) => selection.files[0].rsplit('/').next().map(str::to_owned),
        };
        let name = ModelName {
            repo: repository.name().to_owned(),
            quant,
            revision: revision.clone(),
        };
        repository.model(name, commit, selection)
    };
    Ok(selections.iter().map(model).filter(|model| model.is_complete).collect())
}

/// Returns the branch or tag of a commit, or the commit itself; `None` for the default revision.
fn revision(repository: &Repository, commit: &str) -> Result<Option<String>, Error> {
    let mut names = Vec::new();
    for name in repository.refs()? {
        if repository.commit(&name)?.as_deref() == Some(commit) {
            names.push(name);
        }
    }
    if names.iter().any(|name| name == DEFAULT_REVISION) {
        return Ok(None);
    }
    Ok(Some(names.into_iter().next().unwrap_or_else(|| commit.to_owned())))
}

/// Bytes of interrupted downloads of missing blobs. The next `pull` removes partial files of complete blobs.
fn interrupted(repository: &Repository) -> Result<u64, Error> {
    let blobs = repository.blobs();
    let names = repository::names(&blobs)?;
    let is_cached = |blob: &str| names.iter().any(|name| name == blob);
    let unfinished = names
        .iter()
        .filter(|name| blob::partial_of(name).is_some_and(|blob| !is_cached(blob)));
    Ok(unfinished
        .filter_map(|name| fs::metadata(blobs.join(name)).ok())
        .map(|found| found.len())
        .sum())
}

impl CachedModel {
    /// Describes the format of the weights in a few words: `GGUF Q4_K_M`, `MLX 4-bit`, `bfloat16`.
    pub fn format(&self) -> String {
        if let WeightsKind::Gguf(label) = &self.kind {
            return format!("GGUF {label}");
        }
        let text = read_text(&self.path.join("config.json"));
        let config: Value = serde_json::from_slice(&text).unwrap_or_default();
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        if let Some(bits) = config.pointer("/quantization/bits").and_then(Value::as_u64) {
            return format!("MLX {bits}-bit");
        }
        text(config.pointer("/quantization_config/quant_method"))
            .or_else(|| text(config.get("dtype")))
            .or_else(|| text(config.get("torch_dtype")))
            .or_else(|| text(config.pointer("/text_config/dtype")))
            .or_else(|| text(config.pointer("/text_config/torch_dtype")))
            .unwrap_or_else(|| "safetensors".to_owned())
    }
}
