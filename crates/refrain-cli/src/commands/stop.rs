//! `refrain stop`: stops the user's running servers.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;

use crate::output;
use crate::servers::RunningServer;
use crate::{Global, Usage};

const EXAMPLES: &str = "Examples:
  refrain stop
  refrain stop demo
  refrain stop 8080
  refrain stop --all";

/// Time limit for servers to shut down; they allow 30 s for running requests.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(35);

/// Stop your running servers
///
/// Running requests may finish, for up to half a minute; the command waits for that.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Model, port, address or process id as listed by `refrain ps` [default: the only running server]
    #[arg(conflicts_with = "all")]
    server: Option<String>,
    /// Stop all of them
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let mut servers = RunningServer::all();
    if let Some(name) = &arguments.server {
        servers.retain(|server| server.matches_name(name));
    }
    match (servers.len(), &arguments.server) {
        (0, Some(name)) => bail!("server not found: {name}; `refrain ps` lists your running servers"),
        (0, None) => bail!("no server is running"),
        (2.., None) if !arguments.all => {
            let why = "several servers are running: name one as listed by `refrain ps`, or stop all with --all";
            return Err(Usage(why.to_owned()).into());
        }
        _ => {}
    }
    for server in &servers {
        refrain_formats::terminate_process(server.process)
            .with_context(|| format!("cannot stop process {}", server.process))?;
    }
    let begin = Instant::now();
    for server in &servers {
        while server.is_running() {
            if begin.elapsed() > SHUTDOWN_TIMEOUT {
                bail!("process {} is still shutting down", server.process);
            }
            thread::sleep(Duration::from_millis(20));
        }
        if !global.quiet {
            output::eprint_line(&format!("stopped {} at {}", server.model, server.address));
        }
    }
    Ok(())
}
