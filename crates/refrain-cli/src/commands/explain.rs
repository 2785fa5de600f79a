//! `refrain explain`: shows how a model's decode step or prompt is compiled for the device, and what it costs.

mod chrome_trace;
mod graphviz;
mod profile;
mod token_cost;

use std::path::PathBuf;

use clap::Args;
use refrain::speed;
use refrain::{Device, Function, passes};
use refrain_engine::cost::{self, CachedTokens, TokenCost};
use refrain_engine::{CacheTypes, MAX_DRAFTS, Model, Programs, Speculation};
use refrain_formats::AtomicFile;
use serde_json::json;

use crate::decoding::DecodingArguments;
use crate::{Global, Usage, device, load, model, output};
use token_cost::CostSummary;

/// Assumed read bandwidth of the simulated GPU, in bytes per second.
const SIMULATED_BANDWIDTH: f64 = 1e12;

const EXAMPLES: &str = "Examples:
  refrain explain demo
  refrain explain synthetic:tiny:q4_0 --after fuse
  refrain explain demo --after trace --dot
  refrain explain demo --summary
  refrain explain demo --prompt 64 --summary";

/// Show the compiled program of a decode step or prompt, and its cost
///
/// Prints the program after a compiler pass (by default the execution plan) and its cost per token, or for a whole
/// prompt: dispatches, dependency levels, barriers (including those at the ends of a recording), bytes, and the minimum
/// time to read those bytes. Without a GPU, or with --device null, it uses a simulated GPU with 1000 GB/s of bandwidth;
/// with --device cpu, it shows what the CPU executor computes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model
    model: String,
    /// Print the program after this pass: trace, or the name of a pass [default: the execution plan]
    #[arg(long, value_name = "PASS")]
    after: Option<String>,
    /// Context depth in tokens, for the size of the KV cache [default: 128, or 0 with --prompt]
    #[arg(short = 'd', long, value_name = "N")]
    depth: Option<u32>,
    /// Explain the processing of a prompt of N tokens, instead of a decode step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2048))]
    prompt: Option<u32>,
    /// Explain a decode step of a batch of N sequences
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), conflicts_with = "prompt")]
    batch: u32,
    /// Explain a step that verifies a draft of N tokens in each sequence
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_DRAFTS as i64), conflicts_with = "prompt")]
    drafts: Option<u32>,
    /// Print the program as a Graphviz graph
    #[arg(long, conflicts_with = "json")]
    dot: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Print only the cost
    #[arg(long)]
    summary: bool,
    /// Run some tokens and list the kinds of steps that are furthest from their bandwidth limit
    #[arg(long)]
    profile: bool,
    /// Write the profile as a Chrome trace, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", requires = "profile")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    decoding: DecodingArguments,
}

