//! Reads the header of a GGUF file (versions 2 and 3): counts, metadata, and the tensor list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::value::{GgufMetadata, GgufValue, ValueType};
use crate::{Encoding, Error};

/// One tensor of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TensorEntry {
    /// Name in the file.
    pub name: String,
    /// Outermost axis first (the file has the reverse order).
    pub shape: Vec<usize>,
    pub encoding: Encoding,
    /// Index of the model's file that holds it.
    pub file: usize,
    /// Byte range in the file.
    pub range: Range<usize>,
}

/// Prefix of the tokenizer's metadata.
const TOKENIZER_PREFIX: &str = "tokenizer.";

/// Maximum nesting of arrays.
const MAX_DEPTH: usize = 4;

/// Reads consecutive values; never reads past the end of the file.
pub(super) struct Cursor<'a, 'f> {
    bytes: &'a [u8],
    position: usize,
    file: &'f str,
}

impl<'a, 'f> Cursor<'a, 'f> {
    pub(super) fn new(bytes: &'a [u8], position: usize, file: &'f str) -> Self {
        Cursor { bytes, position, file }
    }

    fn error(&self, reason: impl Into<String>) -> Error {
        Error::file(self.file, reason)
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8], Error> {
        let end = self.position.checked_add(length);
        let Some(taken) = end.and_then(|end| self.bytes.get(self.position..end)) else {
            return Err(self.error(format!("is truncated: it ends within {what} at byte {}", self.position)));
        };
        self.position += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let taken = self.take(N, what)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(taken);
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads a count of items of at least `min_bytes` bytes each. The count must fit the rest of the file.
    fn count(&mut self, min_bytes: usize, what: &str) -> Result<usize, Error> {
        let count = self.u64(what)?;
        let max = self.remaining() / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= max => Ok(count),
            _ => Err(self.error(format!(
                "claims {count} {what}, but the rest of the file can hold at most {max}: \
                 the file is truncated or corrupt"
            ))),
        }
    }

    /// Reads a length and a UTF-8 string.
    pub(super) fn string(&mut self, what: &str) -> Result<&'a str, Error> {
        let bytes = self.string_bytes(what)?;
        std::str::from_utf8(bytes).map_err(|_| self.error(format!("{what} is not UTF-8 text")))
    }

    /// Reads a length and the bytes of a string.
    fn string_bytes(&mut self, what: &str) -> Result<&'a [u8], Error> {
        let length = self.count(1, "bytes of text")?;
        self.take(length, what)
    }

    /// Reads the string of a metadata value. Only the tokenizer's must be UTF-8: others describe the model, and some
    /// converters wrote them in another encoding.
    fn text(&mut self, key: &str) -> Result<Cow<'a, str>, Error> {
        let what = format!("metadata {key}");
        if key.starts_with(TOKENIZER_PREFIX) {
            return self.string(&what).map(Cow::Borrowed);
        }
        self.string_bytes(&what).map(String::from_utf8_lossy)
    }

    /// Reads a value that is neither a string nor an array.
    pub(super) fn scalar(&mut self, kind: ValueType) -> Result<GgufValue, Error> {
        let what = "a metadata value";
        Ok(match kind {
            ValueType::U8 => GgufValue::Integer(i128::from(u8::from_le_bytes(self.array(what)?))),
            ValueType::I8 => GgufValue::Integer(i128::from(i8::from_le_bytes(self.array(what)?))),
            ValueType::U16 => GgufValue::Integer(i128::from(u16::from_le_bytes(self.array(what)?))),
            ValueType::I16 => GgufValue::Integer(i128::from(i16::from_le_bytes(self.array(what)?))),
            ValueType::U32 => GgufValue::Integer(i128::from(u32::from_le_bytes(self.array(what)?))),
            ValueType::I32 => GgufValue::Integer(i128::from(i32::from_le_bytes(self.array(what)?))),
            ValueType::U64 => GgufValue::Integer(i128::from(u64::from_le_bytes(self.array(what)?))),
            ValueType::I64 => GgufValue::Integer(i128::from(i64::from_le_bytes(self.array(what)?))),
            ValueType::F32 => GgufValue::Float(f64::from(f32::from_le_bytes(self.array(what)?))),
            ValueType::F64 => GgufValue::Float(f64::from_le_bytes(self.array(what)?)),
            ValueType::Bool => GgufValue::Bool(self.array::<1>(what)?[0] != 0),
            ValueType::String | ValueType::Array => {
                return Err(self.error("a metadata value is not a number"));
            }
        })
    }

    fn value_type(&mut self, key: &str) -> Result<ValueType, Error> {
        let number = self.u32("the type of a metadata value")?;
        ValueType::by_number(number)
            .ok_or_else(|| self.error(format!("metadata {key} is of the unknown type {number}")))
    }

    fn value(&mut self, key: &str) -> Result<GgufValue, Error> {
        match self.value_type(key)? {
            ValueType::String => self.text(key).map(|text| GgufValue::String(text.into_owned())),
            ValueType::Array => self.skip_array(key, 0),
            kind => self.scalar(kind),
        }
    }

    /// Skips an array, and checks that it lies within the file.
    fn skip_array(&mut self, key: &str, depth: usize) -> Result<GgufValue, Error> {
        if depth == MAX_DEPTH {
            return Err(self.error(format!("metadata {key} holds arrays nested too deeply")));
        }
        let item = self.value_type(key)?;
        let count = self.count(item.min_bytes(), "array items")?;
        let start = self.position;
        match item {
            ValueType::String => {
                for _ in 0..count {
                    self.text(key)?;
                }
            }
            ValueType::Array => {
                for _ in 0..count {
                    self.skip_array(key, depth + 1)?;
                }
            }
            scalar => {
                self.take(count * scalar.min_bytes(), "an array")?;
            }
        }
        Ok(GgufValue::Array { item, count, start })
    }

    fn tensor(&mut self) -> Result<TensorHeader, Error> {
        let name = self.string("a tensor's name")?.to_owned();
        let axes = self.u32("a tensor's number of axes")?;
        if axes > 4 {
            return Err(Error::tensor(
                self.file,
                name,
                format!("has {axes} axes, more than the 4 allowed"),
            ));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            let length = self.u64("a tensor's shape")?;
            shape.push(usize::try_from(length).map_err(|_| {
                Error::tensor(
                    self.file,
                    &name,
                    format!("has an axis of length {length}, which is too large"),
                )
            })?);
        }
        shape.reverse();
        let kind = self.u32("a tensor's type")?;
        let offset = self.u64("a tensor's offset")?;
        Ok(TensorHeader {
            name,
            shape,
            kind,
            offset,
        })
    }
}

