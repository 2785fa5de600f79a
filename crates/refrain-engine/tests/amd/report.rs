//! What a compiler tells of kernels.

use std::collections::BTreeMap;
use std::fmt::Write;

use refrain_vulkan::{Compiler, Kernel};

/// What RADV calls the figures.
const FIGURES: [&str; 8] = [
    "VGPRs",
    "SGPRs",
    "LDS size",
    "Subgroups per SIMD",
    "Code size",
    "Spilled VGPRs",
    "Spilled SGPRs",
    "Scratch size",
];
/// Of those, what tells of spills.
const SPILLS: [usize; 3] = [5, 6, 7];
const WAVES: usize = 3;

/// Figures of all kernels.
pub struct Report(Vec<(String, [u64; FIGURES.len()])>);

impl Report {
    pub fn new(compiler: &Compiler, kernels: &[Kernel]) -> Report {
        compiler.prepare(kernels, &|_, _| {}).expect("every kernel compiles");
        let told = |kernel: &Kernel| {
            let pipeline = compiler.pipeline(kernel).expect("it was compiled");
            let told = pipeline.statistics().expect("the driver tells");
            let figure = |name: &str| told.iter().find(|statistic| statistic.name == name);
            let figures =
                FIGURES.map(|name| figure(name).unwrap_or_else(|| panic!("no {name} in {told:?}")).value as u64);
            (format!("{} {:?}", kernel.name, kernel.constants), figures)
        };
        Report(kernels.iter().map(told).collect())
    }

    /// Kernels that keep registers in memory.
    pub fn spills(&self) -> impl Iterator<Item = &str> {
        let spills = |(_, figures): &&(String, [u64; FIGURES.len()])| SPILLS.iter().any(|&figure| figures[figure] > 0);
        self.0.iter().filter(spills).map(|(name, _)| name.as_str())
    }

    /// The worst of each kind of kernel.
    pub fn table(&self, title: &str) -> String {
        let mut kinds: BTreeMap<&str, (usize, [u64; FIGURES.len()])> = BTreeMap::new();
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

    /// All kernels, one a line.
    pub fn all(&self, title: &str) -> String {
        let mut text = format!("{title}\n");
        for (name, figures) in &self.0 {
            let figures = FIGURES
                .iter()
                .zip(figures)
                .map(|(figure, value)| format!("{figure} {value}"));
            writeln!(text, "{}: {name}", figures.collect::<Vec<_>>().join(", ")).expect("writes");
        }
        text
    }
}

/// What a kernel computes, without how: the name up to its variant.
fn kind(name: &str) -> &str {
    name.split(['+', ' ']).next().unwrap_or(name)
}
