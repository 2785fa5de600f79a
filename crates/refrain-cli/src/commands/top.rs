//! `refrain top`: what running servers do.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use console::Term;
use refrain_server::Visitor;
use serde_json::{Value, json};

use crate::figures::{self, ModelFigures, ModelLoad};
use crate::interrupt;
use crate::output::{self, human_rate, human_seconds};
use crate::servers::RunningServer;

const EXAMPLES: &str = "Examples:
  refrain top
  refrain top demo --once
  refrain top http://127.0.0.1:8080 --json";

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often is looked whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// Show what running servers do
///
/// Of each model: requests that run and wait, the share of the cache that is held, tokens a second generated and taken in,
/// the mean time to the first token, the share of the memory's bandwidth that reading weights takes, and the share of
/// prompts that was found in the cache. On a terminal the rows are drawn anew every second until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Model, port, address or process, as `refrain ps` shows them, or the address of another server, as
    /// http://HOST:PORT [default: all that you run on this computer]
    server: Option<String>,
    /// Write one report, and end
    #[arg(long)]
    once: bool,
    /// Write one report as a JSON list
    #[arg(long)]
    json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// The certificate of a server that speaks HTTPS; those of your own servers on this computer are known
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// A key of the server
    #[arg(long, value_name = "KEY", env = "REFRAIN_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let places = arguments.places()?;
    if places.is_empty() {
        return if arguments.json {
            output::print_json(&json!([]))
        } else {
            output::print("no server runs; `refrain serve MODEL` starts one\n")
        };
    }
    let _deferred = interrupt::defer()?;
    let mut looks = Looks::default();
    looks.take(&places);
    if arguments.once || arguments.json || !std::io::stdout().is_terminal() {
        arguments.wait();
        let rows = looks.take(&places);
        return if arguments.json {
            output::print_json(&rows.iter().map(Row::json).collect())
        } else {
            output::print(&as_text(&rows))
        };
    }
    let (terminal, mut drawn) = (Term::stdout(), 0);
    while !interrupt::requested() {
        arguments.wait();
        // Servers come and go.
        let rows = looks.take(&arguments.places().unwrap_or_default());
        let (height, width) = terminal.size();
        let text = fitting(&as_text(&rows), height as usize, width as usize);
        output::told(terminal.clear_last_lines(drawn))?;
        output::print(&text)?;
        drawn = text.lines().count();
    }
    Ok(())
}

impl Arguments {
    /// Where the servers are.
    fn places(&self) -> anyhow::Result<Vec<AskedServer>> {
        let place = |address: String, certificate: Option<PathBuf>| {
            let visitor = Visitor {
                key: self.api_key.clone(),
                certificate: self.tls_cert.clone().or(certificate),
                patience: PATIENCE,
            };
            AskedServer { address, visitor }
        };
        let servers = RunningServer::all().into_iter();
        let name = self.server.as_ref();
        let named = servers.filter(|server| name.is_none_or(|name| server.is_called(name)));
        let named: Vec<AskedServer> = named.map(|server| place(server.address, server.certificate)).collect();
        let Some(name) = name else { return Ok(named) };
        let is_address = name.contains("://") || name.starts_with("unix:");
        match (named.is_empty(), is_address) {
            (false, _) => Ok(named),
            (true, true) => Ok(vec![place(name.clone(), None)]),
            (true, false) => bail!("no server of yours is called {name}; `refrain ps` shows those that run"),
        }
    }

    /// Until the next look, or Ctrl-C.
    fn wait(&self) {
        let begin = Instant::now();
        let whole = Duration::from_secs_f64(self.interval);
        while !interrupt::requested() && begin.elapsed() < whole {
            thread::sleep(LOOK.min(whole.saturating_sub(begin.elapsed())));
        }
    }
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "not a number from 0.1 to 3600".to_owned())
}

/// A server, and how it is asked.
struct AskedServer {
    address: String,
    visitor: Visitor,
}

/// The figures of each server when it was last looked at.
#[derive(Default)]
struct Looks(BTreeMap<String, (Instant, BTreeMap<String, ModelFigures>)>);

