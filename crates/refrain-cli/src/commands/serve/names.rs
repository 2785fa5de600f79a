//! The names that clients use for the served models.

use std::path::Path;

use super::config::ModelEntry;

/// Endings of model files, which are no part of the name.
const FILE_ENDINGS: [&str; 2] = [".gguf", ".safetensors"];

/// The names of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelNames {
    /// The name that it is listed under.
    pub name: String,
    /// Further names; `*` is any name.
    pub aliases: Vec<String>,
}

/// Returns the models' names.
///
/// # Errors
/// If a name is empty, or two models have the same.
pub(super) fn model_names(entries: &[ModelEntry]) -> anyhow::Result<Vec<ModelNames>> {
    let all: Vec<ModelNames> = (entries.iter())
        .map(|entry| names_of(&entry.model, entry.aliases.clone()))
        .collect();
    let mut seen = vec![];
    for names in &all {
        for name in std::iter::once(&names.name).chain(&names.aliases) {
            if name.is_empty() {
                anyhow::bail!("a model has an empty alias");
            }
            if seen.contains(&name) {
                let advice = "give each its own, with --alias NAME in order or alias in the file of --config";
                anyhow::bail!("two models have the name {name}; {advice}");
            }
            seen.push(name);
        }
    }
    Ok(all)
}

/// The first given name that is not `*` is the model's own, else its default name is.
fn names_of(model: &str, mut given: Vec<String>) -> ModelNames {
    let mut unique = vec![];
    given.retain(|name| {
        let is_new = !unique.contains(name);
        unique.push(name.clone());
        is_new
    });
    let own = given.iter().position(|name| name != "*");
    let name = own.map_or_else(|| default_name(model), |index| given.remove(index));
    ModelNames { name, aliases: given }
}

/// The last part of a path without the ending of a model file, or MODEL itself if it is no path.
fn default_name(model: &str) -> String {
    let path = Path::new(model);
    let last = || {
        let path = if path.file_name().is_some() {
            path.to_owned()
        } else {
            path.canonicalize().ok()?
        };
        let is_folder = path.is_dir();
        let name = path
            .exists()
            .then(|| path.file_name()?.to_str().map(str::to_owned))
            .flatten()?;
        let lower = name.to_ascii_lowercase();
        let ending = FILE_ENDINGS
            .iter()
            .find(|ending| !is_folder && lower.ends_with(*ending));
        let stem = &name[..name.len() - ending.map_or(0, |ending| ending.len())];
        (!stem.is_empty()).then(|| stem.to_owned())
    };
    last().unwrap_or_else(|| model.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str, aliases: &[&str]) -> ModelNames {
        ModelNames {
            name: name.to_owned(),
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        }
    }

    #[test]
    fn default_names_keep_their_dots() {
        let folder = tempfile::tempdir().unwrap();
        for (made, expected) in [
            ("Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct"),
            ("Qwen2.5.gguf", "Qwen2.5.gguf"),
            ("v1.0", "v1.0"),
        ] {
            let path = folder.path().join(made);
            std::fs::create_dir(&path).unwrap();
            assert_eq!(default_name(path.to_str().unwrap()), expected);
            assert_eq!(default_name(&format!("{}/", path.display())), expected);
        }
        for (made, expected) in [
            ("Llama-3.2-1B.Q4_K_M.gguf", "Llama-3.2-1B.Q4_K_M"),
            ("MODEL.GGUF", "MODEL"),
            (".gguf", ".gguf"),
        ] {
            let path = folder.path().join(made);
            std::fs::write(&path, "").unwrap();
            let found = default_name(path.to_str().unwrap());
            assert!(found == expected || found.ends_with(&format!("/{expected}")), "{found}");
        }
        assert_eq!(default_name("Qwen/Qwen3-0.6B"), "Qwen/Qwen3-0.6B");
    }

    #[test]
    fn the_first_given_name_is_the_models_own() {
        let given = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names_of("demo", given(&[])), names("demo", &[]));
        assert_eq!(names_of("demo", given(&["a", "b"])), names("a", &["b"]));
        assert_eq!(names_of("demo", given(&["*"])), names("demo", &["*"]));
        assert_eq!(names_of("demo", given(&["*", "a", "a"])), names("a", &["*"]));
    }
}
