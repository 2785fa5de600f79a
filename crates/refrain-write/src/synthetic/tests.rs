use std::ops::ControlFlow;
use std::path::Path;

use refrain_formats::write::WriteProgress;
use refrain_formats::{Encoding, Error, Format, Tensor, synthetic::formats};
use refrain_models::config::RopeScaling;
use refrain_models::{Checkpoint, FAMILIES, ModelConfig, SyntheticSpec, architectures};
use refrain_testing::sample;

use super::{write, write_shards};

/// Every format; MLX's once per group size.
fn all_formats() -> Vec<&'static str> {
    let grouped = ["mlx2-g32", "mlx3-g128", "mlx4-g32", "mlx4-g64", "mlx5-g128", "mlx8-g32"];
    formats().into_iter().chain(grouped).collect()
}

fn no_progress(_: WriteProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// All planes of a tensor, by name.
fn planes(tensor: &Tensor<'_>) -> [(&'static str, Vec<u8>); 4] {
    type Read<'t> = &'t dyn Fn(u64, &mut [u8]) -> Result<(), Error>;
    let plane = |name, bytes: u64, read: Read<'_>| {
        let mut plane = vec![0; bytes as usize];
        if bytes > 0 {
            read(0, &mut plane).unwrap();
        }
        (name, plane)
    };
    [
        plane("data", tensor.data_bytes(), &|offset, out| {
            tensor.write_data(offset, out)
        }),
        plane("quants", tensor.quants_bytes(), &|offset, out| {
            tensor.write_quants(offset, out)
        }),
        plane("scales", tensor.scales_bytes(), &|offset, out| {
            tensor.write_scales(offset, out)
        }),
        plane("biases", tensor.biases_bytes(), &|offset, out| {
            tensor.write_biases(offset, out)
        }),
    ]
}

/// Checks that the checkpoint at `path` equals the synthetic one of that name, byte for byte.
fn assert_written(spec: &str, path: &Path) {
    let (made, read) = (Checkpoint::synthetic(spec).unwrap(), Checkpoint::open(path).unwrap());
    assert_eq!(made.format(), read.format());
    let mut config = made.config().clone();
    if let (RopeScaling::Llama3 { .. }, RopeScaling::Factors(factors)) =
        (&config.positions.scaling, &read.config().positions.scaling)
    {
        config.positions.scaling = RopeScaling::Factors(factors.clone());
    }
    assert_eq!(&config, read.config());
    assert_eq!(made.generation(), read.generation());
    let infos: Vec<_> = read.tensors().collect();
    assert_eq!(made.tensors().collect::<Vec<_>>(), infos);
    for info in infos {
        let tensors = [&made, &read].map(|checkpoint| checkpoint.expect(&info.name, &info.shape).unwrap());
        assert_eq!(tensors[0].scale_encoding(), tensors[1].scale_encoding());
        for (a, b) in planes(&tensors[0]).into_iter().zip(planes(&tensors[1])) {
            assert!(a == b, "{spec}: the {} of {} differ", a.0, info.name);
        }
        let [a, b] = tensors.map(|tensor| tensor.dequantise().unwrap());
        assert!(a == b, "{spec}: the values of {} differ", info.name);
    }
}

