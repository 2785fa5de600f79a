//! Conversions between formats.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use refrain_formats::{Error, WriteProgress};
use refrain_models::Checkpoint;
use refrain_models::config::{RopeScaling, is_norm};
use refrain_testing::sample;
use refrain_write::convert::{ConvertOptions, Recipe, Report, convert};
use serde_json::Value;

use crate::support::fixtures;

fn no_progress(_: WriteProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub fn options(recipe: Recipe) -> ConvertOptions<'static> {
    ConvertOptions {
        recipe,
        name: "test",
        replace: false,
        progress: &no_progress,
    }
}

pub fn open(name: &str) -> Checkpoint {
    let directory = fixtures().join(name);
    let file = directory.join("model.gguf");
    Checkpoint::open(if file.exists() { &file } else { &directory }).unwrap()
}

/// Converts a fixture; also returns the path of the result.
pub fn converted(source: &Checkpoint, recipe: Recipe, gguf: bool, folder: &Path) -> (PathBuf, Result<Report, Error>) {
    let out = folder.join(if gguf { "model.gguf" } else { "model" });
    let report = convert(source, &out, &options(recipe));
    (out, report)
}

/// Names of all fixtures that are checkpoints.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = entries
        .filter(|path| path.join("tokens.json").exists())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert!(names.len() > 20);
    names
}

/// Returns the recipe of this name.
pub fn recipe(name: &str) -> Recipe {
    Recipe::by_name(name).unwrap()
}

const ALL: [(&str, bool); 14] = [
    ("f16", true),
    ("q8_0", true),
    ("q6_k", true),
    ("q5_k_m", true),
    ("q4_k_m", true),
    ("q3_k_m", true),
    ("q4_0", true),
    ("iq4_nl", true),
    ("iq4_xs", true),
    ("mxfp4", true),
    ("mlx3-g32", false),
    ("f16", false),
    ("mlx4", false),
    ("mlx8", false),
];

/// Settings that GGUF cannot represent, by parts of the names of the fixtures that have them.
const UNREPRESENTABLE: [(&str, &str); 5] = [
    ("deepseek", "no tensor names in GGUF"),
    ("gemma3", "attention scale"),
    ("dynamic", "rotary embeddings"),
    ("smollm3", "rotary embeddings per layer"),
    ("qwen3-moe-f32", "mixture of experts"),
];

/// Returns the relative RMS error of one tensor's values.
fn error(source: &Checkpoint, result: &Checkpoint, name: &str) -> f64 {
    let values = |checkpoint: &Checkpoint| {
        let shifted = is_norm(name) && !name.ends_with("linear_attn.norm.weight");
        let offset = if shifted { checkpoint.config().norm.offset } else { 0.0 };
        let nets = checkpoint.config().delta_net.as_ref();
        let rates = name.ends_with("A_log") && nets.is_some_and(|nets| nets.holds_decay_rates);
        let mut values = all_values(checkpoint, name);
        values
            .iter_mut()
            .for_each(|value| *value = if rates { (-*value).ln() } else { *value + offset });
        values
    };
    let (old, new) = (values(source), values(result));
    assert_eq!(old.len(), new.len(), "{name}");
    let squares = old.iter().zip(&new).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    let reference = old.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>();
    (squares / reference).sqrt()
}

