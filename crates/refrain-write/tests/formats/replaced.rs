//! What a conversion may replace, and what it never does.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use refrain_formats::{Encoding, Error, WriteProgress};
use refrain_models::Checkpoint;
use refrain_write::convert::{ConvertOptions, Recipe, convert};

use crate::convert::{converted, open, options, recipe};

/// Adds something to a directory.
type Add<'a> = &'a dyn Fn(&Path);

/// Returns all paths below a directory with the contents of files.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_file() {
            found.insert(path.clone(), fs::read(&path).unwrap());
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            found.extend(tree(&path));
        }
        found.insert(path, Vec::new());
    }
    found
}

#[test]
fn never_replaces_files_that_no_checkpoint_has() {
    let source = open("qwen3-bf16");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let force = |out: &Path, recipe| {
        let options = ConvertOptions {
            replace: true,
            ..options(recipe)
        };
        convert(&source, out, &options)
    };
    // Model directories with one extra entry, and other directories with a config.json.
    let strangers: [(&str, Add<'_>); 7] = [
        (".git", &|model| fs::create_dir(model.join(".git")).unwrap()),
        ("src", &|model| {
            fs::create_dir(model.join("src")).unwrap();
            fs::write(model.join("src/a"), "x").unwrap();
        }),
        ("README.md", &|model| fs::write(model.join("README.md"), "x").unwrap()),
        ("Modelfile", &|model| fs::write(model.join("Modelfile"), "x").unwrap()),
        ("adapter.safetensors", &|model| {
            fs::write(model.join("adapter.safetensors"), "x").unwrap();
        }),
        ("additional_chat_templates/mine.jinja", &|model| {
            fs::create_dir(model.join("additional_chat_templates")).unwrap();
            fs::write(model.join("additional_chat_templates/mine.jinja"), "x").unwrap();
        }),
        ("merges.txt", &|model| fs::create_dir(model.join("merges.txt")).unwrap()),
    ];
    for (number, (stranger, add)) in strangers.into_iter().enumerate() {
        let model = at(&format!("model-{number}"));
        convert(&source, &model, &options(recipe("mlx4"))).unwrap();
        add(&model);
        let before = tree(folder.path());
        let message = force(&model, Recipe::F16).unwrap_err().to_string();
        assert!(
            message.contains(&format!("holds {stranger}, which is not part of a checkpoint")),
            "{message}"
        );
        assert_eq!(tree(folder.path()), before, "{stranger}");
    }
    let project = at("project");
    fs::create_dir_all(&project).unwrap();
    fs::write(project.join("config.json"), "{}").unwrap();
    let file = at("thesis");
    fs::write(&file, "kept").unwrap();
    let gguf = at("thesis.gguf");
    fs::write(&gguf, "kept").unwrap();
    fs::create_dir(at("d.gguf")).unwrap();
    let before = tree(folder.path());
    for (out, recipe, expected) in [
        (&project, recipe("mlx4"), "without a model's config.json"),
        (&file, recipe("mlx4"), "is a file, not a directory"),
        (&gguf, recipe("q8_0"), "is not a GGUF file"),
        (&at("d.gguf"), recipe("q8_0"), "is a directory"),
    ] {
        let message = force(out, recipe).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(tree(folder.path()), before);
}

#[test]
fn replaces_a_checkpoint_with_all_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    convert(&open("qwen3-bf16"), &out, &options(recipe("mlx4"))).unwrap();
    fs::write(out.join("model-00001-of-00002.safetensors"), "old").unwrap();
    fs::create_dir(out.join("additional_chat_templates")).unwrap();
    fs::write(out.join("additional_chat_templates/tool_use.jinja"), "old").unwrap();
    let replacing = ConvertOptions {
        replace: true,
        ..options(Recipe::F16)
    };
    convert(&open("llama-f32"), &out, &replacing).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(!out.join("model-00001-of-00002.safetensors").exists());
    assert!(!out.join("additional_chat_templates").exists());
    assert_eq!(Checkpoint::open(&out).unwrap().config().family.name, "llama");
}

#[test]
#[cfg(unix)]
fn replaces_the_target_of_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let source = open("qwen3-bf16");
    for (recipe, real, link) in [
        (recipe("mlx4"), "real", "link"),
        (recipe("q8_0"), "real.gguf", "link.gguf"),
    ] {
        convert(&source, &at(real), &options(recipe)).unwrap();
        std::os::unix::fs::symlink(at(real), at(link)).unwrap();
        let before = tree(folder.path());
        let refused = convert(&source, &at(link), &options(recipe));
        assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
        assert_eq!(tree(folder.path()), before);
        let replacing = ConvertOptions {
            replace: true,
            ..options(Recipe::F16)
        };
        convert(&source, &at(link), &replacing).unwrap();
        assert!(at(link).is_symlink());
        let checkpoint = Checkpoint::open(&at(real)).unwrap();
        let embedding = checkpoint.tensor("model.embed_tokens.weight").unwrap();
        assert_eq!(embedding.info.encoding, Encoding::F16);
    }
}

#[test]
fn replaces_a_checkpoint_only_on_request_and_only_when_complete() {
    let source = open("qwen3-bf16");
    for (recipe, gguf) in [(recipe("q8_0"), true), (recipe("mlx4"), false)] {
        let folder = tempfile::tempdir().unwrap();
        let (out, report) = converted(&source, recipe, gguf, folder.path());
        report.unwrap();
        assert!(
            converted(&source, recipe, gguf, folder.path())
                .1
                .unwrap_err()
                .to_string()
                .contains("already exists")
        );
        let stop = |_: WriteProgress| ControlFlow::Break(());
        let replacing = ConvertOptions {
            replace: true,
            ..options(Recipe::F16)
        };
        let stopped = ConvertOptions {
            progress: &stop,
            ..replacing
        };
        assert!(matches!(convert(&source, &out, &stopped), Err(Error::Stopped { .. })));
        let encoding = |path: &Path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            checkpoint.tensor("model.embed_tokens.weight").unwrap().info.encoding
        };
        assert_ne!(encoding(&out), Encoding::F16);
        let replacing = ConvertOptions {
            replace: true,
            ..options(Recipe::F16)
        };
        convert(&source, &out, &replacing).unwrap();
        assert_eq!(encoding(&out), Encoding::F16);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
