//! Formats measurements as a table, CSV and JSON.

use refrain::Device;
use serde_json::{Map, Value, json};

use super::row::BenchRow;
use crate::output::{human_bytes, human_count, human_rate};
use crate::{device, version};

/// The rows as JSON with all keys.
pub(super) fn rows(rows: &[BenchRow], device: &Device, bandwidth: f64) -> Vec<Value> {
    rows.iter().map(|row| row.json(device, bandwidth).into()).collect()
}

/// A column's text in a row; `None` if it does not apply.
type Cell = fn(&Map<String, Value>) -> Option<String>;

const COLUMNS: [(&str, Cell); 14] = [
    ("model", |row| Some(text(&row["model"]))),
    ("size", |row| row["weight_bytes"].as_u64().map(human_bytes)),
    ("params", |row| row["parameters"].as_u64().map(human_count)),
    ("device", |row| Some(text(&row["device"]))),
    ("mode", |row| Some(text(&row["mode"]))),
    ("test", |row| {
        let test = text(&row["test"]);
        Some(match row["depth"].as_u64() {
            Some(depth) if depth > 0 => format!("{test} @ d{depth}"),
            _ => test,
        })
    }),
    ("batch", |row| {
        let batch = row["batch"].as_u64().filter(|&batch| batch > 1);
        batch.map(|batch| batch.to_string())
    }),
    ("accept", |row| row["accept"].as_str().map(str::to_owned)),
    ("tokens/s", |row| {
        let (rate, deviation) = (number(&row["tokens_per_s"], 2), number(&row["tokens_per_s_stddev"], 2));
        rate.map(|rate| deviation.map_or(rate.clone(), |deviation| format!("{rate} ± {deviation}")))
    }),
    ("ms/token", |row| number(&row["ms_per_token"], 3)),
    ("GPU ms/token", |row| number(&row["gpu_ms_per_token"], 3)),
    ("CPU µs/token", |row| number(&row["host_us_per_token"], 1)),
    ("tokens/step", |row| number(&row["tokens_per_step"], 2)),
    ("bandwidth", |row| {
        let share = row["bandwidth_share"].as_f64();
        share.map(|share| format!("{:.0} %", 100.0 * share))
    }),
];

/// A table as llama-bench prints it, without columns that are empty in every row.
pub(super) fn table(rows: &[Value]) -> String {
    let objects: Vec<&Map<String, Value>> = rows.iter().filter_map(Value::as_object).collect();
    let mut table = String::new();
    let (mut heads, mut rules) = (String::new(), String::new());
    let mut lines = vec![String::new(); objects.len()];
    for (name, cell) in COLUMNS {
        let cells: Vec<Option<String>> = objects.iter().map(|row| cell(row)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let cells: Vec<String> = cells.into_iter().map(|cell| cell.unwrap_or("-".to_owned())).collect();
        let widths = cells
            .iter()
            .map(|cell| cell.chars().count())
            .chain([name.chars().count()]);
        let width = widths.max().unwrap_or(0);
        heads += &format!("| {name:<width$} ");
        rules += &format!("|{}", "-".repeat(width + 2));
        for (line, cell) in lines.iter_mut().zip(&cells) {
            *line += &format!("| {cell:<width$} ");
        }
    }
    for line in [heads, rules].iter().chain(&lines) {
        table += &format!("{line}|\n");
    }
    table
}

/// Comma-separated values.
pub(super) fn csv(rows: &[Value]) -> String {
    let objects: Vec<&Map<String, Value>> = rows.iter().filter_map(Value::as_object).collect();
    let Some(first) = objects.first() else {
        return String::new();
    };
    let quoted = |cell: String| {
        if cell.contains([',', '"', '\n']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell
        }
    };
    let head: Vec<String> = first.keys().cloned().collect();
    let mut lines = vec![head.join(",")];
    lines.extend(objects.iter().map(|row| {
        let cells = head.iter().map(|key| quoted(text(&row[key])));
        cells.collect::<Vec<_>>().join(",")
    }));
    lines.join("\n") + "\n"
}

/// The contents of the report file: device details and all rows.
pub(super) fn report_file(device: &Device, bandwidth: f64, loads: &[Value], rows: &[Value]) -> Value {
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

/// The device, its measured read bandwidth and the loading speeds, in one line.
pub(super) fn summary_line(device: &Device, bandwidth: f64, loads: &[Value]) -> String {
    let load = |load: &Value| {
        let gigabytes = load["weight_bytes"].as_f64().unwrap_or(0.0) / 1e9;
        format!(
            "loaded {gigabytes:.2} GB of weights at {} GB/s",
            number(&load["gb_per_s"], 2).unwrap_or_default()
        )
    };
    let loads: Vec<String> = loads.iter().map(load).collect();
    let reads = format!("read bandwidth {} GB/s", human_rate(bandwidth / 1e9));
    format!("{}: {reads}; {}", device::describe(device), loads.join("; "))
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn number(value: &Value, digits: usize) -> Option<String> {
    value.as_f64().map(|number| format!("{number:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(changed: Value) -> Value {
        let mut row = json!({
            "model": "demo", "weight_bytes": 8 << 20, "parameters": 7_900_000, "device": "card", "mode": "replay",
            "test": "tg16", "depth": 0, "batch": 1, "accept": null, "tokens_per_step": null,
            "tokens_per_s": 12.5, "tokens_per_s_stddev": null,
            "ms_per_token": 80.0, "gpu_ms_per_token": null, "host_us_per_token": 10.0, "bandwidth_share": 0.5,
        });
        for (key, value) in changed.as_object().unwrap() {
            row[key] = value.clone();
        }
        row
    }

    #[test]
    fn table_shows_model_device_and_test() {
        let text = table(&[row(json!({}))]);
        for cell in [
            "| demo ",
            "| 8.0 MiB ",
            "| 7.9 M ",
            "| card ",
            "| tg16 ",
            "| 12.50 ",
            "| 50 % ",
        ] {
            assert!(text.contains(cell), "no {cell:?} in {text}");
        }
    }

    #[test]
    fn omits_columns_that_are_empty_in_every_row() {
        let one = table(&[row(json!({}))]);
        assert!(
            !one.contains("batch") && !one.contains("GPU") && !one.contains('±'),
            "{one}"
        );
        let others = json!({ "batch": 4, "tokens_per_s_stddev": 0.25, "gpu_ms_per_token": 79.0 });
        let two = table(&[row(json!({})), row(others)]);
        for cell in ["batch", "| -     | 12.50 ", "| 4     | 12.50 ± 0.25 ", "GPU ms/token"] {
            assert!(two.contains(cell), "no {cell:?} in {two}");
        }
        assert_eq!(two.lines().count(), 4, "{two}");
    }
}
