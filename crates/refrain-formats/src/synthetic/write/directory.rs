//! A directory of config.json and safetensors files.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Plane, Target, config_json, failed, parent, unfinished};
use crate::{Checkpoint, Encoding, Error, Tensor, TensorInfo};

/// Writes all of it beside the target, then gives it its name.
pub(super) fn write(checkpoint: &Checkpoint, shard_bytes: u64, target: &mut Target<'_>) -> Result<(), Error> {
    let mut builder = unfinished();
    #[cfg(unix)]
    builder.permissions(super::permissions(0o777));
    let directory = target.io(builder.tempdir_in(parent(target.out)))?;
    let io = failed(target.out);
    let write_json = |name: &str, value: &Value| -> Result<(), Error> {
        let text = format!("{value:#}\n");
        fs::write(directory.path().join(name), text).map_err(&io)
    };
    write_json("config.json", &config_json::object(checkpoint.config()))?;
    let shards = shards(checkpoint, shard_bytes);
    let mut weight_map = Map::new();
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        for part in shard {
            weight_map.insert(part.name.clone(), json!(name));
        }
        write_shard(&directory.path().join(&name), shard, checkpoint, target)?;
    }
    if shards.len() > 1 {
        let index = json!({ "metadata": { "total_size": target.total }, "weight_map": weight_map });
        write_json("model.safetensors.index.json", &index)?;
    }
    target.io(fs::rename(directory.path(), target.out))?;
    // The directory has another name now: there is nothing left to clean up.
    let _ = directory.keep();
    Ok(())
}

/// One tensor of a file, which is one plane of ours.
struct Part<'a> {
    name: String,
    encoding: Encoding,
    shape: Vec<usize>,
    tensor: Tensor<'a>,
    plane: Plane,
}

/// The files' contents: tensors in order, as many to a file as fit into `shard_bytes`.
fn shards(checkpoint: &Checkpoint, shard_bytes: u64) -> Vec<Vec<Part<'_>>> {
    let mut shards = vec![Vec::new()];
    let mut filled = 0;
    for info in checkpoint.tensors() {
        if filled > 0 && filled + info.bytes > shard_bytes {
            shards.push(Vec::new());
            filled = 0;
        }
        filled += info.bytes;
        if let (Some(shard), Some(tensor)) = (shards.last_mut(), checkpoint.tensor(&info.name)) {
            shard.extend(parts(info, tensor));
        }
    }
    for shard in &mut shards {
        // Wide numbers first: then all lie at multiples of their size.
        shard.sort_by_key(|part| std::cmp::Reverse(part.encoding.value_bytes()));
    }
    shards
}

/// What a tensor consists of in a file.
fn parts<'a>(info: &TensorInfo, tensor: Tensor<'a>) -> Vec<Part<'a>> {
    let part = |name: String, encoding, columns: usize, plane| {
        let mut shape = info.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = columns;
        }
        Part {
            name,
            encoding,
            shape,
            tensor,
            plane,
        }
    };
    let columns = info.columns();
    let Encoding::MlxAffine { bits, group } = info.encoding else {
        return vec![part(info.name.clone(), info.encoding, columns, Plane::Data)];
    };
    let layer = info.name.strip_suffix(".weight").unwrap_or(&info.name);
    let scale_encoding = tensor.scale_encoding().unwrap_or(Encoding::BF16);
    let (words, groups) = (columns * usize::from(bits) / 32, columns / usize::from(group));
    vec![
        part(info.name.clone(), Encoding::U32, words, Plane::Quants),
        part(format!("{layer}.scales"), scale_encoding, groups, Plane::Scales),
        part(format!("{layer}.biases"), scale_encoding, groups, Plane::Biases),
    ]
}

fn write_shard(path: &Path, parts: &[Part<'_>], checkpoint: &Checkpoint, target: &mut Target<'_>) -> Result<(), Error> {
    let framework = match checkpoint.config().quantisation {
        Some(_) => "mlx",
        None => "pt",
    };
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({ "format": framework }));
    let mut end = 0;
    for part in parts {
        let start = end;
        end += part.plane.bytes(&part.tensor);
        let entry = json!({
            "dtype": part.encoding.to_string(),
            "shape": part.shape,
            "data_offsets": [start, end],
        });
        header.insert(part.name.clone(), entry);
    }
    let mut text = Value::Object(header).to_string();
    // Spaces align the data that follow.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    let mut file = target.io(File::create_new(path))?;
    target.io(file.write_all(&(text.len() as u64).to_le_bytes()))?;
    target.io(file.write_all(text.as_bytes()))?;
    for part in parts {
        target.write_plane(&mut file, &part.tensor, part.plane)?;
    }
    target.io(file.sync_all())
}