#[test]
fn written_checkpoints_equal_in_memory_ones() {
    let directory = tempfile::tempdir().unwrap();
    let formats = all_formats();
    // Llama stores rows in another order.
    let llama = ["f16", "q8_0", "q4_k_m", "mlx4"].map(|format| format!("tiny-llama:{format}"));
    // Value heads in another order; the matching columns fill whole blocks or not.
    let hybrid = ["f32", "f16", "bf16", "q8_0", "q4_k_m", "mlx4", "mlx8-g32"];
    let hybrid = hybrid.map(|format| format!("tiny-hybrid:{format}"));
    let dense = ["f32", "bf16", "q4_0", "q6_k", "mlx4"].map(|format| format!("tiny-hybrid-dense:{format}"));
    let moe = ["f16", "q8_0", "q4_k_m", "mlx4"].map(|format| format!("tiny-mixture:{format}"));
    // Transposed matrices in directories, expert biases.
    let sinks = ["f16", "bf16", "q8_0", "q4_k_m", "mxfp4", "mlx4"].map(|format| format!("tiny-gpt-oss:{format}"));
    // A dense layer before mixtures; norms per head.
    let shared = ["bf16", "q4_k_m", "mlx4"].map(|format| format!("tiny-glm-moe:{format}"));
    let norms = ["f16", "q8_0", "mlx4"].map(|format| format!("tiny-cohere:{format}"));
    // Latent vectors, also of queries.
    let latent = [
        "tiny-deepseek-v2:bf16",
        "tiny-deepseek-v2:mlx4",
        "tiny-deepseek-v3:mlx4",
    ]
    .map(str::to_owned);
    let specs = formats
        .iter()
        .map(|format| format!("tiny:{format}"))
        .chain(llama)
        .chain(hybrid)
        .chain(moe)
        .chain(sinks)
        .chain(shared)
        .chain(norms)
        .chain(latent)
        .chain(dense);
    let specs = sample(specs, 4);
    for spec in &specs {
        let is_gguf = SyntheticSpec::parse(spec, FAMILIES).unwrap().format() == Format::Gguf;
        let ending = if is_gguf { ".gguf" } else { "" };
        let out = directory.path().join(spec.replace(':', "-") + ending);
        write(spec, &out, &no_progress).unwrap();
        assert_written(spec, &out);
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), specs.len());
}

