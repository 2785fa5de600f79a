//! `refrain top`: live metrics of running servers.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use console::Term;
use refrain_server::HttpClient;
use serde_json::{Value, json};

use crate::interrupt;
use crate::metrics::{self, ModelLoad, ModelMetrics};
use crate::output::{self, human_rate, human_seconds};
use crate::servers::RunningServer;

const EXAMPLES: &str = "Examples:
  refrain top
  refrain top demo --once
  refrain top http://127.0.0.1:8080 --json";

/// Time limit for a server's reply.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks for Ctrl-C.
const CTRL_C_INTERVAL: Duration = Duration::from_millis(50);

/// Show live metrics of running servers
///
/// For each model: running and waiting requests, KV cache usage, generated and prompt tokens per second, mean time to
/// first token (TTFT), memory bandwidth spent on reading weights, and prefix cache hit rate. On a terminal, the table
/// refreshes every second until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Model, port, address or process id as listed by `refrain ps`, or the address of another server
    /// such as http://HOST:PORT [default: all your running servers]
    server: Option<String>,
    /// Print one sample and exit
    #[arg(long)]
    once: bool,
    /// Print one sample as a JSON array and exit
    #[arg(long)]
    json: bool,
    /// Seconds between samples
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Certificate of an HTTPS server; not needed for your own servers on this computer
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// API key of the server
    #[arg(long, value_name = "KEY", env = "REFRAIN_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let targets = arguments.targets()?;
    if targets.is_empty() {
        return if arguments.json {
            output::print_json(&json!([]))
        } else {
            output::print("no server is running; start one with `refrain serve MODEL`\n")
        };
    }
    let _deferred = interrupt::defer()?;
    let mut poller = MetricsPoller::default();
    poller.poll(&targets);
    if arguments.once || arguments.json || !std::io::stdout().is_terminal() {
        arguments.wait();
        let rows = poller.poll(&targets);
        let failed = all_failed(&rows);
        if arguments.json {
            output::print_json(&rows.iter().map(Row::json).collect())?;
        } else if failed.is_none() {
            output::print(&as_text(&rows))?;
        }
        return failed.map_or(Ok(()), |why| Err(anyhow::anyhow!(why)));
    }
    let (terminal, mut drawn) = (Term::stdout(), 0);
    while !interrupt::requested() {
        arguments.wait();
        // Servers may start and stop at any time.
        let rows = poller.poll(&arguments.targets().unwrap_or_default());
        let (height, width) = terminal.size();
        let text = fit_to_terminal(&as_text(&rows), height as usize, width as usize);
        output::check_written(terminal.clear_last_lines(drawn))?;
        output::print(&text)?;
        drawn = text.lines().count();
    }
    Ok(())
}

/// Returns what the servers' errors are if none of them answered.
fn all_failed(rows: &[Row]) -> Option<String> {
    let error = |row: &Row| Some(format!("{}: {}", row.address, row.state.as_ref().err()?));
    let errors: Option<Vec<String>> = rows.iter().map(error).collect();
    errors
        .filter(|errors| !errors.is_empty())
        .map(|errors| errors.join("; "))
}

impl Arguments {
    /// Resolves the servers to poll.
    fn targets(&self) -> anyhow::Result<Vec<ServerTarget>> {
        let target = |address: String, certificate: Option<PathBuf>| {
            let client = HttpClient {
                key: self.api_key.clone(),
                certificate: self.tls_cert.clone().or(certificate),
                timeout: REQUEST_TIMEOUT,
            };
            ServerTarget { address, client }
        };
        let servers = RunningServer::all().into_iter();
        let name = self.server.as_ref();
        let named = servers.filter(|server| name.is_none_or(|name| server.matches_name(name)));
        let named: Vec<ServerTarget> = named.map(|server| target(server.address, server.certificate)).collect();
        let Some(name) = name else { return Ok(named) };
        let is_address = name.contains("://") || name.starts_with("unix:");
        match (named.is_empty(), is_address) {
            (false, _) => Ok(named),
            (true, true) => Ok(vec![target(name.clone(), None)]),
            (true, false) => bail!("server not found: {name}; `refrain ps` lists your running servers"),
        }
    }

    /// Sleeps until the next sample is due, or Ctrl-C.
    fn wait(&self) {
        let begin = Instant::now();
        let interval = Duration::from_secs_f64(self.interval);
        while !interrupt::requested() && begin.elapsed() < interval {
            thread::sleep(CTRL_C_INTERVAL.min(interval.saturating_sub(begin.elapsed())));
        }
    }
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "not a number from 0.1 to 3600".to_owned())
}

/// A server to poll.
struct ServerTarget {
    address: String,
    client: HttpClient,
}

/// The last sample of each server's metrics, by address.
#[derive(Default)]
struct MetricsPoller(BTreeMap<String, (Instant, BTreeMap<String, ModelMetrics>)>);

impl MetricsPoller {
    /// Polls all servers and returns their load since the last poll.
    fn poll(&mut self, targets: &[ServerTarget]) -> Vec<Row> {
        let mut rows = vec![];
        for ServerTarget { address, client } in targets {
            let row = |model, state| Row {
                address: address.clone(),
                model,
                state,
            };
            match fetch_metrics(address, client) {
                Err(why) => rows.push(row(String::new(), Err(why))),
                Ok(models) => {
                    let now = Instant::now();
                    let before = self.0.insert(address.clone(), (now, models.clone()));
                    let (then, before) = before.unwrap_or_else(|| (now, models.clone()));
                    for (name, current) in models {
                        let earlier = before.get(&name).unwrap_or(&current);
                        let load = ModelLoad::between(earlier, &current, now - then);
                        rows.push(row(name, Ok(load)));
                    }
                }
            }
        }
        rows
    }
}

