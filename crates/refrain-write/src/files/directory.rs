//! Writes a directory of config.json and safetensors files.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use refrain_formats::Error;
use refrain_formats::write::{CONFIG, PartialDirectory, Target};

use super::{Item, ListedTensor};

/// Largest size of a safetensors file before weights are split, in bytes.
pub const SHARD_BYTES: u64 = 4 << 30;

/// The contents of the directory beside the weights.
pub struct DirectoryContents {
    /// The object of config.json.
    pub config: Value,
    /// Further files by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// The `format` metadata of the weight files: `pt` or `mlx`.
    pub framework: &'static str,
}

/// Writes everything beside the target; [`Target::finish_directory`] moves it into place. Weight files hold at most
/// `shard_bytes`, unless a single item is larger.
///
/// # Errors
/// If a tensor is damaged, the disk is full, or the progress callback cancelled.
pub fn write(
    contents: &DirectoryContents,
    items: Vec<Item<'_>>,
    shard_bytes: u64,
    target: &mut Target<'_>,
) -> Result<PartialDirectory, Error> {
    let total = items.iter().map(Item::total).sum();
    target.expect(total);
    let directory = target.temporary_directory()?;
    let write_file = |name: &str, bytes: &[u8], target: &Target<'_>| -> Result<(), Error> {
        let path = directory.path().join(name);
        if let Some(parent) = path.parent() {
            target.io(fs::create_dir_all(parent))?;
        }
        let mut file = target.io(File::create_new(path))?;
        target.io(file.write_all(bytes).and_then(|()| file.sync_all()))
    };
    let shards = shards(items, shard_bytes);
    let mut weight_map = Map::new();
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        for part in shard.iter().flat_map(|item| &item.parts) {
            weight_map.insert(part.name.clone(), json!(name));
        }
        write_shard(&directory.path().join(&name), shard, contents.framework, target)?;
    }
    if shards.len() > 1 {
        let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
        write_file("model.safetensors.index.json", &pretty(&index), target)?;
    }
    for (name, bytes) in &contents.files {
        write_file(name, bytes, target)?;
    }
    // Without config.json the directory is not a checkpoint, so it is written last.
    write_file(CONFIG, &pretty(&contents.config), target)?;
    Ok(directory)
}

/// Returns indented JSON.
pub fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// Distributes items in order to files of at most `shard_bytes`.
fn shards(items: Vec<Item<'_>>, shard_bytes: u64) -> Vec<Vec<Item<'_>>> {
    let mut shards = vec![Vec::new()];
    let mut filled = 0;
    for item in items {
        if filled > 0 && filled + item.total() > shard_bytes {
            shards.push(Vec::new());
            filled = 0;
        }
        filled += item.total();
        if let Some(shard) = shards.last_mut() {
            shard.push(item);
        }
    }
    shards
}

fn write_shard(path: &Path, items: &[Item<'_>], framework: &str, target: &mut Target<'_>) -> Result<(), Error> {
    let mut parts: Vec<((usize, usize), &ListedTensor)> = Vec::new();
    for (number, item) in items.iter().enumerate() {
        parts.extend(item.parts.iter().enumerate().map(|(k, part)| ((number, k), part)));
    }
    // Wide numbers first, so that all are aligned to their size.
    parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.encoding.value_bytes()));
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({ "format": framework }));
    let mut offsets: Vec<Vec<u64>> = items.iter().map(|item| vec![0; item.parts.len()]).collect();
    let mut end = 0;
    for ((item, k), part) in parts {
        let start = end;
        end += part.bytes;
        offsets[item][k] = start;
        let entry = json!({
            "dtype": part.encoding.to_string(),
            "shape": part.shape,
            "data_offsets": [start, end],
        });
        header.insert(part.name.clone(), entry);
    }
    let mut text = Value::Object(header).to_string();
    // Spaces align the data that follows.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    let mut file = target.io(File::create_new(path))?;
    target.io(file.write_all(&(text.len() as u64).to_le_bytes()))?;
    target.io(file.write_all(text.as_bytes()))?;
    let data = 8 + text.len() as u64;
    for (item, offsets) in items.iter().zip(offsets) {
        let offsets: Vec<u64> = offsets.iter().map(|offset| data + offset).collect();
        item.write(&mut file, &offsets, target)?;
    }
    target.io(file.sync_all())
}