impl Looks {
    /// Looks at all of them; what they did since the last time.
    fn take(&mut self, places: &[AskedServer]) -> Vec<Row> {
        let mut rows = vec![];
        for AskedServer { address, visitor } in places {
            let row = |model, state| Row {
                address: address.clone(),
                model,
                state,
            };
            match metrics(address, visitor) {
                Err(why) => rows.push(row(String::new(), Err(why))),
                Ok(models) => {
                    let now = Instant::now();
                    let before = self.0.insert(address.clone(), (now, models.clone()));
                    let (then, before) = before.unwrap_or_else(|| (now, models.clone()));
                    for (name, figures) in models {
                        let earlier = before.get(&name).unwrap_or(&figures);
                        let load = ModelLoad::between(earlier, &figures, now - then);
                        rows.push(row(name, Ok(load)));
                    }
                }
            }
        }
        rows
    }
}

/// What a server says of its models, or why it does not.
fn metrics(address: &str, visitor: &Visitor) -> Result<BTreeMap<String, ModelFigures>, String> {
    if address.starts_with("https://") && visitor.certificate.is_none() {
        return Err("speaks HTTPS: --tls-cert FILE says by which certificate it is known".to_owned());
    }
    match visitor.ask(address, "/metrics") {
        Ok((200, text)) => match figures::of_models(&text) {
            models if models.is_empty() => Err("says nothing of models at /metrics".to_owned()),
            models => Ok(models),
        },
        Ok((401, _)) => Err("asks for a key: --api-key KEY".to_owned()),
        Ok((status, _)) => Err(format!("answers {status} to /metrics")),
        Err(why) => Err(format!("does not answer: {why}")),
    }
}

/// A model of a server, or a server that does not say what it has.
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
                "found_in_cache": load.found,
            }),
        }
    }

    /// Its columns; of one that does not say what it does, why.
    fn columns(&self) -> Result<[String; COLUMNS], String> {
        let load = self.state.clone()?;
        let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
        Ok([
            output::plain(&self.model).into(),
            output::plain(&self.address).into(),
            load.running.to_string(),
            load.waiting.to_string(),
            percent(load.cache_use),
            human_rate(load.tokens_per_s),
            human_rate(load.prompt_tokens_per_s),
            load.first_token_s.map_or("-".to_owned(), human_seconds),
            percent(load.bandwidth_use),
            percent(load.found),
        ])
    }
}

const COLUMNS: usize = 10;
const HEADER: [&str; COLUMNS] = [
    "MODEL",
    "ADDRESS",
    "RUNNING",
    "WAITING",
    "CACHE",
    "TOKENS/S",
    "PROMPT/S",
    "FIRST TOKEN",
    "BANDWIDTH",
    "FOUND",
];

fn as_text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no server runs any more\n".to_owned();
    }
    let cells: Vec<_> = rows.iter().map(|row| (row, row.columns())).collect();
    let table: Vec<[String; COLUMNS]> = std::iter::once(HEADER.map(str::to_owned))
        .chain(cells.iter().filter_map(|(_, columns)| columns.clone().ok()))
        .collect();
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |columns: &[String; COLUMNS]| {
        let cell = |(at, text): (usize, &String)| match (at < 2, widths[at]) {
            (true, width) => format!("{text:<width$}"),
            (false, width) => format!("{text:>width$}"),
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
            Err(why) => text += &format!("{} {}\n", output::plain(&row.address), output::plain(why)),
        }
    }
    text
}

/// As much of a text as a terminal shows at once: what is scrolled away cannot be drawn anew.
fn fitting(text: &str, height: usize, width: usize) -> String {
    let lines = text.lines().take(height.saturating_sub(1).max(1));
    let short = |line: &str| line.chars().take(width.saturating_sub(1).max(1)).collect::<String>() + "\n";
    lines.map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_columns_and_servers_that_say_nothing_say_why() {
        let load = ModelLoad {
            running: 2,
            waiting: 10,
            cache_use: Some(0.256),
            found: None,
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
        let rows = [row("m\x1b[2J", Ok(load)), row("", Err("asks for a key".to_owned()))];
        let text = as_text(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let end = |line: &str, word: &str| line.find(word).expect(line) + word.len();
        assert_eq!(end(lines[0], "TOKENS/S"), end(lines[1], "123"), "{text}");
        assert_eq!(end(lines[0], "CACHE"), end(lines[1], "26 %"), "{text}");
        assert_eq!(lines[2], "http://127.0.0.1:8080 asks for a key");
        assert!(!text.contains('\x1b'), "{text:?}");
        let short = fitting(&text, 3, 10);
        assert!(
            short.lines().count() == 2 && short.lines().all(|line| line.chars().count() < 10),
            "{short}"
        );
        assert_eq!(rows[0].json()["found_in_cache"], Value::Null);
    }
}
