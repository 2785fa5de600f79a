//! `refrain plan-check`: the proof that a model's plans have every barrier that they need.

use anyhow::bail;
use clap::Args;
use refrain::check::{Proof, Timeline};
use refrain::plan::Plan;
use refrain_engine::{LoadOptions, Model, Session};

use crate::{Global, Usage, device, model, output};

/// The most tokens of a prompt that are computed at once.
const LARGEST_CHUNK: usize = 512;
/// The context that plans are made for, where the model allows as much.
const CONTEXT: usize = 4096;
/// Pairs of one plan that are named.
const MOST_NAMED: usize = 8;

const EXAMPLES: &str = "Examples:
  refrain plan-check demo
  refrain plan-check synthetic:qwen3-8b:q4_0";

/// Prove that a model's plans have every barrier that they need
///
/// Looks at the plans of the decode step and of each size of prompt chunk: two runs of each, every pair of
/// accesses to the same bytes of which one is a write. Nothing is computed; where there is no GPU, or with
/// --device null, the plans are those for a made-up card.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model
    model: String,
    /// Leave out a barrier of the decode step, counted from 0: fails, and names the steps that need it
    #[arg(long, value_name = "N")]
    drop_barrier: Option<usize>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let checkpoint = model::open(&arguments.model)?;
    let context = CONTEXT.min(checkpoint.config().max_position);
    let device = device::open_for_plans(global)?;
    let model = Model::load(&checkpoint, &device, &LoadOptions::default())?;
    let mut session = Session::new(&model, context)?;
    let decode = Checked::new("decode", session.decode_function()?.plan(), arguments.drop_barrier)?;
    let mut checked = vec![decode];
    let mut tokens = 1;
    while tokens <= LARGEST_CHUNK.min(context) && arguments.drop_barrier.is_none() {
        let name = format!("prefill {tokens}");
        checked.push(Checked::new(&name, session.prefill_function(tokens)?.plan(), None)?);
        tokens *= 2;
    }
    if checked.iter().any(|checked| !checked.proof.unordered.is_empty()) {
        bail!("{}", complaint(&checked));
    }
    output::print(&table(&checked))
}

/// A plan and what became of it.
struct Checked {
    name: String,
    steps: usize,
    dispatches: usize,
    barriers: usize,
    proof: Proof,
}

impl Checked {
    fn new(name: &str, plan: &Plan, dropped: Option<usize>) -> anyhow::Result<Self> {
        let timeline = Timeline::of(plan);
        let barriers = timeline.barriers();
        if let Some(number) = dropped.filter(|&number| number >= barriers) {
            let what = format!("--drop-barrier {number}: the plan has {barriers} barriers, counted from 0");
            return Err(Usage(what).into());
        }
        let timeline = match dropped {
            Some(number) => timeline.without_barrier(number),
            None => timeline,
        };
        Ok(Self {
            name: name.to_owned(),
            steps: plan.steps.len(),
            dispatches: plan.dispatches(),
            barriers: barriers - usize::from(dropped.is_some()),
            proof: timeline.prove(),
        })
    }
}

fn table(checked: &[Checked]) -> String {
    let mut text = format!(
        "{:<12} {:>6} {:>10} {:>8} {:>14} {:>9}\n",
        "plan", "steps", "dispatches", "barriers", "pairs in order", "unordered"
    );
    for Checked {
        name,
        steps,
        dispatches,
        barriers,
        proof,
    } in checked
    {
        let (ordered, unordered) = (proof.ordered, proof.unordered.len());
        text += &format!("{name:<12} {steps:>6} {dispatches:>10} {barriers:>8} {ordered:>14} {unordered:>9}\n");
    }
    text
}

/// The pairs that are not in order, the first of each plan by name.
fn complaint(checked: &[Checked]) -> String {
    let unordered: usize = checked.iter().map(|checked| checked.proof.unordered.len()).sum();
    let mut text = format!("{unordered} pairs of accesses are not in order");
    for Checked { name, proof, .. } in checked {
        for hazard in proof.unordered.iter().take(MOST_NAMED) {
            text += &format!("\n  {name}: {hazard}");
        }
        let more = proof.unordered.len().saturating_sub(MOST_NAMED);
        if more > 0 {
            text += &format!("\n  {name}: and {more} more");
        }
    }
    text
}
