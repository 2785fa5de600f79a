//! A profile grouped by kind: steps of all layers that do equal work are one row.

use refrain::DType;
use refrain::plan::{Operand, Plan, Step};
use refrain_engine::cost::{CachedTokens, step_floor_seconds};

/// Maximum rows of the table.
const MAX_ROWS: usize = 40;

/// The properties that all steps of a kind share.
#[derive(Debug, Clone, PartialEq)]
struct StepSignature {
    primitive: String,
    /// Types and shapes of its inputs.
    inputs: Vec<Shape>,
    /// Types and shapes of its outputs, or else of what it updates in place.
    results: Vec<Shape>,
    multiplications: u64,
    floor_us: f64,
}

type Shape = (DType, Vec<usize>);

/// Steps of equal work.
#[derive(Debug)]
struct StepKind {
    work: StepSignature,
    count: usize,
    /// Total microseconds.
    us: f64,
}

impl StepKind {
    fn lost_us(&self) -> f64 {
        self.us - self.count as f64 * self.work.floor_us
    }
}

impl StepSignature {
    fn of(plan: &Plan, step: &Step, cached: CachedTokens, bandwidth: f64) -> StepSignature {
        let shape = |operand: &Operand| (operand.dtype, operand.layout.shape.to_vec());
        let results = match &step.outputs[..] {
            [] => step.updated().map(shape).collect(),
            outputs => outputs.iter().map(shape).collect(),
        };
        StepSignature {
            primitive: step.primitive.to_string(),
            inputs: step.inputs.iter().map(shape).collect(),
            results,
            multiplications: step.multiplications(),
            floor_us: 1e6 * step_floor_seconds(plan, step, cached, bandwidth),
        }
    }

    fn text(&self) -> String {
        let results = self.results.iter().map(|(dtype, shape)| format!("{dtype}{shape:?}"));
        format!("{} → {}", self.primitive, results.collect::<Vec<_>>().join(", "))
    }
}

/// Formats a row for each kind of step. `profile` has the microseconds of each step.
pub(super) fn table(plan: &Plan, profile: &[f64], cached: CachedTokens, bandwidth: f64) -> String {
    let work = |step| StepSignature::of(plan, step, cached, bandwidth);
    text(&grouped(plan.steps.iter().map(work).zip(profile.iter().copied())))
}

/// Groups steps by kind, those that lose most time first.
fn grouped(steps: impl Iterator<Item = (StepSignature, f64)>) -> Vec<StepKind> {
    let mut kinds: Vec<StepKind> = Vec::new();
    for (work, us) in steps {
        match kinds.iter_mut().find(|kind| kind.work == work) {
            Some(kind) => {
                kind.count += 1;
                kind.us += us;
            }
            None => kinds.push(StepKind { work, count: 1, us }),
        }
    }
    kinds.sort_by(|a, b| b.lost_us().total_cmp(&a.lost_us()));
    kinds
}

fn text(kinds: &[StepKind]) -> String {
    let sum = |kinds: &[StepKind]| {
        kinds
            .iter()
            .fold((0, 0.0), |(n, us), kind| (n + kind.count, us + kind.us))
    };
    let (steps, total) = sum(kinds);
    let percent = |us: f64| 100.0 * us / total.max(f64::MIN_POSITIVE);
    let mut text = format!(
        "profile    {total:.1} µs over {steps} steps of {} kinds, each timed with a barrier; largest loss first:\n",
        kinds.len()
    );
    let (shown, left) = kinds.split_at(kinds.len().min(MAX_ROWS));
    for kind in shown {
        let each = kind.us / kind.count as f64;
        text.push_str(&format!(
            "  {:4} × {each:8.1} µs = {:9.1} µs ({:4.1} %), minimum {:7.1} µs each, {:6.2} T multiplies/s  {}\n",
            kind.count,
            kind.us,
            percent(kind.us),
            kind.work.floor_us,
            kind.work.multiplications as f64 / each.max(f64::MIN_POSITIVE) / 1e6,
            kind.work.text(),
        ));
    }
    if !left.is_empty() {
        let (steps, us) = sum(left);
        text.push_str(&format!(
            "  and {} more kinds: {steps} steps, {us:.1} µs ({:.1} %)\n",
            left.len(),
            percent(us)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(name: &str, rows: usize, floor_us: f64) -> StepSignature {
        StepSignature {
            primitive: name.to_owned(),
            inputs: vec![(DType::F32, vec![rows, 4])],
            results: vec![(DType::F32, vec![rows, 2])],
            multiplications: 30_000_000,
            floor_us,
        }
    }

    #[test]
    fn groups_equal_steps_and_sorts_by_lost_time() {
        let steps = [
            (work("sample", 1, 0.0), 30.0),
            (work("projection", 1, 10.0), 20.0),
            (work("projection", 1, 100.0), 105.0),
            (work("projection", 1, 10.0), 40.0),
            (work("projection", 3, 10.0), 5.0),
        ];
        let text = text(&grouped(steps.into_iter()));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("200.0 µs over 5 steps of 4 kinds"), "{text}");
        let starts = [
            "2 ×     30.0 µs =      60.0 µs (30.0 %), minimum    10.0 µs each,   1.00 T",
            "1 ×     30.0",
            "1 ×    105.0",
            "1 ×      5.0",
        ];
        assert_eq!(lines.len(), 1 + starts.len(), "{text}");
        for (line, start) in lines[1..].iter().zip(starts) {
            assert!(line.trim_start().starts_with(start), "{text}");
        }
        assert!(lines[4].ends_with("projection → f32[3, 2]"), "{text}");
    }

    #[test]
    fn sums_up_kinds_beyond_the_limit() {
        let steps = (0..45).map(|n| (work("elementwise", n + 1, 0.0), if n < 40 { 2.0 } else { 1.0 }));
        let text = text(&grouped(steps.chain([(work("elementwise", 45, 0.0), 0.5)])));
        assert_eq!(text.lines().count(), 42, "{text}");
        assert!(text.ends_with("and 5 more kinds: 6 steps, 5.5 µs (6.4 %)\n"), "{text}");
    }
}
