//! `refrain launch`: starts a coding agent that uses a local server.

mod agent;
mod server;

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Args;

use crate::{Global, interrupt, output};

use agent::{Agent, AgentSetup, ServedEndpoint};
use server::ServerChoice;

const EXAMPLES: &str = "Examples:
  refrain launch claude
  refrain launch codex Qwen/Qwen3-8B
  refrain launch opencode model.gguf --ctx 32768
  refrain launch qwen --print
  refrain launch claude Qwen/Qwen3-8B -- -p \"explain this repository\"";

/// Start a coding agent that uses a local server
///
/// Sets the agent's environment so that it uses a running server of yours, or one that is started for it and stopped
/// with it. The agent's own settings are not changed. The agent must be installed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The agent
    #[arg(value_enum)]
    agent: Agent,
    /// The model: one that is served, or one to serve [default: that of the last server started]
    model: Option<String>,
    /// Print what would be done, as shell commands
    #[arg(long)]
    print: bool,
    /// Context length of a server that is started, in tokens [default: 65536, or the model's limit]
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    ctx: Option<u32>,
    /// API key of the running server
    #[arg(long, value_name = "KEY", env = "REFRAIN_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Arguments for the agent
    #[arg(last = true, value_name = "ARGUMENT")]
    agent_arguments: Vec<OsString>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let choice = ServerChoice::find(global, arguments)?;
    if arguments.print {
        let setup = arguments.setup(&choice.expected_endpoint(arguments));
        let mut text = choice.shell_lines(global);
        text.push_str(&setup.shell_lines(&arguments.agent_arguments));
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let program = arguments.agent.program();
    if !is_installed(program) {
        let install = arguments.agent.installation();
        anyhow::bail!("{program} is not installed; see {install}");
    }
    // The agent handles Ctrl-C itself.
    let _deferred = interrupt::defer()?;
    let server = choice.start(global, arguments)?;
    if let Some(warning) = server.endpoint.context_warning()
        && !global.quiet
    {
        output::eprint_line(&format!("warning: {warning}"));
    }
    let setup = arguments.setup(&server.endpoint);
    let mut command = Command::new(program);
    command.args(&setup.arguments).args(&arguments.agent_arguments);
    command.envs(setup.environment.iter().map(|(name, value)| (name, value)));
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    drop(server);
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

impl Arguments {
    fn setup(&self, endpoint: &ServedEndpoint) -> AgentSetup {
        self.agent.setup(endpoint, self.api_key.as_deref())
    }
}

/// Whether a program is in one of the directories of `PATH`.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let endings: &[&str] = if cfg!(windows) { &["", ".exe", ".cmd"] } else { &[""] };
    let mut folders = std::env::split_paths(&path);
    folders.any(|folder| {
        endings
            .iter()
            .any(|ending| folder.join(format!("{program}{ending}")).is_file())
    })
}