#[test]
fn shards_large_directories() {
    let directory = tempfile::tempdir().unwrap();
    for spec in ["tiny:f16", "tiny-llama:mlx4"] {
        let out = directory.path().join(&spec[..6]);
        write_shards(
            &SyntheticSpec::parse(spec, FAMILIES).unwrap(),
            &out,
            100_000,
            &no_progress,
        )
        .unwrap();
        assert_written(spec, &out);
        let index = std::fs::read(out.join("model.safetensors.index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
        let bytes: u64 = Checkpoint::synthetic(spec)
            .unwrap()
            .tensors()
            .map(|tensor| tensor.bytes)
            .sum();
        assert_eq!(index["metadata"]["total_size"], bytes);
        let files = std::fs::read_dir(&out).unwrap().count();
        assert!(files > 5 && !out.join("model.safetensors").exists(), "{files} files");
    }
}

#[test]
fn ranges_of_a_plane_equal_the_whole() {
    for format in ["f16", "q8_0", "q4_1", "q6_k", "mlx3"] {
        let spec = format!("qwen3-0.6b:{format}");
        let checkpoint = Checkpoint::synthetic(&spec).unwrap();
        for (name, rows, columns) in [
            ("model.layers.1.self_attn.q_norm.weight", 128, 1),
            ("model.layers.1.mlp.gate_proj.weight", 3072, 1024),
        ] {
            let shape = if columns == 1 { vec![rows] } else { vec![rows, columns] };
            let tensor = checkpoint.expect(name, &shape).unwrap();
            for (plane, whole) in planes(&tensor) {
                // Beyond one thread's piece, and not aligned to any unit.
                for (start, length) in [
                    (0, 5),
                    (3, 10),
                    (7, 131_072),
                    (131_071, 300_000),
                    (whole.len().saturating_sub(9), 9),
                ] {
                    let Some(expected) = whole.get(start..start + length) else {
                        continue;
                    };
                    let mut part = vec![0; length];
                    let offset = start as u64;
                    match plane {
                        "data" => tensor.write_data(offset, &mut part),
                        "quants" => tensor.write_quants(offset, &mut part),
                        "scales" => tensor.write_scales(offset, &mut part),
                        _ => tensor.write_biases(offset, &mut part),
                    }
                    .unwrap();
                    assert!(part == expected, "{spec}: {plane} of {name} at {start}");
                }
            }
        }
    }
}

#[test]
fn weights_are_centred_at_zero_and_gains_at_one() {
    for format in all_formats() {
        let checkpoint = Checkpoint::synthetic(&format!("tiny:{format}")).unwrap();
        for info in checkpoint.tensors() {
            let values = checkpoint.tensor(&info.name).unwrap().dequantise().unwrap();
            let count = values.len() as f64;
            let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
            let variance = values
                .iter()
                .map(|&value| (f64::from(value) - mean).powi(2))
                .sum::<f64>()
                / count;
            let deviation = variance.sqrt();
            if info.shape.len() == 1 {
                assert!(values.iter().all(|value| (0.89..1.11).contains(value)), "{}", info.name);
                assert!((0.03..0.09).contains(&deviation), "{}: {deviation}", info.name);
            } else {
                assert!(
                    (0.018..0.024).contains(&deviation),
                    "{format} {}: {deviation}",
                    info.name
                );
                assert!(mean.abs() < 5e-4, "{format} {}: {mean}", info.name);
            }
        }
    }
}

#[test]
fn all_matrices_differ() {
    for format in all_formats() {
        let checkpoint = Checkpoint::synthetic(&format!("tiny:{format}")).unwrap();
        let mut seen = std::collections::HashSet::new();
        for info in checkpoint.tensors() {
            for (plane, bytes) in planes(&checkpoint.tensor(&info.name).unwrap()) {
                if plane != "biases" && !bytes.is_empty() {
                    assert!(seen.insert(bytes[..64].to_vec()), "{format}: {plane} of {}", info.name);
                }
            }
        }
    }
}

#[test]
fn architectures_have_published_parameter_counts() {
    // Parameter counts of the model cards and transformers.
    for (architecture, parameters) in [
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-14b", 14_768_307_200),
        ("qwen3-32b", 32_762_123_264),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("llama-3.1-8b", 8_030_261_248),
        ("qwen3.5-35b-a3b", 34_660_610_688),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("gpt-oss-20b", 20_914_757_184),
        ("gpt-oss-120b", 116_829_156_672),
        ("granite-3.3-2b", 2_533_539_840),
        ("starcoder2-3b", 3_030_371_328),
    ] {
        let checkpoint = Checkpoint::synthetic(&format!("{architecture}:q4_0")).unwrap();
        // Model cards count multi-token prediction heads apart.
        let tensors = checkpoint
            .tensors()
            .filter(|tensor| !checkpoint.config().is_mtp(&tensor.name));
        let count: usize = tensors.map(|tensor| tensor.values()).sum();
        assert_eq!(count, parameters, "{architecture}");
    }
    for architecture in architectures() {
        let config: ModelConfig = Checkpoint::synthetic(&format!("{architecture}:f16"))
            .unwrap()
            .config()
            .clone();
        config.validate(architecture).unwrap();
        assert_eq!(config.family.name == "llama", architecture.contains("llama"));
    }
}

#[test]
fn q4_k_m_uses_the_encodings_of_llama_cpp() {
    let encodings = |spec: &str, name: &str| {
        let checkpoint = Checkpoint::synthetic(spec).unwrap();
        checkpoint.tensor(name).map(|tensor| tensor.info.encoding)
    };
    for (spec, name, expected) in [
        ("qwen3-8b:q4_k_m", "lm_head.weight", Some(Encoding::named("q6_k"))),
        (
            "qwen3-8b:q4_k_m",
            "model.embed_tokens.weight",
            Some(Encoding::named("q4_k")),
        ),
        ("qwen3-0.6b:q4_k_m", "lm_head.weight", None),
        (
            "qwen3-0.6b:q4_k_m",
            "model.embed_tokens.weight",
            Some(Encoding::named("q6_k")),
        ),
        (
            "qwen3-8b:q4_k_m",
            "model.layers.0.mlp.down_proj.weight",
            Some(Encoding::named("q6_k")),
        ),
        (
            "qwen3-8b:q4_k_m",
            "model.layers.4.mlp.down_proj.weight",
            Some(Encoding::named("q4_k")),
        ),
        (
            "qwen3-8b:q4_k_m",
            "model.layers.6.self_attn.v_proj.weight",
            Some(Encoding::named("q6_k")),
        ),
        (
            "qwen3-8b:q4_k_m",
            "model.layers.6.self_attn.k_proj.weight",
            Some(Encoding::named("q4_k")),
        ),
        (
            "qwen3-8b:q4_k_m",
            "model.layers.6.input_layernorm.weight",
            Some(Encoding::F32),
        ),
        ("tiny:mlx5-g32", "lm_head.weight", Some(Encoding::named("mlx5g32"))),
    ] {
        assert_eq!(encodings(spec, name), expected, "{spec}: {name}");
    }
}

#[test]
fn writes_llama_3_rope_factors() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("tiny.gguf");
    write("tiny-llama:q8_0", &out, &no_progress).unwrap();
    let checkpoint = Checkpoint::open(&out).unwrap();
    let RopeScaling::Factors(factors) = &checkpoint.config().positions.scaling else {
        panic!("{:?}", checkpoint.config().positions.scaling);
    };
    assert_eq!(factors.len(), 16);
    // Pairs 0 to 7 turn more than four times in 8192 tokens, those from 9 on less than once, and pair 8 turns 8192
    // · 500000^(−1/2) / 2π = 1.844 times.
    assert_eq!(factors[..8], [1.0; 8]);
    assert!((factors[8] - 2.6945).abs() < 1e-4, "{factors:?}");
    assert_eq!(factors[9..], [8.0; 7]);
}

#[test]
fn unknown_names_list_the_valid_ones() {
    for (spec, words) in [
        ("qwen3-0.6b", vec!["ARCH:FORMAT", "llama-3.1-8b", "mlx4"]),
        ("qwen2-7b:q4_0", vec!["\"qwen2-7b\"", "qwen3-32b"]),
        ("tiny:q7_k", vec!["\"q7_k\"", "q5_k, q6_k, q4_k_m, mlx2", "-g128"]),
        ("tiny:mlx7", vec!["\"mlx7\"", "mlx8"]),
        ("tiny:mlx4-g16", vec!["\"mlx4-g16\""]),
        ("tiny:", vec!["\"\"", "q8_0"]),
    ] {
        let message = Checkpoint::synthetic(spec).unwrap_err().to_string();
        for word in words {
            assert!(message.contains(word), "{message}");
        }
    }
}

#[test]
fn has_no_tokenizer() {
    let checkpoint = Checkpoint::synthetic("tiny:q4_0").unwrap();
    let message = checkpoint.tokenizer().unwrap_err().to_string();
    assert!(
        message.contains("synthetic:tiny:q4_0") && message.contains("no tokenizer"),
        "{message}"
    );
    assert!(checkpoint.chat_template().unwrap().is_none());
    assert!(checkpoint.special_tokens().unwrap().is_empty());
}

#[test]
fn refuses_missing_planes_and_ranges_out_of_bounds() {
    let checkpoint = Checkpoint::synthetic("tiny:q4_0").unwrap();
    let quantised = checkpoint.tensor("lm_head.weight").unwrap();
    let plain = checkpoint.tensor("model.norm.weight").unwrap();
    assert_eq!(plain.info.encoding, Encoding::F32);
    assert!(quantised.write_data(0, &mut [0]).is_err());
    assert!(quantised.write_biases(0, &mut []).is_err());
    assert!(quantised.write_quants(quantised.quants_bytes(), &mut [0]).is_err());
    assert!(plain.write_quants(0, &mut []).is_err());
    assert!(plain.write_scales(0, &mut []).is_err());
    assert!(plain.write_data(plain.data_bytes() - 1, &mut [0; 2]).is_err());
}

#[test]
fn leaves_nothing_after_a_failed_write() {
    let directory = tempfile::tempdir().unwrap();
    let left = || std::fs::read_dir(directory.path()).unwrap().count();
    for (spec, name) in [("tiny:f16", "out"), ("tiny:q8_0", "out.gguf")] {
        let out = directory.path().join(name);
        let stopped = write(spec, &out, &|progress| {
            if progress.done > progress.total / 2 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
        assert_eq!(left(), 0);

        let missing = directory.path().join("missing").join(name);
        let message = write(spec, &missing, &no_progress).unwrap_err().to_string();
        assert!(
            message.starts_with("cannot write ") && message.contains("missing"),
            "{message}"
        );

        let other = directory.path().join(if name == "out" { "out.gguf" } else { "out" });
        let message = write(spec, &other, &no_progress).unwrap_err().to_string();
        assert!(message.contains("this format is written to a "), "{message}");

        std::fs::write(&out, "precious").unwrap();
        let message = write(spec, &out, &no_progress).unwrap_err().to_string();
        assert!(message.contains("already exists"), "{message}");
        assert_eq!(std::fs::read(&out).unwrap(), b"precious");
        assert_eq!(left(), 1);
        std::fs::remove_file(&out).unwrap();
    }
}
