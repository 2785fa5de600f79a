//! `refrain explain`: what becomes of a model's decode step on its way to the device.

mod floor;
mod graph;
mod kinds;
mod trace;

use std::path::PathBuf;

use clap::Args;
use refrain::speed;
use refrain::{Device, Function, passes};
use refrain_engine::Session;
use refrain_engine::cost::{self, Remembered, TokenCost};
use refrain_formats::WholeFile;
use serde_json::json;

use crate::decoding::DecodingArguments;
use crate::{Global, Usage, device, load, model, output};
use floor::Summary;

/// Bytes per second that a card reads where there is none.
const MADE_UP_BANDWIDTH: f64 = 1e12;

const EXAMPLES: &str = "Examples:
  refrain explain demo
  refrain explain synthetic:tiny:q4_0 --after fuse
  refrain explain demo --after trace --dot
  refrain explain demo --summary
  refrain explain demo --prompt 64 --summary";

/// Print what a decode step, or a prompt, becomes on its way to the device
///
/// Prints what a decode step becomes after a pass, by default the plan, with what one token costs (of a prompt, its
/// tokens together):
/// dispatches, levels, barriers (those at the ends of a recording too), bytes, and the time that reading
/// those bytes takes at least. Where there is no GPU, or with --device null, it prints what a made-up card
/// that reads 1000 GB/s would be given; with --device cpu, what the CPU executor computes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model
    model: String,
    /// Print the program after this pass: trace, or one of the passes [default: the plan]
    #[arg(long, value_name = "PASS")]
    after: Option<String>,
    /// Tokens that the context holds, for the bytes of keys and values [default: 128, for a prompt 0]
    #[arg(short = 'd', long, value_name = "N")]
    depth: Option<u32>,
    /// What takes in N tokens of a prompt, instead of a decode step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2048))]
    prompt: Option<u32>,
    /// The decode step of N sequences together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), conflicts_with = "prompt")]
    batch: u32,
    /// Write the program as a graph for Graphviz
    #[arg(long, conflicts_with = "json")]
    dot: bool,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
    /// Only what one token costs
    #[arg(long)]
    summary: bool,
    /// Run some tokens and tell which kinds of steps lose most time against their floor
    #[arg(long)]
    profile: bool,
    /// Write the profile as a Chrome trace, which Perfetto opens
    #[arg(long, value_name = "FILE", requires = "profile")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    decoding: DecodingArguments,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let stages = passes::NAMES;
    if let Some(pass) = arguments.after.as_deref().filter(|pass| !stages.contains(pass)) {
        let why = format!("there is no pass {pass:?}; there are {}", stages.join(", "));
        return Err(Usage(why).into());
    }
    let checkpoint = model::open(&arguments.model)?;
    let device = if arguments.profile {
        device::open_timed(global)?
    } else {
        device::open_for_plans(global)?
    };
    let subject = Subject(arguments.prompt.map(|tokens| tokens as usize));
    let depth = arguments.depth.map_or(subject.usual_depth(), |depth| depth as usize);
    let context = (depth + subject.0.unwrap_or(64)).min(checkpoint.config().max_position);
    let loaded = load::load(global, &checkpoint, &device, context)?;
    let mut session = Session::several(&loaded.model, context, arguments.batch as usize)?;
    arguments.decoding.apply(&mut session);
    // A plan has no edges to draw.
    let last = if arguments.dot { "write_through" } else { "schedule" };
    let after = arguments.after.as_deref().unwrap_or(last);
    let printed = subject.printed(&mut session, after)?;
    let (mode, choice) = session.mode();
    let mode = subject.0.map_or(mode.name(), |_| device.evaluator().name());
    let choice = choice.filter(|_| subject.0.is_none());
    let profile = if arguments.profile {
        Some(subject.profile(&mut session, depth)?)
    } else {
        None
    };
    let function = subject.function(&mut session)?;
    if let (Some(path), Some(profile)) = (&arguments.trace, &profile) {
        WholeFile::write(path, trace::chrome(function.plan(), profile).as_bytes())?;
    }
    if arguments.dot {
        return output::print(&graph::dot(&printed));
    }
    let bandwidth = bandwidth(global, arguments, &device)?;
    let remembered = Remembered {
        sequences: arguments.batch as usize,
        depth,
    };
    let unfused = cost::unfused(function.plan()).into_iter();
    let unfused: Vec<String> = unfused.map(|(name, count)| format!("{count} × {name}")).collect();
    let summary = Summary {
        of: subject.0.map_or("token", |_| "prompt"),
        cost: TokenCost::of(function.plan(), remembered),
        layers: checkpoint.config().layers,
        bandwidth,
    };
    if arguments.json {
        return output::print_json(&json!({
            "model": arguments.model,
            "device": device.name(),
            "prompt": subject.0,
            "batch": arguments.batch,
            "depth": depth,
            "mode": mode,
            "measured": choice,
            "after": after,
            "program": printed.lines().collect::<Vec<_>>(),
            "unfused": unfused,
            "token": summary.json(),
            "steps": profile.as_ref().map(|profile| floor::json(function.plan(), profile, remembered, bandwidth)),
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
        text.push_str(&kinds::table(function.plan(), profile, remembered, bandwidth));
    }
    output::print(&text)
}

/// A decode step, or what takes in so many tokens of a prompt.
#[derive(Clone, Copy)]
struct Subject(Option<usize>);

impl Subject {
    fn usual_depth(self) -> usize {
        self.0.map_or(128, |_| 0)
    }

    fn printed(self, session: &mut Session, after: &str) -> Result<String, refrain_engine::Error> {
        match self.0 {
            Some(tokens) => session.prefill_program(tokens, after),
            None => session.decode_program(after),
        }
    }

    fn function(self, session: &mut Session) -> Result<&Function, refrain_engine::Error> {
        match self.0 {
            Some(tokens) => session.prefill_function(tokens),
            None => session.decode_function(),
        }
    }

    /// Microseconds of each step.
    fn profile(self, session: &mut Session, depth: usize) -> Result<Vec<f64>, refrain_engine::Error> {
        match self.0 {
            Some(tokens) => session.profile_prompt(tokens, depth),
            None => session.profile_at(depth),
        }
    }
}

/// Bytes per second that the device reads.
fn bandwidth(global: &Global, arguments: &Arguments, device: &Device) -> anyhow::Result<f64> {
    Ok(
        match (device::is_made_up(device), arguments.profile || device.is_cpu()) {
            (true, _) => MADE_UP_BANDWIDTH,
            (false, true) => speed::read_bandwidth(device)?,
            // The device that stands for it while there are only plans to be made reads nothing.
            (false, false) => speed::read_bandwidth(&device::open(global)?)?,
        },
    )
}

fn mode_line(mode: &str, choice: Option<&refrain_engine::ModeChoice>) -> String {
    match choice {
        Some(choice) => {
            let measured = choice.us.iter().map(|(name, us)| format!("{name} {us:.0} µs"));
            let measured = measured.collect::<Vec<_>>().join(", ");
            format!("{mode}: measured on earlier tokens, {measured}")
        }
        None if mode == "cpu" => mode.to_owned(),
        None => format!("{mode}: nothing was measured yet"),
    }
}