/// Returns a tensor's values, even if its experts are stored in other tensors.
fn all_values(checkpoint: &Checkpoint, name: &str) -> Vec<f32> {
    let of = |tensor: Option<refrain_formats::Tensor<'_>>| tensor.map(|tensor| tensor.dequantise().unwrap());
    if let Some(values) = of(checkpoint.tensor(name)) {
        return values;
    }
    let (layer, part) = name.split_once(".experts.").unwrap();
    if let Some((expert, part)) = part.strip_suffix(".weight").and_then(|part| part.split_once('.')) {
        let all = all_values(checkpoint, &format!("{layer}.experts.{part}"));
        let each = all.len() / checkpoint.config().feed_forward.moe.as_ref().unwrap().experts;
        return all[expert.parse::<usize>().unwrap() * each..][..each].to_vec();
    }
    let experts = checkpoint.config().feed_forward.moe.as_ref().unwrap().experts;
    // Gate and up may be fused in one tensor or not.
    let ending = if part.ends_with("_bias") { "_bias" } else { "" };
    let tensor_of = |part: &str| of(checkpoint.tensor(&format!("{layer}.experts.{part}{ending}")));
    if let (Some(gate), Some(up), true) = (
        tensor_of("gate_proj"),
        tensor_of("up_proj"),
        part.starts_with("gate_up_proj"),
    ) {
        let each = gate.len() / experts;
        let pairs = gate.chunks(each).zip(up.chunks(each));
        return pairs.flat_map(|(gate, up)| [gate, up].concat()).collect();
    }
    if let Some(both) = tensor_of("gate_up_proj") {
        let halves = both.chunks(both.len() / experts / 2);
        let own = halves.skip(usize::from(part.starts_with("up_proj"))).step_by(2);
        return own.flatten().copied().collect();
    }
    let experts = 0..checkpoint.config().feed_forward.moe.as_ref().unwrap().experts;
    experts
        .flat_map(|expert| of(checkpoint.tensor(&format!("{layer}.experts.{expert}.{part}.weight"))).unwrap())
        .collect()
}

/// Fails unless a fixture keeps its values in a format, and its report states their deviation. Returns the reason
/// if the conversion is refused.
fn check_converted(name: &str, recipe: Recipe, gguf: bool) -> Option<&'static str> {
    let source = open(name);
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = converted(&source, recipe, gguf, folder.path());
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            let known = UNREPRESENTABLE
                .iter()
                .find(|(fixtures, _)| gguf && name.contains(fixtures));
            let (_, reason) = known.unwrap_or_else(|| panic!("{name} {recipe}: {error}"));
            assert!(error.to_string().contains(reason), "{name} {recipe}: {error}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
            return Some(reason);
        }
    };
    let result = Checkpoint::open(&out).unwrap();
    for tensor in &report.tensors {
        let found = error(&source, &result, &tensor.name);
        let bound = match &tensor.to.to_string()[..] {
            // One side applies an exponential, the other a logarithm.
            _ if tensor.name.ends_with("A_log") => 1e-6,
            "F32" => 0.0,
            "F16" => 5e-4,
            "BF16" => 4e-3,
            "MXFP4" => 0.2,
            "Q3_K" | "MLX 3-bit/32" => 0.26,
            "Q8_0" | "MLX 8-bit/64" => 0.012,
            "Q6_K" => 0.03,
            "Q5_0" | "Q5_1" | "Q5_K" => 0.06,
            _ => 0.13,
        };
        let what = format!("{name} {recipe} {} {}", tensor.name, tensor.to);
        assert!(found <= bound, "{what}: {found}");
        let reported = tensor.deviation.relative_rms();
        // If the norm weights' offset differs, the error is relative to other values.
        let has_offset = |checkpoint: &Checkpoint| checkpoint.config().norm.offset != 0.0;
        let moved = is_norm(&tensor.name) && (has_offset(&source) || has_offset(&result));
        let moved = moved || tensor.name.ends_with("A_log");
        assert!(
            moved || (reported - found).abs() <= 1e-6 + 1e-3 * found,
            "{what}: {found}, reported {reported}"
        );
        assert_eq!(result.tensor(&tensor.name).unwrap().info.encoding, tensor.to, "{what}");
    }
    None
}

#[test]
fn fixtures_keep_their_values_in_all_formats_and_report_deviations() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let (mut first, mut others) = (vec![], vec![]);
    for (number, name) in names().into_iter().enumerate() {
        // The fixture of each family in its training precision is written in every format, quantised ones only in
        // some.
        let is_quantised = name.contains("-gguf-") || name.contains("-mlx");
        for (index, format) in ALL.into_iter().enumerate() {
            if index == 0 && !is_quantised {
                first.push((name.clone(), format));
            } else if !is_quantised || (number + index) % 3 == 0 {
                others.push((name.clone(), format));
            }
        }
    }
    let cases = first.into_iter().chain(sample(others, 12));
    let refused: BTreeSet<&str> = cases
        .filter_map(|(name, (format, gguf))| check_converted(&name, recipe(format), gguf))
        .collect();
    assert_eq!(refused.len(), UNREPRESENTABLE.len(), "{refused:?}");
}

