//! Reads the header of a safetensors file: 8 bytes with the header's length, the header (a JSON object with dtype,
//! shape and byte range of each tensor), then the data.

use std::ops::Range;

use safetensors::Dtype;
use serde_json::Value;

use crate::files::{JsonObject, json_kind, parse_object};
use crate::{Encoding, Error};

/// Maximum header length in bytes, as the format defines it.
pub(crate) const MAX_HEADER: usize = 100_000_000;

/// One tensor of a safetensors file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub name: String,
    pub encoding: Encoding,
    pub shape: Vec<usize>,
    /// Byte range in the file.
    pub range: Range<usize>,
}

/// Reads and checks the header of a safetensors file with contents `bytes`; `file` is its name for messages.
///
/// # Errors
/// If the file is truncated, its header is invalid, or byte ranges overlap, leave gaps, exceed the file or do not
/// match their tensor's shape.
pub(crate) fn read(bytes: &[u8], file: &str) -> Result<Vec<Entry>, Error> {
    let (header, data_start) = header(bytes, file)?;
    let mut entries = Vec::with_capacity(header.len());
    for (name, value) in &header {
        if name != "__metadata__" {
            entries.push(entry(name, value, data_start, file)?);
        }
    }
    check_ranges(&entries, data_start..bytes.len(), file)?;
    Ok(entries)
}

fn header(bytes: &[u8], file: &str) -> Result<(JsonObject, usize), Error> {
    if bytes.is_empty() {
        return Err(Error::file(file, "is empty"));
    }
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(Error::file(
            file,
            format!(
                "is truncated: it has {} bytes, fewer than the 8 of the header's length",
                bytes.len()
            ),
        ));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER as u64 && length <= rest.len() as u64 {
        return Err(Error::file(
            file,
            format!("its header is {length} bytes long, more than the {MAX_HEADER} allowed"),
        ));
    }
    let Some(text) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else {
        return Err(Error::file(
            file,
            format!(
                "its header should be {length} bytes long, but only {} bytes follow: the file is truncated, \
                 or not a safetensors file",
                rest.len()
            ),
        ));
    };
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::file(file, "its header is not UTF-8 text: not a safetensors file?"))?;
    let label = format!("{file}: header");
    Ok((parse_object(&label, text)?, 8 + text.len()))
}

fn entry(name: &str, value: &Value, data_start: usize, file: &str) -> Result<Entry, Error> {
    let error = |reason: String| Error::tensor(file, name, reason);
    let Value::Object(fields) = value else {
        return Err(error(format!(
            "its header entry is a {}, not an object",
            json_kind(value)
        )));
    };
    let dtype = fields.get("dtype").unwrap_or(&Value::Null);
    let dtype: Dtype =
        serde_json::from_value(dtype.clone()).map_err(|_| error(format!("its dtype {dtype} is unknown")))?;
    let shape = counts(fields, "shape").ok_or_else(|| {
        let shape = fields.get("shape").unwrap_or(&Value::Null);
        error(format!("its shape {shape} is not a list of counts"))
    })?;
    let offsets = counts(fields, "data_offsets");
    let Some([start, end]) = offsets.as_deref() else {
        let offsets = fields.get("data_offsets").unwrap_or(&Value::Null);
        return Err(error(format!("its data_offsets {offsets} are not a start and an end")));
    };
    let (start, end) = (*start, *end);
    let bits = shape
        .iter()
        .try_fold(dtype.bitsize(), |bits, &axis| bits.checked_mul(axis));
    let Some(bytes) = bits.filter(|bits| bits % 8 == 0).map(|bits| bits / 8) else {
        return Err(error(format!("its shape {shape:?} is too large")));
    };
    if start > end || end - start != bytes {
        return Err(error(format!(
            "its data_offsets {start}..{end} do not fit the {bytes} bytes of shape {shape:?} in \
             {dtype}"
        )));
    }
    match (data_start.checked_add(start), data_start.checked_add(end)) {
        (Some(start), Some(end)) => Ok(Entry {
            name: name.to_owned(),
            encoding: encoding(dtype),
            shape,
            range: start..end,
        }),
        _ => Err(error(format!("its data_offsets {start}..{end} are too large"))),
    }
}

fn counts(fields: &JsonObject, key: &str) -> Option<Vec<usize>> {
    let values = fields.get(key)?.as_array()?;
    values
        .iter()
        .map(|value| value.as_u64().and_then(|value| usize::try_from(value).ok()))
        .collect()
}

/// Checks that the tensors cover `data` without overlaps or gaps.
fn check_ranges(entries: &[Entry], data: Range<usize>, file: &str) -> Result<(), Error> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| (entry.range.start, entry.range.end));
    let mut covered = data.start;
    let mut previous = "";
    for entry in sorted {
        let relative = entry.range.start - data.start..entry.range.end - data.start;
        if entry.range.end > data.end {
            return Err(Error::tensor(
                file,
                &entry.name,
                format!(
                    "its bytes {relative:?} lie outside of the {} bytes of data: the file is truncated or corrupt",
                    data.len()
                ),
            ));
        }
        if entry.range.start < covered {
            return Err(Error::tensor(
                file,
                &entry.name,
                format!("its bytes {relative:?} overlap those of {previous}"),
            ));
        }
        if entry.range.start > covered {
            return Err(Error::tensor(
                file,
                &entry.name,
                format!(
                    "its bytes {relative:?} leave a gap of {} bytes before them",
                    entry.range.start - covered
                ),
            ));
        }
        covered = entry.range.end;
        previous = &entry.name;
    }
    if covered != data.end {
        return Err(Error::file(
            file,
            format!("its last {} bytes belong to no tensor", data.end - covered),
        ));
    }
    Ok(())
}

fn encoding(dtype: Dtype) -> Encoding {
    match dtype {
        Dtype::F32 => Encoding::F32,
        Dtype::F16 => Encoding::F16,
        Dtype::BF16 => Encoding::BF16,
        Dtype::I32 => Encoding::I32,
        Dtype::U32 => Encoding::U32,
        Dtype::U8 => Encoding::U8,
        Dtype::BOOL => Encoding::Bool,
        Dtype::F64 => Encoding::F64,
        Dtype::I64 => Encoding::Other("I64"),
        Dtype::U64 => Encoding::Other("U64"),
        Dtype::I16 => Encoding::Other("I16"),
        Dtype::U16 => Encoding::Other("U16"),
        Dtype::I8 => Encoding::Other("I8"),
        Dtype::F8_E4M3 => Encoding::Other("F8_E4M3"),
        Dtype::F8_E5M2 => Encoding::Other("F8_E5M2"),
        _ => Encoding::Other("a type narrower than a byte, or complex"),
    }
}
