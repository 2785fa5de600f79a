//! CPU matrix products: `cargo bench -p refrain-kernels --bench cpu [-- FILTER …]`. A filter is a part of a format's
//! name.
//!
//! Each line shows the format, GB/s of weights with one vector (more weights than caches hold), and 10^9
//! multiplications per second with 64 vectors.

use std::time::{Duration, Instant};

use refrain_kernels::DType;
use refrain_kernels::cpu::{FastRows, with_awake_pool};
use refrain_kernels::matmul::{StoredRows, WeightRows};
use refrain_kernels::quantised::{QuantFormat, QuantRows};

/// Values per row.
const COLUMNS: usize = 4096;
/// Size of a matrix in bytes.
const BYTES: usize = 256 << 20;
/// Vectors per prompt.
const VECTORS: usize = 64;
/// Duration of each measurement.
const MEASURE: Duration = Duration::from_secs(1);

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    println!("{} threads", rayon::current_num_threads());
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        if wanted(&dtype.to_string()) {
            let row = COLUMNS * dtype.size();
            let bytes = plane(BYTES / row * row);
            let rows = StoredRows::new(dtype, BYTES / row, COLUMNS, &bytes).expect("as long");
            measure(&dtype.to_string(), &FastRows::Stored(rows), row);
        }
    }
    for format in QuantFormat::ALL {
        if wanted(&format.to_string()) {
            let parameters = DType::of_scales(format, DType::F16);
            let sizes = [4 * format.words(COLUMNS), format.scales(COLUMNS) * parameters.size()];
            let row = sizes[0] + sizes[1] * if format.has_biases() { 2 } else { 1 };
            let count = BYTES / row;
            let [quants, scales] = sizes.map(|size| plane(count * size));
            let biases = format.has_biases().then_some(&scales[..]);
            let rows = QuantRows::new(format, [count, COLUMNS], &quants, parameters, &scales, biases);
            measure(&format.to_string(), &FastRows::Quantised(rows.expect("as long")), row);
        }
    }
}

/// Returns bytes that decode to small numbers in any type.
fn plane(bytes: usize) -> Vec<u8> {
    vec![0x2c; bytes]
}

fn measure(name: &str, w: &FastRows<'_>, row: usize) {
    let one = (w.count() * row) as f64 / shortest(w, w.count(), 1);
    let some = w.count() / 64;
    let several = (some * COLUMNS * VECTORS) as f64 / shortest(w, some, VECTORS);
    println!("{name:9} {:6.1} GB/s {:7.1} G/s", one / 1e9, several / 1e9);
}

/// Returns the minimum seconds of a product of `rows` rows with `vectors` vectors.
fn shortest(w: &FastRows<'_>, rows: usize, vectors: usize) -> f64 {
    let (x, mut out) = (vec![1.0; vectors * COLUMNS], vec![0.0; vectors * rows]);
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while best.is_infinite() || start.elapsed() < MEASURE {
        let begin = Instant::now();
        with_awake_pool(|| w.multiply(&x, 0..rows, &mut out));
        best = best.min(begin.elapsed().as_secs_f64());
    }
    best
}
