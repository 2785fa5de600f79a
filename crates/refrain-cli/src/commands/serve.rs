//! `refrain serve`: models for many clients at once.

mod models;
mod pulls;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use refrain_server::{Certificate, Downloads, Entrance, ServedModel, ServerOptions, keep_alive};

use crate::servers::ServerNote;
use crate::{Global, hub, interrupt, output};

const EXAMPLES: &str = "Examples:
  refrain serve demo
  refrain serve Qwen/Qwen3-0.6B --ctx 4096 --parallel 16
  refrain serve model.gguf --host 0.0.0.0 --port 8000 --api-key SECRET
  refrain serve demo --port 0 --alias my-model
  refrain serve Qwen/Qwen3-8B Qwen/Qwen3-0.6B --keep-alive 10m";

/// Tokens of a request unless the user says otherwise.
const CONTEXT: usize = 8192;
/// Requests at once unless the user says otherwise.
const STREAMS: usize = 8;
const STREAMS_ON_CPU: usize = 4;

/// Answer many clients at once, by OpenAI's, Anthropic's and Ollama's HTTP
///
/// A page to chat is at http://HOST:PORT; chats, completions and the models' names at /v1; /health, /metrics, /tokenize
/// and /detokenize beside it. When it answers, it writes `listening on http://HOST:PORT` to the standard output. Ctrl-C, or
/// SIGTERM, lets the texts under way come to their ends.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model; of several the first is loaded at once, the others when they are asked for
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<String>,
    /// Address to listen on; 0.0.0.0 is all of this computer's, unix:PATH a socket in the file system
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = host)]
    host: Host,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Answer only who gives this key (may be repeated)
    #[arg(long, value_name = "KEY", env = "REFRAIN_API_KEY", hide_env_values = true, value_parser = key)]
    api_key: Vec<String>,
    /// Speak HTTPS by this certificate (PEM, with those that vouch for it)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[arg(
        long,
        value_name = "ORIGIN",
        value_parser = origin,
        help = "Let web pages of this origin ask, as https://example.org; * is all (may be repeated)"
    )]
    cors: Vec<String>,
    /// Let clients download models of the Hugging Face hub to this computer (Ollama's /api/pull)
    #[arg(long)]
    allow_pull: bool,
    /// Write a line of JSON to the standard error for each request that is over
    #[arg(long)]
    log: bool,
    /// Seconds that a client may take to send a request, and to read what it was sent
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// What clients call the model [default: MODEL, of a path its last part]; once for each, in their order
    #[arg(long, value_name = "NAME", visible_alias = "served-model-name")]
    alias: Vec<String>,
    /// How long a model stays loaded when nobody asks for it, as 5m; -1: until its room is needed
    #[arg(long, value_name = "TIME", default_value = "-1", value_parser = stay, allow_hyphen_values = true)]
    keep_alive: Stay,
    /// Tokens that prompt and answer of a request may have together [default: 8192, or the model's limit]
    #[arg(
        short = 'c',
        long,
        aliases = ["ctx-size", "max-model-len"],
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(2..),
        help_heading = "Engine"
    )]
    ctx: Option<u32>,
    /// Requests that are computed at once; others wait [default: 8, on a CPU 4]
    #[arg(
        long,
        visible_alias = "max-num-seqs",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=256),
        help_heading = "Engine"
    )]
    parallel: Option<u32>,
    /// Requests that may wait; more are told to come later
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Engine")]
    queue: usize,
    /// Share of the free memory that keys, values and recurrent states may take, beside the weights
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.9,
        value_parser = memory_share,
        help_heading = "Engine"
    )]
    memory: f64,
    /// Compute each prompt from its beginning, whatever earlier ones began with
    #[arg(long, help_heading = "Engine")]
    no_prefix_cache: bool,
    /// Let no bit of an answer depend on who else asks: slower, and nothing that was computed is found again
    #[arg(long, help_heading = "Engine")]
    deterministic: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    // Before the weights are loaded: what is in use already is said at once.
    let entrance = arguments.entrance()?;
    let files = arguments.tls_cert.as_deref().zip(arguments.tls_key.as_deref());
    let certificate = files.map(|(chain, key)| Certificate::open(chain, key)).transpose()?;
    if arguments.host.is_open() && arguments.api_key.is_empty() && !global.quiet {
        output::complain("warning: everybody who reaches this computer may ask; --api-key KEY asks for a key");
    }
    let downloads = if arguments.allow_pull {
        Downloads::by(pulls::HubDownloader(hub::settings(global)?))
    } else {
        Downloads::Refused(pulls::REFUSED.to_owned())
    };
    let served = models::open(global, arguments)?;
    let names: Vec<&str> = served.iter().map(ServedModel::name).collect();
    let names = names.join(", ");
    refrain_formats::allow_open_files();
    let _deferred = interrupt::defer()?;
    let scheme = match (&arguments.host, &certificate) {
        (Host::Socket(_), _) => "",
        (_, Some(_)) => "https://",
        (_, None) => "http://",
    };
    let address = format!("{scheme}{entrance}");
    // Without its note it is served all the same.
    let _note = ServerNote::leave(&names, &address, arguments.tls_cert.as_deref());
    output::print(&format!("listening on {address}\n"))?;
    let server = ServerOptions {
        api_keys: arguments.api_key.clone(),
        origins: arguments.cors.clone(),
        certificate,
        downloads,
        patience: Duration::from_secs(arguments.timeout),
        log: arguments.log.then_some(output::complain as refrain_server::Log),
        ..ServerOptions::default()
    };
    Ok(refrain_server::serve(entrance, served, &server, interrupt::requested)?)
}

/// Where to listen.
#[derive(Debug, Clone)]
enum Host {
    Address(IpAddr),
    Socket(PathBuf),
}

impl Host {
    /// Whether others than this computer's own may reach it.
    fn is_open(&self) -> bool {
        matches!(self, Host::Address(address) if !address.is_loopback())
    }
}

fn host(text: &str) -> Result<Host, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Host::Socket(path.into()));
    }
    if text == "localhost" {
        return Ok(Host::Address(Ipv4Addr::LOCALHOST.into()));
    }
    let address = text.parse().map(Host::Address);
    address.map_err(|_| "neither an address such as 127.0.0.1 or ::1, nor localhost, nor unix:PATH".to_owned())
}

impl Arguments {
    /// Where it listens, from here on.
    fn entrance(&self) -> anyhow::Result<Entrance> {
        match &self.host {
            Host::Address(address) => Entrance::at((*address, self.port))
                .with_context(|| format!("cannot listen on {address}:{}; --port 0 takes a free port", self.port)),
            Host::Socket(path) => Entrance::at_socket(path)
                .with_context(|| format!("cannot listen on {}; another server may", path.display())),
        }
    }
}

fn key(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("an empty key keeps nobody out; leave it away to let everybody ask".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// How long a model stays loaded; nothing: until its room is needed.
#[derive(Debug, Clone, Copy)]
struct Stay(Option<Duration>);

fn stay(text: &str) -> Result<Stay, String> {
    keep_alive(text).map(Stay)
}

fn origin(text: &str) -> Result<String, String> {
    let address = text
        .split_once("://")
        .filter(|(_, host)| !host.is_empty() && !host.contains('/'));
    let is_origin = text == "*" || address.is_some();
    is_origin
        .then(|| text.to_owned())
        .ok_or_else(|| "not * or an origin like https://example.org, without a path".to_owned())
}

fn memory_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "not a number above 0 and at most 1".to_owned())
}
