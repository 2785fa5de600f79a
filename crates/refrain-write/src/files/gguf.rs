//! Writes a GGUF file (version 3): counts, metadata, list of tensors, then their bytes. All numbers are
//! little-endian; a string is its length in 8 bytes, then UTF-8.

use std::io::{Seek, SeekFrom, Write};

use tempfile::NamedTempFile;

use refrain_formats::write::Target;
use refrain_formats::{ALIGNMENT, Encoding, Error, MetadataEntries, MetadataValue};

use super::{Item, ListedTensor};

/// The format's first four bytes.
const MAGIC: &[u8; 4] = b"GGUF";

/// Writes everything beside the target; [`Target::finish_file`] moves it into place.
///
/// # Errors
/// If a tensor is damaged, the disk is full, or the progress callback cancelled.
pub fn write(metadata: &MetadataEntries, items: &[Item<'_>], target: &mut Target<'_>) -> Result<NamedTempFile, Error> {
    target.expect(items.iter().map(Item::total).sum());
    let mut unfinished = target.temporary_file()?;
    let file = unfinished.as_file_mut();
    let header = header(metadata, items);
    target.io(file.write_all(&[0; MAGIC.len()]))?;
    target.io(file.write_all(&header[MAGIC.len()..]))?;
    let mut end = header.len() as u64;
    for item in items {
        let offsets = Vec::from_iter(item.parts.iter().map(|part| {
            let start = end;
            end = (end + part.bytes).next_multiple_of(ALIGNMENT);
            start
        }));
        item.write(file, &offsets, target)?;
    }
    // The last tensor is padded too.
    target.io(file.set_len(end))?;
    target.io(file.sync_all())?;
    target.io(file.seek(SeekFrom::Start(0)))?;
    target.io(file.write_all(MAGIC))?;
    target.io(file.sync_all())?;
    Ok(unfinished)
}

/// Returns F32 vectors as items, by name.
pub fn vectors(vectors: Vec<(&str, Vec<f32>)>) -> Vec<Item<'static>> {
    let item = |(name, values): (&str, Vec<f32>)| {
        let part = ListedTensor {
            name: name.to_owned(),
            encoding: Encoding::F32,
            shape: vec![values.len()],
            bytes: 4 * values.len() as u64,
        };
        Item::bytes(part, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    };
    vectors.into_iter().map(item).collect()
}

/// Returns the header, padded to the first tensor.
fn header(metadata: &MetadataEntries, items: &[Item<'_>]) -> Vec<u8> {
    let parts = Vec::from_iter(items.iter().flat_map(|item| &item.parts));
    let mut bytes = MAGIC.to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend((parts.len() as u64).to_le_bytes());
    bytes.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut bytes, key);
        put_value(&mut bytes, value);
    }
    let mut offset = 0;
    for part in parts {
        put_text(&mut bytes, &part.name);
        bytes.extend((part.shape.len() as u32).to_le_bytes());
        for &axis in part.shape.iter().rev() {
            bytes.extend((axis as u64).to_le_bytes());
        }
        bytes.extend(type_number(part.encoding).to_le_bytes());
        bytes.extend(u64::to_le_bytes(offset));
        offset = (offset + part.bytes).next_multiple_of(ALIGNMENT);
    }
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
    bytes
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn put_value(bytes: &mut Vec<u8>, value: &MetadataValue) {
    match value {
        MetadataValue::U32(number) => put_scalar(bytes, U32, number.to_le_bytes()),
        MetadataValue::F32(number) => put_scalar(bytes, F32, number.to_le_bytes()),
        MetadataValue::Bool(flag) => put_scalar(bytes, BOOL, [u8::from(*flag)]),
        MetadataValue::Text(text) => {
            bytes.extend(TEXT.to_le_bytes());
            put_text(bytes, text);
        }
        MetadataValue::Texts(items) => put_array(bytes, TEXT, items, |bytes, text| put_text(bytes, text)),
        MetadataValue::F32s(items) => put_array(bytes, F32, items, |bytes, number| bytes.extend(number.to_le_bytes())),
        MetadataValue::I32s(items) => put_array(bytes, I32, items, |bytes, number| bytes.extend(number.to_le_bytes())),
        MetadataValue::Bools(items) => put_array(bytes, BOOL, items, |bytes, flag| bytes.push(u8::from(*flag))),
        MetadataValue::Raw(raw) => bytes.extend(raw),
    }
}

// Type numbers of metadata values.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

fn put_scalar<const N: usize>(bytes: &mut Vec<u8>, kind: u32, value: [u8; N]) {
    bytes.extend(kind.to_le_bytes());
    bytes.extend(value);
}

fn put_array<T>(bytes: &mut Vec<u8>, kind: u32, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    bytes.extend(ARRAY.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend((items.len() as u64).to_le_bytes());
    items.iter().for_each(|item| put(bytes, item));
}

/// Returns the type number of an encoding.
fn type_number(encoding: Encoding) -> u32 {
    match encoding {
        Encoding::F16 => 1,
        Encoding::BF16 => 30,
        _ => encoding.block().map_or(0, |block| block.kind),
    }
}
