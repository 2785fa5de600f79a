//! `refrain serve`: a model for many clients at once.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use refrain_engine::{Engine, EngineOptions, Reload, Session};
use refrain_models::Checkpoint;
use refrain_server::{Certificate, Entrance, ServedModel, ServedText, ServerOptions};

use crate::output::{self, human_bytes};
use crate::servers::ServerNote;
use crate::{Global, device, interrupt, load, model};

const EXAMPLES: &str = "Examples:
  refrain serve demo
  refrain serve Qwen/Qwen3-0.6B --ctx 4096 --parallel 16
  refrain serve model.gguf --host 0.0.0.0 --port 8000 --api-key SECRET
  refrain serve demo --port 0 --alias my-model";

/// Tokens of a request unless the user says otherwise.
const CONTEXT: usize = 8192;
/// Requests at once unless the user says otherwise.
const STREAMS: usize = 8;
const STREAMS_ON_CPU: usize = 4;

/// Answer many clients at once, by OpenAI's, Anthropic's and Ollama's HTTP
///
/// A page to chat is at http://HOST:PORT; chats, completions and the model's name at /v1; /health, /metrics, /tokenize
/// and /detokenize beside it. When it answers, it writes `listening on http://HOST:PORT` to the standard output. Ctrl-C, or
/// SIGTERM, lets the texts under way come to their ends.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model
    #[arg(value_name = "MODEL")]
    model: String,
    /// Address to listen on; 0.0.0.0 is all of this computer's, unix:PATH a socket in the file system
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = host)]
    host: Host,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Answer only who gives this key (may be repeated)
    #[arg(long, value_name = "KEY", env = "REFRAIN_API_KEY", hide_env_values = true)]
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
    /// Write a line of JSON to the standard error for each request that is over
    #[arg(long)]
    log: bool,
    /// Seconds that a client may take to send a request, and to read what it was sent
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// What clients call the model [default: MODEL, of a path its last part]
    #[arg(long, value_name = "NAME", visible_alias = "served-model-name")]
    alias: Option<String>,
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
    /// Share of the free memory that keys and values may take, beside the weights
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
    let checkpoint = Arc::new(model::open_or_pull(global, &arguments.model)?);
    let text = ServedText::of(&checkpoint)?;
    let device = device::open(global)?;
    let limit = checkpoint.config().max_position;
    let asked = arguments.ctx.map(|context| context as usize);
    let context = load::context(checkpoint.config(), asked.or(Some(CONTEXT.min(limit))), 0, None)?;
    let fit = load::measured(&checkpoint, &device);
    if !global.quiet && device.is_cpu() {
        load::announce(fit.as_ref());
    }
    let loaded = load::load(global, &checkpoint, &device, context)?;
    let options = arguments.engine_options(&checkpoint, &device, context);
    let engine = if device.is_cpu() {
        Engine::start(&loaded.model, &options)?
    } else {
        let reload = reload(global.clone(), checkpoint.clone(), context);
        Engine::start_reloading(loaded.model, &options, reload)?
    };
    let served = ServedModel::new(arguments.name(), engine, &device, &checkpoint, text)
        .with_bandwidth(fit.map(|fit| fit.offer.bandwidth));
    refrain_formats::allow_open_files();
    let _deferred = interrupt::defer()?;
    if !global.quiet {
        let bytes = options.cache_tokens as u64 * Session::kv_bytes_per_token(checkpoint.config(), &device);
        output::aside(&format!(
            "{} on {}: {} requests at once, {} tokens each, {} in all ({} of keys and values)",
            arguments.name(),
            device.name(),
            options.streams,
            options.context,
            options.cache_tokens,
            human_bytes(bytes),
        ));
    }
    // Should it be lost, nothing of it is left.
    drop(device);
    let scheme = match (&arguments.host, &certificate) {
        (Host::Socket(_), _) => "",
        (_, Some(_)) => "https://",
        (_, None) => "http://",
    };
    let address = format!("{scheme}{entrance}");
    // Without its note it is served all the same.
    let _note = ServerNote::leave(&arguments.name(), &address);
    output::print(&format!("listening on {address}\n"))?;
    let server = ServerOptions {
        api_keys: arguments.api_key.clone(),
        origins: arguments.cors.clone(),
        certificate,
        patience: Duration::from_secs(arguments.timeout),
        log: arguments.log.then_some(output::complain as refrain_server::Log),
        ..ServerOptions::default()
    };
    Ok(refrain_server::serve(entrance, served, &server, interrupt::requested)?)
}

/// Opens the device again after it was lost, and loads the model.
fn reload(global: Global, checkpoint: Arc<Checkpoint>, context: usize) -> Reload {
    Box::new(move |why| {
        output::complain(&format!(
            "warning: {why}; the model is loaded again, and texts under way go on then"
        ));
        let device = device::open(&global)?;
        if device.is_cpu() {
            return Err("the device is not there any more".into());
        }
        Ok(load::load(&global, &checkpoint, &device, context)?.model)
    })
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
    let address = text.parse().map(Host::Address);
    address.map_err(|_| "neither an address such as 127.0.0.1 or ::1, nor unix:PATH".to_owned())
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

    /// What clients call the model.
    fn name(&self) -> String {
        let path = std::path::Path::new(&self.model);
        let last = || match path.exists() {
            true => path.file_stem().or(path.file_name())?.to_str().map(str::to_owned),
            false => None,
        };
        self.alias.clone().or_else(last).unwrap_or_else(|| self.model.clone())
    }

    fn engine_options(&self, checkpoint: &Checkpoint, device: &refrain::Device, context: usize) -> EngineOptions {
        let usual = if device.is_cpu() { STREAMS_ON_CPU } else { STREAMS };
        let streams = self.parallel.map_or(usual, |streams| streams as usize);
        let each = Session::kv_bytes_per_token(checkpoint.config(), device).max(1);
        let free = device.free_memory().unwrap_or(u64::MAX) as f64 * self.memory;
        let fit = (free / each as f64) as usize;
        EngineOptions {
            context,
            streams,
            cache_tokens: (streams * context).min(fit).max(context),
            queue: self.queue,
            prefix_cache: !self.no_prefix_cache,
            deterministic: self.deterministic,
        }
    }
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
