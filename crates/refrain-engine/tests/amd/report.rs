//! Compiler statistics of kernels.

use std::collections::BTreeMap;
use std::fmt::Write;

use refrain_vulkan::{Compiler, Kernel};

/// RADV's names of the statistics.
const STATISTICS: [&str; 8] = [
    "VGPRs",
    "SGPRs",
    "LDS size",
    "Subgroups per SIMD",
    "Code size",
    "Spilled VGPRs",
    "Spilled SGPRs",
    "Scratch size",
];
/// Indices of the statistics that show spills.
const SPILLS: [usize; 3] = [5, 6, 7];
const WAVES: usize = 3;

/// Statistics of all kernels.
pub struct Report(Vec<(String, [u64; STATISTICS.len()])>);

impl Report {
    pub fn new(compiler: &Compiler, kernels: &[Kernel]) -> Report {
        compiler.prepare(kernels, &|_, _| {}).expect("every kernel compiles");
        let statistics = |kernel: &Kernel| {
            let pipeline = compiler.pipeline(kernel).expect("it was compiled");
            let statistics = pipeline.statistics().expect("the driver has statistics");
            let figure = |name: &str| statistics.iter().find(|statistic| statistic.name == name);
            let figures = STATISTICS.map(|name| {
                figure(name)
                    .unwrap_or_else(|| panic!("no {name} in {statistics:?}"))
                    .value as u64
            });
            (format!("{} {:?}", kernel.name, kernel.constants), figures)
        };
        Report(kernels.iter().map(statistics).collect())
    }

    /// Returns the kernels that spill registers to memory.
    pub fn spills(&self) -> impl Iterator<Item = &str> {
        let spills =
            |(_, figures): &&(String, [u64; STATISTICS.len()])| SPILLS.iter().any(|&figure| figures[figure] > 0);
        self.0.iter().filter(spills).map(|(name, _)| name.as_str())
    }

    /// Returns the worst of each kind of kernel.
    pub fn table(&self, title: &str) -> String {
        let mut kinds: BTreeMap<&str, (usize, [u64; STATISTICS.len()])> = BTreeMap::new();
        for (name, figures) in &self.0 {
            let (count, worst) = kinds.entry(kind(name)).or_insert((0, *figures));
            *count += 1;
            for (number, (worst, figure)) in worst.iter_mut().zip(figures).enumerate() {
                *worst = if number == WAVES {
                    *figure.min(worst)
                } else {
                    *figure.max(worst)
                };
            }
        }
        let mut text = format!(
            "{title}\n{:<24} {:>9} {:>5} {:>5} {:>6} {:>5} {:>6}\n",
            "kernel", "pipelines", "VGPRs", "SGPRs", "LDS", "waves", "code"
        );
        for (kind, (count, [vgprs, sgprs, lds, waves, code, ..])) in kinds {
            writeln!(
                text,
                "{kind:<24} {count:>9} {vgprs:>5} {sgprs:>5} {lds:>6} {waves:>5} {code:>6}"
            )
            .expect("writes");
        }
        text + "\n"
    }

    /// Returns all kernels, one per line.
    pub fn all(&self, title: &str) -> String {
        let mut text = format!("{title}\n");
        for (name, figures) in &self.0 {
            let figures = STATISTICS
                .iter()
                .zip(figures)
                .map(|(figure, value)| format!("{figure} {value}"));
            writeln!(text, "{}: {name}", figures.collect::<Vec<_>>().join(", ")).expect("writes");
        }
        text
    }
}

/// Returns a kernel's name without its variant.
fn kind(name: &str) -> &str {
    name.split(['+', ' ']).next().unwrap_or(name)
}
