//! The format of numbers in the output.

use serde_json::Value;

use crate::support::{refrain, run};

const BENCH: [&str; 9] = [
    "bench",
    "synthetic:tiny:q4_0",
    "-p",
    "8",
    "-n",
    "4",
    "-r",
    "1",
    "--device",
];

fn bench(device: &str, more: &[&str]) -> crate::support::Outcome {
    let arguments = [&BENCH[..], &[device], more].concat();
    refrain(&arguments).output().unwrap().into()
}

#[test]
fn bench_shows_model_size_parameters_and_device() {
    let table = bench("cpu", &[]).done();
    let (heads, row) = (table.lines().next().unwrap(), table.lines().nth(2).unwrap());
    for head in ["model", "size", "params", "device", "test", "tokens/s"] {
        assert!(heads.contains(&format!("| {head} ")), "no {head} in {table}");
    }
    for cell in ["synthetic:tiny:q4_0", "CPU executor", "MiB", " M "] {
        assert!(row.contains(cell), "no {cell} in {table}");
    }
    assert!(!table.contains('±'), "one run has no deviation: {table}");
    assert!(!table.contains("GPU") && !table.contains("batch"), "{table}");
}

#[test]
fn bench_counts_only_work_of_the_device() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let rows = bench("0", &["--json"]).json();
    let counters = |row: &Value| {
        let row = row.as_object().unwrap().clone();
        let counted = row.into_iter().filter(|(key, _)| key.ends_with("_per_token"));
        counted.collect::<Vec<_>>()
    };
    for row in rows.as_array().unwrap() {
        assert!(row.get("descriptor_updates_per_token").is_none(), "{row}");
        assert_eq!(row["tokens_per_s_stddev"], Value::Null, "{row}");
        assert!(row["dispatches_per_token"].as_f64() > Some(0.0), "{row}");
        assert!(
            row["parameters"].as_u64() > Some(0) && row["weight_bytes"].as_u64() > Some(0),
            "{row}"
        );
    }
    let rows = bench("cpu", &["--json"]).json();
    for (key, value) in rows.as_array().unwrap().iter().flat_map(counters) {
        let computed = ["ms_", "host_us_", "weight_bytes_", "kv_bytes_"]
            .iter()
            .any(|of| key.starts_with(of));
        assert!(
            computed || value.is_null(),
            "{key}: the CPU executor has no such counter, found {value}"
        );
    }
}

#[test]
fn rough_speeds_have_two_digits() {
    let digits = |text: &str, unit: &str| -> Vec<usize> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let rates = words.windows(2).filter(|pair| pair[1].starts_with(unit));
        let digits = rates.map(|pair| pair[0].trim_start_matches(['0', '.']).trim_end_matches('0'));
        digits.map(|rate| rate.replace('.', "").len()).collect()
    };
    for arguments in [&["inspect", "demo"][..], &["doctor", "demo"]] {
        let text = run(arguments).stdout;
        for unit in ["tokens/s", "GB/s"] {
            let digits = digits(&text, unit);
            assert!(!digits.is_empty() && digits.iter().all(|&digits| digits <= 2), "{text}");
        }
    }
}