/// An entry of the tensor list.
struct TensorHeader {
    name: String,
    shape: Vec<usize>,
    kind: u32,
    offset: u64,
}

/// Whether `bytes`, a prefix of a GGUF file, contain its complete header. Returns false for corrupt and other files.
pub fn has_complete_header(bytes: &[u8]) -> bool {
    header(bytes, "").is_ok()
}

/// Reads and checks the header of a GGUF file with contents `bytes`.
pub(super) fn read(bytes: &[u8], file: &str) -> Result<(GgufMetadata, Vec<TensorEntry>), Error> {
    let Header {
        metadata,
        tensors,
        length,
    } = header(bytes, file)?;
    let alignment = metadata.count("general.alignment")?.unwrap_or(32);
    if !alignment.is_power_of_two() || alignment > 1 << 20 {
        return Err(Error::file(
            file,
            format!("metadata general.alignment is {alignment}, not a small power of two"),
        ));
    }
    let data_start = length.next_multiple_of(alignment);
    let mut entries = Vec::with_capacity(tensors.len());
    for header in tensors {
        entries.push(locate(header, data_start, alignment, bytes.len(), file)?);
    }
    check_overlaps(&entries, file)?;
    Ok((metadata, entries))
}

/// The header.
struct Header {
    metadata: GgufMetadata,
    tensors: Vec<TensorHeader>,
    /// Length in bytes, without the padding before the data.
    length: usize,
}

fn header(bytes: &[u8], file: &str) -> Result<Header, Error> {
    let mut cursor = Cursor::new(bytes, 0, file);
    if cursor.take(4, "its first four bytes")? != b"GGUF" {
        return Err(Error::file(
            file,
            "is not a GGUF file: its first four bytes are not \"GGUF\"",
        ));
    }
    let version = cursor.u32("its version")?;
    if version.swap_bytes() < 0x100 && version != 0 {
        return Err(Error::file(file, "is a big-endian GGUF file, which is not supported"));
    }
    if !(2..=3).contains(&version) {
        return Err(Error::file(
            file,
            format!("is of GGUF version {version}, but only versions 2 and 3 are supported"),
        ));
    }
    let tensor_count = cursor.count(24, "tensors")?;
    let metadata_count = cursor.count(13, "metadata values")?;
    let (mut values, mut ranges) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..metadata_count {
        let key = cursor.string("the name of a metadata value")?;
        let start = cursor.position;
        let value = cursor.value(key)?;
        ranges.insert(key.to_owned(), start..cursor.position);
        if values.insert(key.to_owned(), value).is_some() {
            return Err(Error::file(file, format!("metadata {key} is duplicated")));
        }
    }
    let metadata = GgufMetadata {
        file: file.to_owned(),
        values,
        ranges,
    };
    let mut tensors = Vec::with_capacity(tensor_count);
    for _ in 0..tensor_count {
        tensors.push(cursor.tensor()?);
    }
    Ok(Header {
        metadata,
        tensors,
        length: cursor.position,
    })
}