#[test]
fn converts_the_tokenizer_too() {
    let texts = [
        "Hello, world! 12345 tokens\n\n\tand  spaces ",
        "naïve café — 漢字 🙂",
        "it's the end<|im_end|>",
        "",
    ];
    for name in sample(names(), 8) {
        let source = open(&name);
        let old = source.tokenizer().unwrap();
        for (recipe, gguf) in [(recipe("q8_0"), true), (recipe("mlx8"), false)] {
            let folder = tempfile::tempdir().unwrap();
            let (out, report) = converted(&source, recipe, gguf, folder.path());
            let Ok(_) = report else { continue };
            let result = Checkpoint::open(&out).unwrap();
            let new = result.tokenizer().unwrap();
            for text in texts {
                let ids = |tokenizer: &refrain_text::Tokenizer| tokenizer.encode(text, true).unwrap();
                assert_eq!(ids(&new), ids(&old), "{name} {recipe} {text:?}");
            }
            assert_eq!(new.bos_id(), old.bos_id(), "{name} {recipe}");
            let sorted = |tokenizer: &refrain_text::Tokenizer| {
                let mut ids = tokenizer.eos_ids().to_vec();
                ids.sort_unstable();
                ids
            };
            assert_eq!(sorted(&new), sorted(&old), "{name} {recipe}");
            assert_eq!(
                result.special_tokens().unwrap(),
                source.special_tokens().unwrap(),
                "{name} {recipe}"
            );
            let template = |checkpoint: &Checkpoint| {
                checkpoint
                    .chat_template()
                    .unwrap()
                    .map(|t| t.source(false).unwrap().to_owned())
            };
            assert_eq!(template(&result), template(&source), "{name} {recipe}");
        }
    }
}

#[test]
fn copies_blocks_whose_encoding_stays() {
    for (name, recipe, gguf) in [
        ("llama-gguf-q8_0", recipe("q8_0"), true),
        ("qwen3.5-gguf-q8_0", recipe("q8_0"), true),
        // Blocks that span the columns of two heads.
        ("qwen3.5-moe-gguf-q8_0", recipe("q8_0"), true),
        ("qwen3-mlx4", recipe("mlx4"), false),
    ] {
        let source = open(name);
        let folder = tempfile::tempdir().unwrap();
        let (out, report) = converted(&source, recipe, gguf, folder.path());
        assert!(
            report
                .unwrap()
                .tensors
                .iter()
                .all(|tensor| tensor.deviation.largest() == 0.0)
        );
        let result = Checkpoint::open(&out).unwrap();
        for info in source.tensors() {
            let (old, new) = (source.tensor(&info.name).unwrap(), result.tensor(&info.name).unwrap());
            assert_eq!(
                old.dequantise().unwrap(),
                new.dequantise().unwrap(),
                "{name} {}",
                info.name
            );
        }
    }
}

#[test]
fn mxfp4_experts_round_trip_through_gguf() {
    let source = open("gpt-oss-mxfp4");
    let folder = tempfile::tempdir().unwrap();
    let (file, report) = converted(&source, recipe("mxfp4"), true, folder.path());
    for tensor in report.unwrap().tensors.iter().filter(|t| t.name.contains(".experts.")) {
        assert_eq!(tensor.deviation.largest(), 0.0, "{}", tensor.name);
        let expected = if tensor.name.ends_with("_bias") { "F32" } else { "MXFP4" };
        assert_eq!(tensor.to.to_string(), expected, "{}", tensor.name);
    }
    let between = Checkpoint::open(&file).unwrap();
    let (directory, report) = converted(&between, Recipe::F16, false, folder.path());
    report.unwrap();
    let back = Checkpoint::open(&directory).unwrap();
    assert_eq!(back.config().feed_forward.moe, source.config().feed_forward.moe);
    for part in ["gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"] {
        let name = format!("model.layers.1.mlp.experts.{part}");
        let [old, new] = [&source, &back].map(|checkpoint| checkpoint.tensor(&name).unwrap());
        assert_eq!(old.info.shape, new.info.shape, "{part}");
        assert_eq!(old.dequantise().unwrap(), new.dequantise().unwrap(), "{part}");
    }
}

