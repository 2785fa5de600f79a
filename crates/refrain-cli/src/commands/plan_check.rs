//! `refrain plan-check`: proves that a model's execution plans contain every barrier they need.

use anyhow::bail;
use clap::Args;
use refrain::check::{Proof, Timeline};
use refrain::plan::Plan;
use refrain_engine::{LoadOptions, Model, Programs};

use crate::{Global, Usage, device, model, output};

/// Largest prompt chunk to check, in tokens.
const MAX_CHUNK: usize = 512;
/// Context length of the plans in tokens, if the model allows as much.
const CONTEXT: usize = 4096;
/// Tokens of the drafts that the checked step verifies, if the model has a head that drafts.
const CHECKED_DRAFTS: usize = 3;
/// Maximum hazards printed per plan.
const MAX_REPORTED: usize = 8;

const EXAMPLES: &str = "Examples:
  refrain plan-check demo
  refrain plan-check synthetic:qwen3-8b:q4_0";

/// Prove that a model's execution plans have every barrier they need
///
/// Checks two consecutive runs of the plans of the decode step, of each prompt chunk size, and, if the checkpoint has a
/// multi-token prediction head, of a step that verifies drafts and makes the next ones: every pair of accesses to
/// the same bytes of which one is a write must be ordered. Nothing is computed. Without a GPU, or with --device null,
/// the plans are those for a simulated GPU.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model
    model: String,
    /// Remove barrier N of the decode step, counted from 0, to see the check fail and name the steps that need it
    #[arg(long, value_name = "N")]
    drop_barrier: Option<usize>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let checkpoint = model::open(&arguments.model)?;
    let context = CONTEXT.min(checkpoint.config().max_position);
    let device = device::open_for_plans(global)?;
    let options = LoadOptions {
        mtp_head: true,
        ..LoadOptions::default()
    };
    let model = Model::load(&checkpoint, &device, &options)?;
    let mut programs = Programs::new(&model, context, 1)?;
    let decode = CheckedPlan::new("decode", programs.decode_function()?.plan(), arguments.drop_barrier)?;
    let mut checked = vec![decode];
    let mut tokens = 1;
    while tokens <= MAX_CHUNK.min(context) && arguments.drop_barrier.is_none() {
        let name = format!("prefill {tokens}");
        checked.push(CheckedPlan::new(
            &name,
            programs.prefill_function(tokens)?.plan(),
            None,
        )?);
        tokens *= 2;
    }
    if model.config().mtp_layers > 0 && arguments.drop_barrier.is_none() {
        programs.verify_drafts(CHECKED_DRAFTS)?;
        let name = format!("drafts {CHECKED_DRAFTS}");
        checked.push(CheckedPlan::new(&name, programs.decode_function()?.plan(), None)?);
    }
    if checked.iter().any(|checked| !checked.proof.unordered.is_empty()) {
        bail!("{}", error_message(&checked));
    }
    output::print(&table(&checked))
}

/// A checked plan and its proof.
struct CheckedPlan {
    name: String,
    steps: usize,
    dispatches: usize,
    barriers: usize,
    proof: Proof,
}

impl CheckedPlan {
    fn new(name: &str, plan: &Plan, dropped: Option<usize>) -> anyhow::Result<Self> {
        let timeline = Timeline::of(plan);
        let barriers = timeline.barriers();
        if let Some(number) = dropped.filter(|&number| number >= barriers) {
            let message = format!("--drop-barrier {number}: the plan has {barriers} barriers, counted from 0");
            return Err(Usage(message).into());
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

fn table(checked: &[CheckedPlan]) -> String {
    let mut text = format!(
        "{:<12} {:>6} {:>10} {:>8} {:>14} {:>9}\n",
        "plan", "steps", "dispatches", "barriers", "ordered pairs", "unordered"
    );
    for CheckedPlan {
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

/// Lists unordered pairs of accesses, the first ones of each plan by name.
fn error_message(checked: &[CheckedPlan]) -> String {
    let unordered: usize = checked.iter().map(|checked| checked.proof.unordered.len()).sum();
    let mut text = format!("{unordered} pairs of accesses are not ordered");
    for CheckedPlan { name, proof, .. } in checked {
        for hazard in proof.unordered.iter().take(MAX_REPORTED) {
            text += &format!("\n  {name}: {hazard}");
        }
        let more = proof.unordered.len().saturating_sub(MAX_REPORTED);
        if more > 0 {
            text += &format!("\n  {name}: and {more} more");
        }
    }
    text
}
