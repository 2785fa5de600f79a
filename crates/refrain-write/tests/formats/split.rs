//! GGUF models split over several files.

use std::path::{Path, PathBuf};

use refrain_models::Checkpoint;
use refrain_text::TokenizerFiles;

use crate::support::{GgufBuilder, Meta, message};

const TENSORS: [(&str, f32); 5] = [
    ("token_embd.weight", 1.0),
    ("blk.0.attn_norm.weight", 2.0),
    ("blk.0.ffn_norm.weight", 3.0),
    ("output_norm.weight", 4.0),
    ("output.weight", 5.0),
];

/// A model with a tokenizer and all tensors, each of 64 equal values.
fn whole() -> GgufBuilder {
    let tokens = ["<unk>", "a", "b", "ab"].map(str::to_owned).to_vec();
    let model = GgufBuilder::new("llama")
        .set("tokenizer.ggml.model", Meta::Text("llama"))
        .set("tokenizer.ggml.tokens", Meta::Texts(tokens))
        .set("tokenizer.ggml.scores", Meta::F32s(vec![0.0, -1.0, -1.0, -0.5]))
        .set("tokenizer.ggml.token_type", Meta::I32s(vec![2, 1, 1, 1]));
    TENSORS.iter().fold(model, with_tensor)
}

fn with_tensor(model: GgufBuilder, (name, value): &(&'static str, f32)) -> GgufBuilder {
    model.tensor(name, &[64], 0, value.to_le_bytes().repeat(64))
}

/// Splits [`whole`]: the first part has the metadata, all have some of the tensors.
fn parts(count: usize) -> Vec<GgufBuilder> {
    let per_part = TENSORS.len().div_ceil(count);
    let chunks = TENSORS.chunks(per_part).enumerate();
    chunks
        .map(|(number, tensors)| {
            let mut part = whole();
            part.tensors.clear();
            if number > 0 {
                part.metadata.clear();
            }
            let part = part
                .set("split.no", Meta::U32(number as u32))
                .set("split.count", Meta::U32(count as u32))
                .set("split.tensors.count", Meta::U32(TENSORS.len() as u32));
            tensors.iter().fold(part, with_tensor)
        })
        .collect()
}

fn name(number: usize, count: usize) -> String {
    format!("model-{number:05}-of-{count:05}.gguf")
}

fn write(directory: &Path, name: &str, part: &GgufBuilder) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, part.bytes()).unwrap();
    path
}

/// Writes all parts of a model of three under their names.
fn write_parts(directory: &Path) -> Vec<PathBuf> {
    let parts = parts(3);
    let named = parts.iter().enumerate();
    named
        .map(|(index, part)| write(directory, &name(index + 1, 3), part))
        .collect()
}

#[test]
fn opens_the_whole_model_from_any_part_or_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut paths = write_parts(directory.path());
    paths.push(directory.path().to_owned());
    std::fs::write(directory.path().join("mmproj-f16.gguf"), "a vision projector").unwrap();
    let whole = whole().open().unwrap();
    for path in paths {
        let opened = Checkpoint::open(&path).unwrap();
        let names = |checkpoint: &Checkpoint| checkpoint.tensors().map(|info| info.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&opened), names(&whole), "{path:?}");
        for name in names(&whole) {
            let values = |checkpoint: &Checkpoint| checkpoint.tensor(&name).unwrap().dequantise().unwrap();
            assert_eq!(values(&opened), values(&whole), "{name} of {path:?}");
        }
        assert_eq!(opened.config(), whole.config());
        let ids = opened.tokenizer().unwrap().encode("ab", false).unwrap();
        let alone = TokenizerFiles::open(&path).unwrap().tokenizer().unwrap();
        assert_eq!(alone.encode("ab", false).unwrap(), ids);
    }
}

#[test]
fn reports_incomplete_sets() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let paths = write_parts(at);
    let check = |path: &Path, expected: &str| {
        let found = message(Checkpoint::open(path));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    };

    std::fs::rename(&paths[1], at.join("away")).unwrap();
    check(&paths[2], "model-00002-of-00003.gguf: is missing: it is part 2 of 3");
    check(at, "model-00002-of-00003.gguf: is missing: it is part 2 of 3");

    write(at, &name(2, 3), &parts(2)[1]);
    check(
        &paths[0],
        "model-00002-of-00003.gguf: is part 2 of 2 by its metadata, but part 2 of 3 by its name: parts of \
         different models are mixed",
    );

    let mut few = parts(3).remove(1);
    few.tensors.pop();
    write(at, &name(2, 3), &few);
    check(
        &paths[0],
        "metadata split.tensors.count is 5, but all parts together have 4",
    );

    let mut twice = parts(3).remove(1);
    twice.tensors[0].0 = TENSORS[0].0;
    write(at, &name(2, 3), &twice);
    check(&paths[0], "tensor token_embd.weight: is duplicated");

    let renamed = at.join("first.gguf");
    std::fs::copy(&paths[0], &renamed).unwrap();
    check(
        &renamed,
        r#"is part 1 of 3, but its name does not end in "-00001-of-00003.gguf""#,
    );
    check(
        at,
        "holds 2 GGUF models: name one of first.gguf, model-00001-of-00003.gguf",
    );

    let odd = write(at, "odd.gguf", &whole().set("split.no", Meta::U32(7)));
    check(&odd, "claims to be part 8 of 1");
    let held = message(Checkpoint::from_gguf_bytes(parts(3)[0].bytes()));
    assert!(held.contains("is one part of 3: the others are missing"), "{held}");
}
