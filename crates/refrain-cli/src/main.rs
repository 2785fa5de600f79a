//! The refrain program: language models on any Vulkan GPU, or on the CPU.

mod advice;
mod answer;
mod asking;
mod commands;
mod decoding;
mod demo;
mod device;
mod drivers;
mod figures;
mod fit;
mod help;
mod host;
mod hub;
mod input;
mod interrupt;
mod load;
mod markdown;
mod memory;
mod model;
mod numbers;
mod output;
mod sampling;
mod servers;
mod version;
mod words;

use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use commands::{
    bench, chat, completions, convert, devices, doctor, eval, explain, inspect, list, logits, man, plan_check, ps,
    pull, rm, run, serve, soak, stop, synth, template, tokenize, top,
};

/// Language models on any Vulkan GPU, or on the CPU.
///
/// A MODEL is a directory as Hugging Face publishes it (config.json, safetensors, tokenizer.json;
/// plain or quantised by MLX), a .gguf file, a name on the Hugging Face hub (ORG/NAME or, of several
/// GGUF files, ORG/NAME:QUANT), `demo` (a small model inside the program), or `synthetic:ARCH:FORMAT`
/// (random weights of a real shape, for measurements).
#[derive(Debug, Parser)]
#[command(name = "refrain", version = version::SHORT, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: CliCommand,
}

/// What every command understands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Device to use: its number or part of its name as `refrain devices` lists it, `gpu` or `cpu`
    #[arg(long, global = true, env = "REFRAIN_DEVICE", value_name = "N|NAME|gpu|cpu")]
    pub device: Option<String>,
    /// Leave a feature of the device unused (may be repeated; REFRAIN_DISABLE takes a list)
    #[arg(
        long,
        global = true,
        env = "REFRAIN_DISABLE",
        value_delimiter = ',',
        value_name = "FEATURE"
    )]
    pub disable: Vec<String>,
    /// Sizes of kernels for this device, one NAME = VALUE a line, in place of those of the table
    #[arg(long, global = true, env = "REFRAIN_TUNING", value_name = "FILE")]
    pub tuning: Option<PathBuf>,
    /// Make no network request (as with HF_HUB_OFFLINE=1); models that were downloaded before are found
    #[arg(long, global = true)]
    pub offline: bool,
    /// Write nothing to standard error but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more on standard error
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Generate text
    Run(run::Arguments),
    Chat(chat::Arguments),
    Serve(serve::Arguments),
    /// List the servers that you run on this computer
    Ps(ps::Arguments),
    Stop(stop::Arguments),
    Top(top::Arguments),
    /// Download a model from the Hugging Face hub
    Pull(pull::Arguments),
    /// List the models that have been downloaded
    #[command(visible_alias = "ls")]
    List(list::Arguments),
    /// Remove models that have been downloaded
    Rm(rm::Arguments),
    /// List the devices, and which one is chosen and why
    Devices(devices::Arguments),
    Doctor(doctor::Arguments),
    /// Describe a checkpoint, and how it fits this device
    Inspect(inspect::Arguments),
    /// Turn text into token ids, one JSON list on standard output
    Tokenize(tokenize::Arguments),
    /// Render a conversation by the model's chat template
    Template(template::Arguments),
    /// Compute the logits of given tokens at all positions
    Logits(logits::Arguments),
    /// Measure how well a model predicts a text, or how far it is from another
    Eval(eval::Arguments),
    /// Convert a checkpoint to another format
    Convert(convert::Arguments),
    /// Write a checkpoint of random weights in a real model's shape
    Synth(synth::Arguments),
    PlanCheck(plan_check::Arguments),
    Bench(bench::Arguments),
    Explain(explain::Arguments),
    Soak(soak::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// The command line asks for what cannot be meant; the program exits with 2.
#[derive(Debug)]
pub(crate) struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_bug));
    refrain_formats::say_when_files_are_cut_short();
    let mut command = command();
    let arguments = words::meant(std::env::args_os().collect());
    // Asking for drivers takes time, so only who wants to know waits for it.
    if arguments.iter().any(|argument| argument == "--version") {
        command = command.long_version(version::long());
    }
    let parsed = command
        .try_get_matches_from(arguments)
        .and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(answer) => return say(&answer),
    };
    match std::panic::catch_unwind(|| dispatch(&cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => report(&error),
        Err(_) => ExitCode::FAILURE,
    }
}

/// The command line as clap knows it.
pub(crate) fn command() -> clap::Command {
    // A negative number is a value, to be refused as one, and not the name of an option.
    let takes_numbers = |argument: clap::Arg| {
        if argument.get_action().takes_values() {
            argument.allow_negative_numbers(true)
        } else {
            argument
        }
    };
    help::laid_out(Cli::command().mut_subcommands(|command| command.mut_args(takes_numbers)))
}

fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    let global = &cli.global;
    match &cli.command {
        CliCommand::Run(arguments) => return run::run(global, arguments),
        CliCommand::Chat(arguments) => return chat::run(global, arguments),
        CliCommand::Doctor(arguments) => return doctor::run(global, arguments),
        CliCommand::Convert(arguments) => return convert::run(global, arguments),
        CliCommand::Synth(arguments) => return synth::run(global, arguments),
        CliCommand::Logits(arguments) => return logits::run(global, arguments),
        CliCommand::Serve(arguments) => serve::run(global, arguments)?,
        CliCommand::Ps(arguments) => ps::run(arguments)?,
        CliCommand::Stop(arguments) => stop::run(global, arguments)?,
        CliCommand::Top(arguments) => top::run(arguments)?,
        CliCommand::Soak(arguments) => return soak::run(global, arguments),
        CliCommand::Pull(arguments) => pull::run(global, arguments)?,
        CliCommand::List(arguments) => list::run(global, arguments)?,
        CliCommand::Rm(arguments) => rm::run(global, arguments)?,
        CliCommand::Devices(arguments) => devices::run(global, arguments)?,
        CliCommand::Inspect(arguments) => inspect::run(global, arguments)?,
        CliCommand::Tokenize(arguments) => tokenize::run(arguments)?,
        CliCommand::Template(arguments) => template::run(arguments)?,
        CliCommand::Eval(arguments) => eval::run(global, arguments)?,
        CliCommand::PlanCheck(arguments) => plan_check::run(global, arguments)?,
        CliCommand::Bench(arguments) => bench::run(global, arguments)?,
        CliCommand::Explain(arguments) => explain::run(global, arguments)?,
        CliCommand::Completions(arguments) => completions::run(arguments)?,
        CliCommand::Man(arguments) => man::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what the command line calls for instead of a command: help, the version, or what is wrong with it.
fn say(answer: &clap::Error) -> ExitCode {
    if let Some(advice) = words::instead(answer) {
        return report(&Usage(advice).into());
    }
    match output::told(answer.print()) {
        Err(error) if !answer.use_stderr() => report(&error),
        _ => ExitCode::from(answer.exit_code() as u8),
    }
}

/// Says what went wrong and picks the exit code. Only the outermost message is shown: the messages
/// of this workspace already contain what their causes say.
fn report(error: &anyhow::Error) -> ExitCode {
    if error.is::<output::Closed>() {
        return ExitCode::SUCCESS;
    }
    output::complain(&format!("error: {}", advice::told(error)));
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}

fn report_bug(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let what = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let place = panic.location().map_or(String::new(), |place| format!(" at {place}"));
    output::complain(&format!(
        "error: refrain has a bug: {what}{place}; please report it with the command that you ran"
    ));
}
