//! What mlx-lm saves in its own way: projections of latent attention as two tensors, one matrix per head in each, and
//! heads beside a tied embedding.

use half::bf16;
use refrain_formats::{CheckpointFiles, Encoding, Error};
use refrain_models::Checkpoint;
use refrain_write::convert::convert;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

use crate::convert::{options, recipe};
use crate::support::{config, fixtures, safetensors};

const PARTS: [&str; 2] = ["keys", "values"];

/// Opens keys `[2, 3, 2]` and values of another shape, and joins them.
fn joined(dtype: Dtype, values: Option<[usize; 3]>) -> Result<CheckpointFiles, Error> {
    let keys: Vec<u8> = (0..12u8).flat_map(|v| bf16::from_f32(v.into()).to_le_bytes()).collect();
    let mut tensors = vec![(PARTS[0], Dtype::BF16, vec![2, 3, 2], keys)];
    if let Some(shape) = values {
        let count = shape.iter().product::<usize>() as u8;
        let bytes = (0..count).flat_map(|v| match dtype {
            Dtype::F32 => f32::from(100 + v).to_le_bytes().to_vec(),
            Dtype::BF16 => bf16::from_f32((100 + v).into()).to_le_bytes().to_vec(),
            _ => vec![v],
        });
        tensors.push((PARTS[1], dtype, shape.to_vec(), bytes.collect()));
    }
    let files = [
        ("config.json", config(json!({})).into_bytes()),
        ("model.safetensors", safetensors(&tensors)),
    ];
    let mut files = CheckpointFiles::from_files(files)?;
    files.read_weights(None, &|name| Some(name.to_owned()))?;
    files.join_heads("both", PARTS)?;
    Ok(files)
}

#[test]
fn keys_and_values_of_each_head_are_joined() {
    for (dtype, encoding) in [(Dtype::BF16, Encoding::BF16), (Dtype::F32, Encoding::F32)] {
        let files = joined(dtype, Some([2, 1, 3])).unwrap();
        assert_eq!(files.tensors().count(), 1);
        let tensor = files.expect("both", &[6, 3]).unwrap();
        assert_eq!(tensor.info.encoding, encoding);
        let expected = [
            0.0, 2.0, 4.0, 1.0, 3.0, 5.0, 100.0, 101.0, 102.0, 6.0, 8.0, 10.0, 7.0, 9.0, 11.0, 103.0, 104.0, 105.0,
        ];
        assert_eq!(tensor.dequantise().unwrap(), expected);
        let whole = tensor.data().unwrap();
        for step in [1, 5, 7] {
            let mut read = vec![0; whole.len()];
            for (index, piece) in read.chunks_mut(step).enumerate() {
                tensor.write_data((index * step) as u64, piece).unwrap();
            }
            assert_eq!(read, *whole, "in pieces of {step}");
        }
        assert!(tensor.write_data(whole.len() as u64, &mut [0]).is_err());
        assert!(tensor.write_quants(0, &mut [0]).is_err());
    }
}

#[test]
fn parts_that_do_not_match_are_errors() {
    for (dtype, shape, expected) in [
        (Dtype::BF16, None, "keys: values, which belongs to it, is missing"),
        (Dtype::BF16, Some([2, 1, 2]), "does not match [2, 1, 2] of values"),
        (Dtype::BF16, Some([1, 1, 3]), "does not match [1, 1, 3] of values"),
        (
            Dtype::U8,
            Some([2, 1, 3]),
            "values: weights stored as U8 are not supported",
        ),
    ] {
        let found = joined(dtype, shape).unwrap_err().to_string();
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

/// Quantised keys have their groups along the outputs, so the joined values appear as floats. A conversion writes
/// transformers' tensor.
#[test]
fn quantised_parts_are_joined_and_converted() {
    let source = Checkpoint::open(&fixtures().join("deepseek-v3-mlx4-group32")).unwrap();
    let name = "model.layers.1.self_attn.kv_b_proj.weight";
    let tensor = source.expect(name, &[4 * (32 + 32), 32]).unwrap();
    assert_eq!(tensor.info.encoding, Encoding::F32);
    assert!(source.tensors().all(|info| !info.name.contains("embed_q")));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f16");
    convert(&source, &path, &options(recipe("f16"))).unwrap();
    let back = Checkpoint::open(&path).unwrap();
    let [old, new] = [tensor, back.tensor(name).unwrap()].map(|tensor| tensor.dequantise().unwrap());
    let most = old.iter().zip(&new).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(most < 1e-3, "{most}");
}

/// mlx-lm takes a head for the head of Gemma 3 whenever there is one; that of other families is tied to the embedding.
#[test]
fn a_head_beside_a_tied_embedding_counts_for_gemma() {
    for (fixture, is_tied) in [("gemma3-mlx4-group32", false), ("qwen2-mlx2-group32", true)] {
        let read = |name: &str| std::fs::read(fixtures().join(fixture).join(name)).unwrap();
        let weights = read("model.safetensors");
        let mut tensors = SafeTensors::deserialize(&weights).unwrap().tensors();
        let rows = Checkpoint::open(&fixtures().join(fixture)).unwrap().config().vocab_size;
        let head = vec![0; rows * 64 * 2];
        let view = TensorView::new(Dtype::BF16, vec![rows, 64], &head).unwrap();
        tensors.push(("lm_head.weight".to_owned(), view));
        let files = [
            ("config.json", read("config.json")),
            ("model.safetensors", ::safetensors::serialize(tensors, None).unwrap()),
        ];
        let checkpoint = Checkpoint::from_files(files).unwrap();
        assert_eq!(checkpoint.config().tie_word_embeddings, is_tied, "{fixture}");
    }
}