impl Arguments {
    /// The programs that are explained.
    fn programs(&self, model: &Model, context: usize) -> anyhow::Result<Programs> {
        let mut programs = Programs::new(model, context, self.batch as usize)?;
        if let Some(drafts) = self.drafts {
            programs.verify_drafts(drafts as usize)?;
        }
        Ok(programs)
    }
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let stages = passes::STAGE_NAMES;
    if let Some(pass) = arguments.after.as_deref().filter(|pass| !stages.contains(pass)) {
        let why = format!("unknown pass {pass:?}; the passes are {}", stages.join(", "));
        return Err(Usage(why).into());
    }
    let checkpoint = model::open(&arguments.model)?;
    let device = if arguments.profile {
        device::open_timed(global)?
    } else {
        device::open_for_plans(global)?
    };
    let target = ExplainTarget(arguments.prompt.map(|tokens| tokens as usize));
    let depth = arguments.depth.map_or(target.default_depth(), |depth| depth as usize);
    let context = (depth + target.0.unwrap_or(64)).min(checkpoint.config().max_position);
    let speculation = arguments.drafts.map_or(Speculation::Off, |_| Speculation::Mtp);
    let cache = CacheTypes::of_device(&device);
    let loaded = load::load_speculating(global, &checkpoint, &device, cache, context, speculation)?;
    let mut programs = arguments.programs(&loaded.model, context)?;
    // The default for --dot is the last graph, since a plan has no edges.
    let last = if arguments.dot { "write_through" } else { "schedule" };
    let after = arguments.after.as_deref().unwrap_or(last);
    let printed = target.printed(&mut programs, after)?;
    let (mode, choice) = arguments.decoding.executor(&loaded.model);
    let mode = target.0.map_or(mode.name(), |_| device.evaluator().name());
    let choice = choice.filter(|_| target.0.is_none());
    let profile = arguments.profile.then(|| target.profile(&mut programs, depth));
    let profile = profile.transpose()?;
    let function = target.function(&mut programs)?;
    if let (Some(path), Some(profile)) = (&arguments.trace, &profile) {
        AtomicFile::write(path, chrome_trace::events(function.plan(), profile).as_bytes())?;
    }
    if arguments.dot {
        return output::print(&graphviz::dot(&printed));
    }
    let bandwidth = bandwidth(global, arguments, &device)?;
    let cached = CachedTokens {
        sequences: arguments.batch as usize,
        depth,
    };
    let unfused = cost::unfused(function.plan()).into_iter();
    let unfused: Vec<String> = unfused.map(|(name, count)| format!("{count} × {name}")).collect();
    let summary = CostSummary {
        of: target.0.map_or("token", |_| "prompt"),
        cost: TokenCost::of(function.plan(), cached),
        layers: checkpoint.config().layers,
        bandwidth,
    };
    if arguments.json {
        return output::print_json(&json!({
            "model": arguments.model,
            "device": device.name(),
            "prompt": target.0,
            "batch": arguments.batch,
            "drafts": arguments.drafts,
            "depth": depth,
            "mode": mode,
            "measured": choice,
            "after": after,
            "program": printed.lines().collect::<Vec<_>>(),
            "unfused": unfused,
            "token": summary.json(),
            "steps": profile.as_ref().map(|profile| token_cost::steps_json(function.plan(), profile, cached, bandwidth)),
        }));
    }
    let mut text = String::new();
    if !arguments.summary && !arguments.profile {
        text.push_str(&printed);
        text.push('\n');
    }
    text.push_str(&summary.text());
    text.push_str(&format!("mode       {}\n", mode_line(mode, choice.as_ref())));
    if !unfused.is_empty() {
        text.push_str(&format!("unfused    {}\n", unfused.join(", ")));
    }
    if let Some(profile) = &profile {
        text.push_str(&profile::table(function.plan(), profile, cached, bandwidth));
    }
    output::print(&text)
}

/// What is explained: a decode step, or a prompt of some tokens.
#[derive(Clone, Copy)]
struct ExplainTarget(Option<usize>);

impl ExplainTarget {
    fn default_depth(self) -> usize {
        self.0.map_or(128, |_| 0)
    }

    fn printed(self, programs: &mut Programs, after: &str) -> Result<String, refrain_engine::Error> {
        match self.0 {
            Some(tokens) => programs.prefill_program(tokens, after),
            None => programs.decode_program(after),
        }
    }

    fn function(self, programs: &mut Programs) -> Result<&Function, refrain_engine::Error> {
        match self.0 {
            Some(tokens) => programs.prefill_function(tokens),
            None => programs.decode_function(),
        }
    }

    /// Measures the microseconds of each step.
    fn profile(self, programs: &mut Programs, depth: usize) -> Result<Vec<f64>, refrain_engine::Error> {
        match self.0 {
            Some(tokens) => programs.profile_prompt(tokens, depth),
            None => programs.profile_step(depth),
        }
    }
}

/// The device's read bandwidth in bytes per second.
fn bandwidth(global: &Global, arguments: &Arguments, device: &Device) -> anyhow::Result<f64> {
    if device::is_simulated(device) {
        return Ok(SIMULATED_BANDWIDTH);
    }
    if arguments.profile || device.is_cpu() {
        return Ok(speed::read_bandwidth(device)?);
    }
    // The device used for plans cannot be measured.
    Ok(speed::read_bandwidth(&device::open(global)?)?)
}

fn mode_line(mode: &str, choice: Option<&refrain_engine::ModeChoice>) -> String {
    match choice {
        Some(choice) => {
            let measured = choice.us.iter().map(|(name, us)| format!("{name} {us:.0} µs"));
            let measured = measured.collect::<Vec<_>>().join(", ");
            format!("{mode} (measured: {measured})")
        }
        None if mode == "cpu" => mode.to_owned(),
        None => format!("{mode} (not measured yet)"),
    }
}