#[test]
fn llama_rope_scaling_round_trips_through_gguf() {
    let source = open("llama-f32");
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = converted(&source, Recipe::F16, true, folder.path());
    let between = Checkpoint::open(&file).unwrap();
    assert!(matches!(between.config().positions.scaling, RopeScaling::Factors(_)));
    let (directory, _) = converted(&between, Recipe::F16, false, folder.path());
    let back = Checkpoint::open(&directory).unwrap();
    let (old, new) = (&source.config().positions.scaling, &back.config().positions.scaling);
    let (RopeScaling::Llama3 { factor: a, .. }, RopeScaling::Llama3 { factor: b, .. }) = (old, new) else {
        panic!("{old:?} became {new:?}");
    };
    assert!((a - b).abs() < 1e-5 * a, "{old:?} became {new:?}");
}

#[test]
fn keeps_partial_rotary_embeddings_in_every_configuration_style() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for entry in std::fs::read_dir(fixtures().join("phi3-longrope-short-bf16")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, source.join(path.file_name().unwrap())).unwrap();
    }
    let file = source.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let old = config.as_object_mut().unwrap();
    let mut rope = old.remove("rope_scaling").unwrap();
    for key in [
        "rope_theta",
        "partial_rotary_factor",
        "original_max_position_embeddings",
    ] {
        rope[key] = old.remove(key).unwrap();
    }
    old.insert("rope_parameters".to_owned(), rope);
    // The default original length of this family is 4096.
    old.insert("original_max_position_embeddings".to_owned(), 48.into());
    std::fs::write(&file, config.to_string()).unwrap();

    let source = Checkpoint::open(&source).unwrap();
    assert_eq!(
        (source.config().positions.dims, source.config().attention.head_dim),
        (24, 32)
    );
    let (path, report) = converted(&source, Recipe::F16, false, folder.path());
    report.unwrap();
    let result = Checkpoint::open(&path).unwrap();
    assert_eq!(result.config().positions.dims, 24);
    assert_eq!(result.config().positions.scaling, source.config().positions.scaling);
}

#[test]
fn refuses_invalid_destinations_without_a_trace() {
    let source = open("qwen3-bf16");
    let folder = tempfile::tempdir().unwrap();
    let refused = |recipe, out: &str, replace| {
        let options = ConvertOptions {
            replace,
            ..options(recipe)
        };
        convert(&source, &folder.path().join(out), &options)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(recipe("q8_0"), "directory", false).contains("must end in .gguf"));
    assert!(refused(recipe("mlx4"), "m.gguf", false).contains("writes a directory"));
    assert!(refused(recipe("q8_0"), "no/such/folder/m.gguf", false).contains("cannot write"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // Directories that are not checkpoints are not replaced either.
    std::fs::create_dir(folder.path().join("home")).unwrap();
    std::fs::write(folder.path().join("home/precious"), "kept").unwrap();
    assert!(refused(recipe("mlx4"), "home", false).contains("already exists"));
    assert!(refused(recipe("mlx4"), "home", true).contains("holds precious, which is not part of a checkpoint"));
    assert_eq!(
        std::fs::read_to_string(folder.path().join("home/precious")).unwrap(),
        "kept"
    );
}

#[test]
fn notes_requantisation() {
    let folder = tempfile::tempdir().unwrap();
    for (name, recipe, expected) in [
        ("qwen3-mlx4", recipe("q4_k_m"), true),
        ("llama-gguf-q8_0", recipe("mlx4"), true),
        ("llama-gguf-q8_0", recipe("q8_0"), false),
        ("llama-gguf-q8_0", Recipe::F16, false),
        ("qwen3-bf16", recipe("mlx8"), false),
    ] {
        let gguf = !matches!(recipe, Recipe::Mlx(_));
        let out = folder
            .path()
            .join(format!("{name}-{recipe}{}", if gguf { ".gguf" } else { "" }));
        let notes = convert(&open(name), &out, &options(recipe)).unwrap().notes;
        let noted = notes.iter().any(|note| note.contains("is already quantised"));
        assert_eq!(noted, expected, "{name} {recipe}: {notes:?}");
    }
}

#[test]
fn converts_models_without_tokenizer() {
    let source = Checkpoint::synthetic("tiny-llama:f16").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = converted(&source, recipe("q4_k_m"), true, folder.path());
    assert!(report.unwrap().notes.iter().any(|note| note.contains("no tokenizer")));
    assert_eq!(
        Checkpoint::open(&out).unwrap().config().eos_ids,
        source.config().eos_ids
    );
}
