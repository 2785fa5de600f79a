//! The `refrain` command: LLM inference on any Vulkan GPU, or on the CPU.

mod cache_args;
mod commands;
mod decoding;
mod device;
mod draft;
mod drivers;
mod error_hints;
mod fit;
mod generation_args;
mod help;
mod host;
mod hub;
mod hyphen_text;
mod input;
mod interrupt;
mod load;
mod markdown;
mod memory;
mod metrics;
mod model;
mod output;
mod response;
mod sampling;
mod servers;
mod speculation_args;
mod suggestions;
mod value_parsers;
mod version;

use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use commands::{
    bench, chat, completions, convert, devices, doctor, eval, explain, inspect, launch, list, logits, man, plan_check,
    ps, pull, rm, run, serve, soak, stop, synth, template, tokenize, top,
};

/// Run large language models on any Vulkan GPU, or on the CPU.
///
/// MODEL is one of: a directory in Hugging Face format (config.json, safetensors, tokenizer.json;
/// full precision or quantised by MLX), a .gguf file, a repository on the Hugging Face hub (ORG/NAME,
/// or ORG/NAME:QUANT to pick one of several GGUF files), `demo` (a small built-in model), or
/// `synthetic:ARCH:FORMAT` (random weights in the shape of a real model, for benchmarks).
#[derive(Debug, Parser)]
#[command(name = "refrain", version = version::SHORT, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: CliCommand,
}

/// Options that every command accepts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Device to run on: a number or part of a name from `refrain devices`, `gpu` or `cpu`
    #[arg(long, global = true, env = "REFRAIN_DEVICE", value_name = "N|NAME|gpu|cpu")]
    pub device: Option<String>,
    /// Disable a device feature, such as float16 (may be repeated; REFRAIN_DISABLE takes a comma-separated list)
    #[arg(
        long,
        global = true,
        env = "REFRAIN_DISABLE",
        value_delimiter = ',',
        value_name = "FEATURE"
    )]
    pub disable: Vec<String>,
    /// Read kernel tuning parameters from a file of NAME = VALUE lines, overriding the built-in table
    #[arg(long, global = true, env = "REFRAIN_TUNING", value_name = "FILE")]
    pub tuning: Option<PathBuf>,
    /// Make no network requests (same as HF_HUB_OFFLINE=1); downloaded models still work
    #[arg(long, global = true)]
    pub offline: bool,
    /// Print only errors to standard error
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more details to standard error
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Generate text from a prompt
    Run(run::Arguments),
    Chat(chat::Arguments),
    Serve(serve::Arguments),
    Launch(launch::Arguments),
    /// List your running servers
    Ps(ps::Arguments),
    Stop(stop::Arguments),
    Top(top::Arguments),
    /// Download a model from the Hugging Face hub
    Pull(pull::Arguments),
    /// List downloaded models
    #[command(visible_alias = "ls")]
    List(list::Arguments),
    /// Remove downloaded models
    Rm(rm::Arguments),
    /// List devices, and show which one is selected and why
    Devices(devices::Arguments),
    Doctor(doctor::Arguments),
    /// Show a model's architecture and tensors, and whether it fits the device
    Inspect(inspect::Arguments),
    /// Convert text to token ids
    Tokenize(tokenize::Arguments),
    /// Render messages with a model's chat template
    Template(template::Arguments),
    /// Compute logits for every position of given token sequences
    Logits(logits::Arguments),
    /// Measure perplexity, or the KL divergence from another model
    Eval(eval::Arguments),
    /// Convert or quantise a model to another format
    Convert(convert::Arguments),
    /// Write a model with random weights in the shape of a real one
    Synth(synth::Arguments),
    PlanCheck(plan_check::Arguments),
    Bench(bench::Arguments),
    Explain(explain::Arguments),
    Soak(soak::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// A usage error: the arguments are invalid. The program exits with code 2.
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
    refrain_formats::report_truncated_files();
    let mut command = command();
    let arguments = suggestions::normalise_arguments(std::env::args_os().collect());
    let arguments = hyphen_text::mark_texts(arguments, |name, letter| takes_value(&command, name, letter));
    // Probing the drivers takes time, so only `--version` does it.
    if arguments.iter().any(|argument| argument == "--version") {
        command = command.long_version(version::long());
    }
    let parsed = command
        .try_get_matches_from(arguments)
        .and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return print_clap_error(&error),
    };
    match std::panic::catch_unwind(|| dispatch(&cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => report_error(&error),
        Err(_) => ExitCode::FAILURE,
    }
}

/// The clap definition of the command line.
pub(crate) fn command() -> clap::Command {
    // A negative number is parsed as a value and rejected as such, not as an unknown option.
    let takes_numbers = |argument: clap::Arg| {
        if argument.get_action().takes_values() {
            argument.allow_negative_numbers(true)
        } else {
            argument
        }
    };
    help::with_layout(Cli::command().mut_subcommands(|command| command.mut_args(takes_numbers)))
}

/// Whether a subcommand has a one-letter option of this name that takes a value.
fn takes_value(command: &clap::Command, subcommand: &str, letter: char) -> bool {
    let mut arguments = command
        .find_subcommand(subcommand)
        .into_iter()
        .flat_map(clap::Command::get_arguments);
    arguments.any(|argument| argument.get_short() == Some(letter) && argument.get_action().takes_values())
}

fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    let global = &cli.global;
    match &cli.command {
        CliCommand::Run(arguments) => return run::run(global, arguments),
        CliCommand::Chat(arguments) => return chat::run(global, arguments),
        CliCommand::Doctor(arguments) => return doctor::run(global, arguments),
        CliCommand::Launch(arguments) => return launch::run(global, arguments),
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

/// Prints help, the version or a usage error, and returns the exit code.
fn print_clap_error(error: &clap::Error) -> ExitCode {
    if let Some(suggestion) = suggestions::for_error(error) {
        return report_error(&Usage(suggestion).into());
    }
    match output::check_written(error.print()) {
        Err(failure) if !error.use_stderr() => report_error(&failure),
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

/// Prints an error and returns the exit code. Only the outermost message is shown, because the messages of this
/// workspace already include their causes.
fn report_error(error: &anyhow::Error) -> ExitCode {
    if error.is::<output::StdoutClosed>() {
        return ExitCode::SUCCESS;
    }
    output::eprint_line(&format!("error: {}", error_hints::with_hints(error)));
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}

fn report_bug(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let location = panic
        .location()
        .map_or(String::new(), |location| format!(" at {location}"));
    output::eprint_line(&format!(
        "error: refrain has a bug: {message}{location}; please report it with the command you ran"
    ));
}