/// Locates a tensor's bytes, and checks that they lie within the file.
fn locate(
    header: TensorHeader,
    data_start: usize,
    alignment: usize,
    file_length: usize,
    file: &str,
) -> Result<TensorEntry, Error> {
    let error = |reason: String| Error::tensor(file, &header.name, reason);
    let encoding = encoding(header.kind).map_err(|kind| {
        error(format!(
            "is of type {kind}, which is not supported (supported: F32, F16, BF16, F64, {})",
            block_types().join(", ")
        ))
    })?;
    let values = header
        .shape
        .iter()
        .try_fold(1usize, |values, &axis| values.checked_mul(axis));
    let bytes = values.and_then(|values| match encoding.block_bytes() {
        Some(block) => (values / encoding.block_values()).checked_mul(block),
        None => values.checked_mul(encoding.value_bytes()?),
    });
    let Some(bytes) = bytes else {
        return Err(error(format!("its shape {:?} is too large", header.shape)));
    };
    let columns = header.shape.last().copied().unwrap_or(1);
    if encoding.block_bytes().is_some() && !columns.is_multiple_of(encoding.block_values()) {
        return Err(error(format!(
            "its rows of {columns} values are not whole {encoding} blocks of {}",
            encoding.block_values()
        )));
    }
    let offset = usize::try_from(header.offset).unwrap_or(usize::MAX);
    if !offset.is_multiple_of(alignment) {
        return Err(error(format!(
            "its offset {offset} is not a multiple of the file's alignment of {alignment}"
        )));
    }
    let start = data_start.checked_add(offset);
    match (start, start.and_then(|start| start.checked_add(bytes))) {
        (Some(start), Some(end)) if end <= file_length => Ok(TensorEntry {
            name: header.name,
            shape: header.shape,
            encoding,
            file: 0,
            range: start..end,
        }),
        _ => Err(error(format!(
            "its {bytes} bytes at offset {offset} lie outside of the file, which has {} bytes of \
             data: the file is truncated or corrupt",
            file_length.saturating_sub(data_start)
        ))),
    }
}

fn check_overlaps(entries: &[TensorEntry], file: &str) -> Result<(), Error> {
    let mut sorted: Vec<&TensorEntry> = entries.iter().filter(|entry| !entry.range.is_empty()).collect();
    sorted.sort_by_key(|entry| entry.range.start);
    for pair in sorted.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            return Err(Error::tensor(
                file,
                &pair[1].name,
                format!("its bytes overlap those of {}", pair[0].name),
            ));
        }
    }
    Ok(())
}

/// Returns the encoding of a tensor type's number, or the name of an unsupported type.
fn encoding(kind: u32) -> Result<Encoding, String> {
    const UNSUPPORTED: [(u32, &str); 21] = [
        (9, "Q8_1"),
        (15, "Q8_K"),
        (16, "IQ2_XXS"),
        (17, "IQ2_XS"),
        (18, "IQ3_XXS"),
        (19, "IQ1_S"),
        (21, "IQ3_S"),
        (22, "IQ2_S"),
        (24, "I8"),
        (25, "I16"),
        (26, "I32"),
        (27, "I64"),
        (29, "IQ1_M"),
        (31, "Q4_0_4_4"),
        (32, "Q4_0_4_8"),
        (33, "Q4_0_8_8"),
        (34, "TQ1_0"),
        (35, "TQ2_0"),
        (36, "IQ4_NL_4_4"),
        (40, "NVFP4"),
        (41, "Q1_0"),
    ];
    match kind {
        0 => return Ok(Encoding::F32),
        1 => return Ok(Encoding::F16),
        28 => return Ok(Encoding::F64),
        30 => return Ok(Encoding::BF16),
        _ => {}
    }
    if let Some(record) = refrain_quant::by_block_kind(kind) {
        return Ok(Encoding::Quantised(record));
    }
    match UNSUPPORTED.iter().find(|(number, _)| *number == kind) {
        Some((_, name)) => Err((*name).to_owned()),
        None => Err(format!("number {kind} (unknown)")),
    }
}

/// Names of the supported block types, in order of their numbers.
fn block_types() -> Vec<&'static str> {
    let mut types = Vec::from_iter(refrain_quant::records().filter_map(|r| Some((r.block?.kind, r.label))));
    types.sort_unstable();
    types.into_iter().map(|(_, label)| label).collect()
}
