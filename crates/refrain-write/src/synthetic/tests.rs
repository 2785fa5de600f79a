use std::ops::ControlFlow;
use std::path::Path;

use refrain_formats::write::WriteProgress;
use refrain_formats::{Encoding, Error, Format, Tensor, synthetic::formats};
use refrain_models::config::RopeScaling;
use refrain_models::{Checkpoint, FAMILIES, ModelConfig, SyntheticSpec, architectures};
use refrain_testing::sample;

use super::{write, write_shards};

/// Every format, those of MLX in each group size once.
fn all_formats() -> Vec<&'static str> {
    let grouped = ["mlx2-g32", "mlx3-g128", "mlx4-g32", "mlx4-g64", "mlx5-g128", "mlx8-g32"];
    formats().into_iter().chain(grouped).collect()
}

fn quietly(_: WriteProgress) -> ControlFlow<()> {
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

/// Checks that the checkpoint at `path` is the synthetic one of that name, byte for byte.
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
fn a_written_checkpoint_is_the_one_made_on_the_spot() {
    let directory = tempfile::tempdir().unwrap();
    let formats = all_formats();
    // Llama has rows in another order.
    let llama = ["f16", "q8_0", "q4_k_m", "mlx4"].map(|format| format!("tiny-llama:{format}"));
    // Value heads in another order, the columns that go with them in blocks of their own or not.
    let hybrid = ["f32", "f16", "bf16", "q8_0", "q4_k_m", "mlx4", "mlx8-g32"];
    let hybrid = hybrid.map(|format| format!("tiny-hybrid:{format}"));
    let dense = ["f32", "bf16", "q4_0", "q6_k", "mlx4"].map(|format| format!("tiny-hybrid-dense:{format}"));
    let mixture = ["f16", "q8_0", "q4_k_m", "mlx4"].map(|format| format!("tiny-mixture:{format}"));
    // Matrices by columns in directories, biases of experts.
    let sinks = ["f16", "bf16", "q8_0", "q4_k_m", "mxfp4", "mlx4"].map(|format| format!("tiny-gpt-oss:{format}"));
    // A dense layer before mixtures; norms of each head.
    let shared = ["bf16", "q4_k_m", "mlx4"].map(|format| format!("tiny-glm-moe:{format}"));
    let norms = ["f16", "q8_0", "mlx4"].map(|format| format!("tiny-cohere:{format}"));
    // Latent vectors, of queries too.
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
        .chain(mixture)
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
        write(spec, &out, &quietly).unwrap();
        assert_written(spec, &out);
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), specs.len());
}

#[test]
fn large_directories_are_sharded() {
    let directory = tempfile::tempdir().unwrap();
    for spec in ["tiny:f16", "tiny-llama:mlx4"] {
        let out = directory.path().join(&spec[..6]);
        write_shards(&SyntheticSpec::parse(spec, FAMILIES).unwrap(), &out, 100_000, &quietly).unwrap();
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
fn any_part_of_a_plane_is_the_same_as_in_the_whole() {
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
                // Beyond one thread's piece, and off every unit's start.
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
fn weights_are_spread_evenly_around_zero_and_gains_around_one() {
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
fn no_two_matrices_are_alike() {
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
fn architectures_have_the_published_sizes() {
    // Parameters as the model cards and transformers count them.
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
        let count: usize = checkpoint.tensors().map(|tensor| tensor.values()).sum();
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
fn tensors_are_mixed_as_q4_k_m_mixes_them() {
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
fn rope_frequencies_of_llama_are_divided_where_waves_are_long() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("tiny.gguf");
    write("tiny-llama:q8_0", &out, &quietly).unwrap();
    let checkpoint = Checkpoint::open(&out).unwrap();
    let RopeScaling::Factors(factors) = &checkpoint.config().positions.scaling else {
        panic!("{:?}", checkpoint.config().positions.scaling);
    };
    assert_eq!(factors.len(), 16);
    // Pairs 0 to 7 turn more than four times in 8192 tokens, those from 9 on less than once, and
    // pair 8 turns 8192 · 500000^(−1/2) / 2π = 1.844 times.
    assert_eq!(factors[..8], [1.0; 8]);
    assert!((factors[8] - 2.6945).abs() < 1e-4, "{factors:?}");
    assert_eq!(factors[9..], [8.0; 7]);
}

#[test]
fn unknown_names_are_refused_with_those_there_are() {
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
fn there_is_no_tokenizer() {
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
fn planes_that_a_tensor_lacks_and_ranges_beyond_its_end_are_refused() {
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
fn nothing_is_left_of_what_could_not_be_written() {
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
        let message = write(spec, &missing, &quietly).unwrap_err().to_string();
        assert!(
            message.starts_with("cannot write ") && message.contains("missing"),
            "{message}"
        );

        let other = directory.path().join(if name == "out" { "out.gguf" } else { "out" });
        let message = write(spec, &other, &quietly).unwrap_err().to_string();
        assert!(message.contains("is no name for that"), "{message}");

        std::fs::write(&out, "precious").unwrap();
        let message = write(spec, &out, &quietly).unwrap_err().to_string();
        assert!(message.contains("exists already"), "{message}");
        assert_eq!(std::fs::read(&out).unwrap(), b"precious");
        assert_eq!(left(), 1);
        std::fs::remove_file(&out).unwrap();
    }
}
