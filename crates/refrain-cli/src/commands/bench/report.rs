//! How measurements are told.

use refrain::Device;
use serde_json::{Map, Value, json};

use super::row::Row;
use crate::{device, version};

/// The rows with all their keys.
pub(super) fn rows(rows: &[Row], device: &Device, bandwidth: f64) -> Vec<Value> {
    rows.iter().map(|row| row.json(device, bandwidth).into()).collect()
}

/// A column's text in a row.
type Cell = fn(&Map<String, Value>) -> String;

/// For people: a table as llama-bench prints it.
pub(super) fn table(rows: &[Value]) -> String {
    let columns: [(&str, Cell); 9] = [
        ("model", |row| text(&row["model"])),
        ("mode", |row| text(&row["mode"])),
        ("test", |row| match row["depth"].as_u64() {
            Some(depth) if depth > 0 => format!("{} @ d{depth}", text(&row["test"])),
            _ => text(&row["test"]),
        }),
        ("batch", |row| text(&row["batch"])),
        ("tokens/s", |row| {
            format!(
                "{} ± {}",
                number(&row["tokens_per_s"], 2),
                number(&row["tokens_per_s_stddev"], 2)
            )
        }),
        ("ms/token", |row| number(&row["ms_per_token"], 3)),
        ("GPU ms/token", |row| number(&row["gpu_ms_per_token"], 3)),
        ("host µs/token", |row| number(&row["host_us_per_token"], 1)),
        ("of bandwidth", |row| match row["bandwidth_share"].as_f64() {
            Some(share) => format!("{:.0} %", 100.0 * share),
            None => "-".to_owned(),
        }),
    ];
    let mut lines: Vec<Vec<String>> = vec![columns.iter().map(|(name, _)| (*name).to_owned()).collect()];
    let objects = rows.iter().filter_map(Value::as_object);
    lines.extend(objects.map(|row| columns.iter().map(|(_, cell)| cell(row)).collect()));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut table = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!(" {cell:<width$} "));
        table.push_str(&format!("|{}|\n", cells.collect::<Vec<_>>().join("|")));
        if number == 0 {
            let rules = widths.iter().map(|&width| "-".repeat(width + 2));
            table.push_str(&format!("|{}|\n", rules.collect::<Vec<_>>().join("|")));
        }
    }
    table
}

/// For spreadsheets.
pub(super) fn csv(rows: &[Value]) -> String {
    let objects: Vec<&Map<String, Value>> = rows.iter().filter_map(Value::as_object).collect();
    let Some(first) = objects.first() else {
        return String::new();
    };
    let quoted = |cell: String| match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    let head: Vec<String> = first.keys().cloned().collect();
    let mut lines = vec![head.join(",")];
    lines.extend(objects.iter().map(|row| {
        let cells = head.iter().map(|key| quoted(text(&row[key])));
        cells.collect::<Vec<_>>().join(",")
    }));
    lines.join("\n") + "\n"
}

/// For others: all that is known of the device, and all rows.
pub(super) fn whole(device: &Device, bandwidth: f64, loads: &[Value], rows: &[Value]) -> Value {
    let vulkan = device.as_vulkan().map(|device| {
        let (info, features) = (device.info(), device.features());
        json!({
            "driver": format!("{} {}", info.driver_name, info.driver_info),
            "vulkan": format!("{}.{}", info.api_version.0, info.api_version.1),
            "vendor_id": info.vendor_id,
            "device_id": info.device_id,
            "features": features.iter().map(|feature| feature.to_string()).collect::<Vec<_>>(),
            "limits": format!("{:?}", info.limits),
            "heaps": info.heaps.iter().enumerate().map(|(number, heap)| heap.describe(number)).collect::<Vec<_>>(),
            "matrix_shapes": format!("{:?}", info.matrix_shapes),
        })
    });
    json!({
        "refrain": version::SHORT,
        "git": version::COMMIT,
        "device": device.name(),
        "vulkan": vulkan,
        "probe_gbps": bandwidth / 1e9,
        "loads": loads,
        "rows": rows,
    })
}

/// The device and how fast it reads and loads, in a line.
pub(super) fn line(device: &Device, bandwidth: f64, loads: &[Value]) -> String {
    let load = |load: &Value| {
        let gigabytes = load["weight_bytes"].as_f64().unwrap_or(0.0) / 1e9;
        format!(
            "{gigabytes:.2} GB of weights loaded at {} GB/s",
            number(&load["gb_per_s"], 2)
        )
    };
    let loads: Vec<String> = loads.iter().map(load).collect();
    let reads = format!("a probe reads {:.0} GB/s", bandwidth / 1e9);
    format!("{}: {reads}; {}", device::describe(device), loads.join("; "))
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn number(value: &Value, digits: usize) -> String {
    value
        .as_f64()
        .map_or("-".to_owned(), |number| format!("{number:.digits$}"))
}
