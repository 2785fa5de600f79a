//! `refrain stop`: ending servers.

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

/// How long servers take to end at most, and a little more.
const LONGEST: Duration = Duration::from_secs(35);

/// End servers that you run on this computer
///
/// Texts under way come to their ends, for half a minute at most; it waits for that.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Model, port, address or process, as `refrain ps` shows them [default: the only one]
    #[arg(conflicts_with = "all")]
    server: Option<String>,
    /// End all
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let mut servers = RunningServer::all();
    if let Some(name) = &arguments.server {
        servers.retain(|server| server.is_called(name));
    }
    match (servers.len(), &arguments.server) {
        (0, Some(name)) => bail!("no server of yours is called {name}; `refrain ps` shows those that run"),
        (0, None) => bail!("no server of yours runs on this computer"),
        (2.., None) if !arguments.all => {
            let why = "several servers run: name one, as `refrain ps` shows them, or end them with --all";
            return Err(Usage(why.to_owned()).into());
        }
        _ => {}
    }
    for server in &servers {
        refrain_formats::ask_to_end(server.process)
            .with_context(|| format!("cannot end process {}", server.process))?;
    }
    let begin = Instant::now();
    for server in &servers {
        while server.is_running() {
            if begin.elapsed() > LONGEST {
                bail!("process {} has not ended yet", server.process);
            }
            thread::sleep(Duration::from_millis(20));
        }
        if !global.quiet {
            output::complain(&format!("stopped {} at {}", server.model, server.address));
        }
    }
    Ok(())
}
