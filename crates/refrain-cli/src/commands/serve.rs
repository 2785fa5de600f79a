//! `refrain serve`: serves models over HTTP.

mod config;
mod downloads;
mod models;
mod names;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use refrain_engine::PrefixStoreOptions;
use refrain_server::{Certificate, Downloads, ResponseStore, ServedModel, ServerListener, ServerOptions, keep_alive};

use self::downloads::HubDownloader;
use self::models::ModelOpener;
use crate::cache_args::CacheArguments;
use crate::servers::ServerRecord;
use crate::speculation_args::SpeculateArgument;
use crate::{Global, hub, interrupt, output};

const EXAMPLES: &str = "Examples:
  refrain serve demo
  refrain serve Qwen/Qwen3-0.6B --ctx 4096 --parallel 16
  refrain serve model.gguf --host 0.0.0.0 --port 8000 --api-key SECRET
  refrain serve demo --port 0 --alias my-model,gpt-4o
  refrain serve Qwen/Qwen3-8B Qwen/Qwen3-0.6B --keep-alive 10m
  refrain serve Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B";

/// Default context length in tokens.
const DEFAULT_CONTEXT: usize = 8192;

/// Serve models with the OpenAI, Anthropic and Ollama HTTP APIs
///
/// A web chat is at http://HOST:PORT, the API at /v1 (OpenAI, Anthropic) and /api (Ollama); /health, /metrics,
/// /tokenize and /detokenize are served too. Prints `listening on http://HOST:PORT` to standard output when ready.
/// Ctrl-C or SIGTERM finishes running requests and exits.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The models; the first is loaded at start, the others on their first request
    #[arg(value_name = "MODEL", required_unless_present = "config")]
    models: Vec<String>,
    /// Serve the models of this file too: their aliases, sampling defaults, context and how long they stay loaded
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on; 0.0.0.0 for all interfaces, unix:PATH for a Unix socket
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = host)]
    host: Host,
    /// Port to listen on; 0 picks a free port
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Require this API key (may be repeated); other users of this computer may see it
    #[arg(long, value_name = "KEY", env = "REFRAIN_API_KEY", hide_env_values = true, value_parser = key)]
    api_key: Vec<String>,
    /// Require one of the API keys in this file, one per line; lines that begin with # are comments
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Serve HTTPS with this certificate (PEM, with its chain)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[arg(
        long,
        value_name = "ORIGIN",
        value_parser = origin,
        help = "Allow web pages of this origin, such as https://example.org; * allows all (may be repeated)"
    )]
    cors: Vec<String>,
    /// Allow requests to this host name, for servers without keys; * allows all (may be repeated)
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    allowed_host: Vec<String>,
    /// Allow clients to download models from the Hugging Face hub (Ollama's /api/pull)
    #[arg(long)]
    allow_pull: bool,
    /// Keep responses and conversations of /v1/responses in this directory, so that they outlive the server; without
    /// it they stay in memory
    #[arg(long, value_name = "DIR")]
    response_store: Option<PathBuf>,
    /// Log each finished request as a line of JSON to standard error
    #[arg(long)]
    log: bool,
    /// Timeout in seconds for clients to send a request and to read the response
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Model name for clients, or several names separated by commas; * is any name [default: MODEL, or the last part of
    /// a path]. Repeat for several models, in order
    #[arg(long, value_name = "NAME,…", visible_alias = "served-model-name")]
    alias: Vec<String>,
    /// How long an idle model stays loaded, such as 5m; -1 for until its memory is needed
    #[arg(long, value_name = "TIME", default_value = "-1", value_parser = keep_alive_argument, allow_hyphen_values = true)]
    keep_alive: KeepAlive,
    /// Context length of a request in tokens, prompt and response together [default: 8192, or the model's limit]
    #[arg(
        short = 'c',
        long,
        aliases = ["ctx-size", "max-model-len"],
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(2..),
        help_heading = "Engine"
    )]
    ctx: Option<u32>,
    /// Maximum number of requests processed in parallel [default: up to 64 on a discrete GPU, as far as memory allows, 8
    /// on an integrated one, 4 on the CPU]
    #[arg(
        long,
        visible_alias = "max-num-seqs",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=256),
        help_heading = "Engine"
    )]
    parallel: Option<u32>,
    /// Maximum number of waiting requests; more are rejected with HTTP status 503
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Engine")]
    queue: usize,
    /// Share of the memory left after loading the weights to use for the KV cache and recurrent states
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.9,
        value_parser = memory_share,
        help_heading = "Engine"
    )]
    memory: f64,
    #[command(flatten, next_help_heading = "Engine")]
    cache: CacheArguments,
    /// Longest time in milliseconds that generated text should pause while prompts of other requests are processed
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 35,
        value_parser = clap::value_parser!(u64).range(1..=10_000),
        help_heading = "Engine"
    )]
    target_gap: u64,
    /// Guess the next tokens of responses, and verify several in one step; responses stay the same
    #[arg(long, value_name = "HOW", default_value = "auto", help_heading = "Engine")]
    speculate: SpeculateArgument,
    /// Guess the next tokens of responses with this smaller model of the same tokenizer; responses stay the same
    #[arg(
        long,
        alias = "model-draft",
        value_name = "MODEL",
        conflicts_with_all = ["speculate", "deterministic"],
        help_heading = "Engine"
    )]
    draft: Option<String>,
    /// Disable prefix caching: process every prompt from its beginning
    #[arg(long, help_heading = "Engine")]
    no_prefix_cache: bool,
    /// Directory in which cached prefixes are kept, so that they are found again after a restart
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["no_prefix_cache", "deterministic"],
        help_heading = "Engine"
    )]
    prefix_cache_dir: Option<PathBuf>,
    /// Limit of the files in that directory, in GiB
    #[arg(
        long,
        value_name = "GIB",
        default_value_t = 32,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20),
        requires = "prefix_cache_dir",
        help_heading = "Engine"
    )]
    prefix_cache_gib: u64,
    /// Make responses bitwise independent of other requests; slower, and disables prefix caching
    #[arg(long, help_heading = "Engine")]
    deterministic: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    // Bind before loading the weights, so that an address in use fails at once.
    let listener = arguments.listener()?;
    let files = arguments.tls_cert.as_deref().zip(arguments.tls_key.as_deref());
    let certificate = files.map(|(chain, key)| Certificate::open(chain, key)).transpose()?;
    let api_keys = arguments.api_keys()?;
    let responses = arguments.responses()?;
    if let Some(store) = arguments.prefix_store(global) {
        store.create_directory()?;
    }
    if arguments.host.is_public() && api_keys.is_empty() && !global.quiet {
        output::eprint_line(
            "warning: anyone who can reach this address can use the server; require a key with --api-key KEY",
        );
    }
    let opener = ModelOpener::new(global, arguments)?;
    let downloads = if arguments.allow_pull {
        Downloads::by(HubDownloader {
            settings: hub::settings(global)?,
            opener: opener.clone(),
        })
    } else {
        Downloads::Refused(downloads::NOT_ALLOWED.to_owned())
    };
    let served = opener.open_all(arguments)?;
    let names: Vec<&str> = served.iter().map(ServedModel::name).collect();
    let names = names.join(", ");
    refrain_formats::raise_open_file_limit();
    let _deferred = interrupt::defer()?;
    let scheme = match (&arguments.host, &certificate) {
        (Host::Socket(_), _) => "",
        (_, Some(_)) => "https://",
        (_, None) => "http://",
    };
    let address = format!("{scheme}{listener}");
    // The server also runs without its record, but `refrain ps` will not list it.
    let _record = ServerRecord::register(&names, &address, arguments.tls_cert.as_deref());
    output::print(&format!("listening on {address}\n"))?;
    let server = ServerOptions {
        api_keys,
        origins: arguments.cors.clone(),
        hosts: arguments.allowed_host.clone(),
        certificate,
        downloads,
        responses,
        timeout: Duration::from_secs(arguments.timeout),
        log: arguments.log.then_some(output::eprint_line as refrain_server::Log),
        ..ServerOptions::default()
    };
    Ok(refrain_server::serve(listener, served, &server, interrupt::wait)?)
}

