//! `refrain ps`: lists the user's running servers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};

use crate::output::{self, human_age};
use crate::servers::RunningServer;

const EXAMPLES: &str = "Examples:
  refrain ps
  refrain ps --json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let servers = RunningServer::all();
    if arguments.json {
        return output::print_json(&Value::Array(servers.iter().map(as_json).collect()));
    }
    output::print(&as_text(&servers))
}

fn as_json(server: &RunningServer) -> Value {
    json!({
        "process": server.process,
        "model": server.model,
        "address": server.address,
        "since_unix_s": server.since_unix_s,
    })
}

fn as_text(servers: &[RunningServer]) -> String {
    if servers.is_empty() {
        return "no server is running; start one with `refrain serve MODEL`\n".to_owned();
    }
    let now = SystemTime::now();
    let age = |server: &RunningServer| {
        let begin = UNIX_EPOCH + Duration::from_secs(server.since_unix_s);
        human_age(now.duration_since(begin).map_or(0, |age| age.as_secs()))
    };
    let header = ["PID", "MODEL", "ADDRESS", "STARTED"].map(str::to_owned);
    let row = |server: &RunningServer| {
        [
            server.process.to_string(),
            output::escape_control(&server.model).into(),
            output::escape_control(&server.address).into(),
            age(server),
        ]
    };
    let rows: Vec<[String; 4]> = std::iter::once(header).chain(servers.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (process, model, address) = (width(0), width(1), width(2));
    let line = |[a, b, c, d]: &[String; 4]| format!("{a:<process$}  {b:<model$}  {c:<address$}  {d}\n");
    rows.iter().map(line).collect()
}