/// Fetches a server's metrics by model, or says why it cannot.
fn fetch_metrics(address: &str, client: &HttpClient) -> Result<BTreeMap<String, ModelMetrics>, String> {
    if address.starts_with("https://") && client.certificate.is_none() {
        return Err("HTTPS server: pass its certificate with --tls-cert FILE".to_owned());
    }
    match client.get(address, "/metrics") {
        Ok((200, text)) => match metrics::parse(&text) {
            models if models.is_empty() => Err("/metrics lists no model".to_owned()),
            models => Ok(models),
        },
        Ok((401, _)) => Err("API key required: --api-key KEY".to_owned()),
        Ok((status, _)) => Err(format!("/metrics returned status {status}")),
        Err(why) => Err(format!("cannot connect: {why}")),
    }
}

/// A row of the table: a model's load, or a server's error.
struct Row {
    address: String,
    model: String,
    state: Result<ModelLoad, String>,
}

impl Row {
    fn json(&self) -> Value {
        match &self.state {
            Err(why) => json!({"address": self.address, "error": why}),
            Ok(load) => json!({
                "address": self.address,
                "model": self.model,
                "running": load.running,
                "waiting": load.waiting,
                "cache_use": load.cache_use,
                "tokens_per_s": load.tokens_per_s,
                "prompt_tokens_per_s": load.prompt_tokens_per_s,
                "first_token_s": load.first_token_s,
                "bandwidth_use": load.bandwidth_use,
                "found_in_cache": load.cache_hit_rate,
            }),
        }
    }

    /// The table's cells, or the error.
    fn columns(&self) -> Result<[String; COLUMNS], String> {
        let load = self.state.clone()?;
        let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
        Ok([
            output::escape_control(&self.model).into(),
            output::escape_control(&self.address).into(),
            load.running.to_string(),
            load.waiting.to_string(),
            percent(load.cache_use),
            human_rate(load.tokens_per_s),
            human_rate(load.prompt_tokens_per_s),
            load.first_token_s.map_or("-".to_owned(), human_seconds),
            percent(load.bandwidth_use),
            percent(load.cache_hit_rate),
        ])
    }
}

const COLUMNS: usize = 10;
/// Columns of text; those of numbers follow.
const LEFT_ALIGNED: usize = 2;
const HEADER: [&str; COLUMNS] = [
    "MODEL",
    "ADDRESS",
    "RUNNING",
    "WAITING",
    "KV CACHE",
    "GEN TOK/S",
    "PROMPT TOK/S",
    "TTFT",
    "BANDWIDTH",
    "CACHE HITS",
];

fn as_text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no server is running any more\n".to_owned();
    }
    let cells: Vec<_> = rows.iter().map(|row| (row, row.columns())).collect();
    let table: Vec<[String; COLUMNS]> = std::iter::once(HEADER.map(str::to_owned))
        .chain(cells.iter().filter_map(|(_, columns)| columns.clone().ok()))
        .collect();
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |columns: &[String; COLUMNS]| {
        let cell = |(at, text): (usize, &String)| {
            let width = widths[at];
            if at < LEFT_ALIGNED {
                format!("{text:<width$}")
            } else {
                format!("{text:>width$}")
            }
        };
        let cells: Vec<String> = columns.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = String::new();
    if table.len() > 1 {
        text += &line(&table[0]);
    }
    for (row, columns) in &cells {
        match columns {
            Ok(columns) => text += &line(columns),
            Err(why) => {
                text += &format!(
                    "{}: {}\n",
                    output::escape_control(&row.address),
                    output::escape_control(why)
                )
            }
        }
    }
    text
}

/// Cuts a text to the size of the terminal: lines that scroll away cannot be redrawn.
fn fit_to_terminal(text: &str, height: usize, width: usize) -> String {
    let lines = text.lines().take(height.saturating_sub(1).max(1));
    let short = |line: &str| line.chars().take(width.saturating_sub(1).max(1)).collect::<String>() + "\n";
    lines.map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns_and_shows_errors_of_servers() {
        let load = ModelLoad {
            running: 2,
            waiting: 10,
            cache_use: Some(0.256),
            cache_hit_rate: None,
            tokens_per_s: 123.4,
            prompt_tokens_per_s: 0.0,
            first_token_s: Some(0.085),
            bandwidth_use: None,
        };
        let row = |model: &str, state| Row {
            address: "http://127.0.0.1:8080".to_owned(),
            model: model.to_owned(),
            state,
        };
        let rows = [row("m\x1b[2J", Ok(load)), row("", Err("API key required".to_owned()))];
        let text = as_text(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let end = |line: &str, word: &str| line.find(word).expect(line) + word.len();
        assert_eq!(end(lines[0], "GEN TOK/S"), end(lines[1], "123"), "{text}");
        assert_eq!(end(lines[0], "KV CACHE"), end(lines[1], "26 %"), "{text}");
        assert_eq!(lines[2], "http://127.0.0.1:8080: API key required");
        assert!(!text.contains('\x1b'), "{text:?}");
        let short = fit_to_terminal(&text, 3, 10);
        assert!(
            short.lines().count() == 2 && short.lines().all(|line| line.chars().count() < 10),
            "{short}"
        );
        assert_eq!(rows[0].json()["found_in_cache"], Value::Null);
    }
}