/// Where to listen.
#[derive(Debug, Clone)]
enum Host {
    Address(IpAddr),
    Socket(PathBuf),
}

impl Host {
    /// Whether other computers may reach it.
    fn is_public(&self) -> bool {
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
    address.map_err(|_| "not an IP address such as 127.0.0.1 or ::1, localhost, or unix:PATH".to_owned())
}

impl Arguments {
    /// Binds the listener.
    fn listener(&self) -> anyhow::Result<ServerListener> {
        match &self.host {
            Host::Address(address) => ServerListener::at((*address, self.port)).map_err(|why| {
                let address = SocketAddr::new(*address, self.port);
                anyhow::anyhow!("cannot listen on {address}: {why}; --port 0 picks a free port")
            }),
            Host::Socket(path) => ServerListener::at_socket(path).map_err(|why| {
                let shown = path.display();
                anyhow::anyhow!("cannot listen on {shown}: {why}; another server may be using it")
            }),
        }
    }
}

impl Arguments {
    /// The keys of the options, the environment and the file.
    fn api_keys(&self) -> anyhow::Result<Vec<String>> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let shown = path.display();
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the keys in {shown}"))?;
            let lines = text.lines().map(str::trim);
            let lines = lines.filter(|line| !(line.is_empty() || line.starts_with('#')));
            let before = keys.len();
            keys.extend(lines.map(str::to_owned));
            if keys.len() == before {
                anyhow::bail!("{shown} has no keys; write one per line");
            }
        }
        Ok(keys)
    }
}

impl Arguments {
    /// Returns where cached prefixes are kept, if they are.
    fn prefix_store(&self, global: &Global) -> Option<PrefixStoreOptions> {
        let directory = self.prefix_cache_dir.clone()?;
        let warn: fn(&str) = |why| output::eprint_line(&format!("warning: {why}"));
        Some(PrefixStoreOptions {
            directory,
            max_bytes: self.prefix_cache_gib << 30,
            warn: if global.quiet { |_| {} } else { warn },
        })
    }

    /// Opens the directory of responses, if there is one.
    fn responses(&self) -> anyhow::Result<ResponseStore> {
        match &self.response_store {
            None => Ok(ResponseStore::default()),
            Some(path) => ResponseStore::on_disk(path)
                .map_err(|why| anyhow::anyhow!("cannot keep responses in {}: {why}", path.display())),
        }
    }
}

fn host_name(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && !text.contains(['/', ' ', '@']);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "not * or a host name like gpu.example.org, without a scheme or path".to_owned())
}

fn key(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("an empty key protects nothing; leave it out to allow everyone".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// How long an idle model stays loaded; `None` until its memory is needed.
#[derive(Debug, Clone, Copy)]
struct KeepAlive(Option<Duration>);

fn keep_alive_argument(text: &str) -> Result<KeepAlive, String> {
    keep_alive(text).map(KeepAlive)
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
