//! The server that an agent uses: a running one, or one that is started for it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use refrain_models::Checkpoint;
use refrain_server::HttpClient;
use serde_json::Value;

use super::Arguments;
use super::agent::{ServedEndpoint, shell_quoted};
use crate::servers::RunningServer;
use crate::{Global, Usage, model, output};

/// Context of a server that is started, in tokens. The prompts of agents alone have some 20,000.
const DEFAULT_CONTEXT: usize = 65_536;
/// Requests that an agent makes at once: its own, and those of sub-agents and side tasks.
const PARALLEL: usize = 4;
/// Port that `--print` shows for a server that does not run yet.
const SHOWN_PORT: u16 = 8080;
/// Time limit for a running server's reply.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Which server an agent will use.
pub(super) enum ServerChoice {
    /// A running one.
    Running(ServedEndpoint),
    /// A new one for this model, with these arguments.
    New { model: String, arguments: Vec<String> },
}

/// A server for as long as the agent runs. Dropping it stops a server that was started.
pub(super) struct AgentServer {
    pub endpoint: ServedEndpoint,
    started: Option<Child>,
}

impl ServerChoice {
    /// Finds a running server with the model, else prepares a new one.
    ///
    /// # Errors
    /// If no model is given and no server is running, or the model cannot be opened.
    pub fn find(global: &Global, arguments: &Arguments) -> anyhow::Result<ServerChoice> {
        // Agents do not connect to Unix sockets, nor to servers with a certificate of their own.
        let is_usable = |server: &RunningServer| server.address.starts_with("http://");
        let mut running: Vec<RunningServer> = RunningServer::all().into_iter().filter(is_usable).collect();
        // The newest first.
        running.reverse();
        let mut unusable = None;
        for server in running {
            let models = served_models(&server.address, arguments.api_key.as_deref());
            let wanted = |(id, _): &&(String, Option<u64>)| arguments.model.as_ref().is_none_or(|model| model == id);
            match (&models, &arguments.model) {
                (Ok(models), _) => {
                    if let Some((model, context)) = models.iter().find(wanted) {
                        return Ok(ServerChoice::Running(ServedEndpoint {
                            address: server.address,
                            model: model.clone(),
                            context: *context,
                        }));
                    }
                }
                // Another server may need no key.
                (Err(why), None) => {
                    unusable.get_or_insert_with(|| format!("the server at {} cannot be used: {why:#}", server.address));
                }
                (Err(_), Some(_)) => {}
            }
        }
        if let Some(why) = unusable {
            bail!(why);
        }
        let Some(name) = arguments.model.clone() else {
            let why = "no server is running; name a model to serve, as `refrain launch AGENT MODEL`";
            return Err(Usage(why.to_owned()).into());
        };
        let limited = |checkpoint: Checkpoint| DEFAULT_CONTEXT.min(checkpoint.config().max_position);
        let context = match arguments.ctx {
            Some(context) => context as usize,
            // What would be downloaded first has a limit that is not known yet.
            None if arguments.print => model::open(&name).map_or(DEFAULT_CONTEXT, limited),
            None => limited(model::open_or_pull(global, &name)?),
        };
        let mut options = vec!["serve".to_owned(), name.clone()];
        options.extend([
            "--ctx".to_owned(),
            context.to_string(),
            "--parallel".to_owned(),
            PARALLEL.to_string(),
        ]);
        Ok(ServerChoice::New {
            model: name,
            arguments: options,
        })
    }

    /// The endpoint that the agent will use; for a new server, with the port that [`Self::shell_lines`] gives it.
    pub fn expected_endpoint(&self, arguments: &Arguments) -> ServedEndpoint {
        match self {
            ServerChoice::Running(endpoint) => endpoint.clone(),
            ServerChoice::New { model, .. } => ServedEndpoint {
                address: format!("http://127.0.0.1:{SHOWN_PORT}"),
                model: model.clone(),
                context: arguments.ctx.map(u64::from),
            },
        }
    }

    /// Shell commands that start the server and wait until it listens, or a comment that says that it runs.
    pub fn shell_lines(&self, global: &Global) -> String {
        match self {
            ServerChoice::Running(endpoint) => format!("# {} is served at {}\n", endpoint.model, endpoint.address),
            ServerChoice::New { arguments, .. } => {
                let port = ["--port".to_owned(), SHOWN_PORT.to_string()];
                let words = arguments.iter().cloned().chain(port).chain(forwarded(global));
                let words: Vec<String> = words.map(|word| shell_quoted(&word)).collect();
                format!(
                    "refrain {} &\nuntil curl -sf http://127.0.0.1:{SHOWN_PORT}/health > /dev/null; do sleep 1; done\n",
                    words.join(" ")
                )
            }
        }
    }

    /// Starts the server, if it is a new one, and waits until it listens.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(self, global: &Global, arguments: &Arguments) -> anyhow::Result<AgentServer> {
        let (name, options) = match self {
            ServerChoice::Running(endpoint) => {
                return Ok(AgentServer {
                    endpoint,
                    started: None,
                });
            }
            ServerChoice::New { model, arguments } => (model, arguments),
        };
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(options).args(["--port", "0"]).args(forwarded(global));
        // Its messages would appear within the agent's screen.
        command.args(["--quiet"]).env_remove("REFRAIN_API_KEY");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Ctrl-C is for the agent.
        refrain_formats::separate_process_group(&mut command);
        if !global.quiet {
            output::eprint_dimmed(&format!("starting a server for {name}"));
        }
        let mut started = command.spawn().context("cannot start the server")?;
        let mut line = String::new();
        let stdout = started.stdout.take().context("the server has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let mut server = AgentServer {
            endpoint: ServedEndpoint {
                address: line.trim().rsplit(' ').next().unwrap_or_default().to_owned(),
                model: name,
                context: None,
            },
            started: Some(started),
        };
        if !line.starts_with("listening on ") {
            bail!("the server did not start");
        }
        let models = served_models(&server.endpoint.address, arguments.api_key.as_deref())?;
        if let Some((model, context)) = models.into_iter().next() {
            (server.endpoint.model, server.endpoint.context) = (model, context);
        }
        Ok(server)
    }
}

/// The global options that the server gets too.
fn forwarded(global: &Global) -> Vec<String> {
    let mut options = vec![];
    if let Some(device) = &global.device {
        options.extend(["--device".to_owned(), device.clone()]);
    }
    for feature in &global.disable {
        options.extend(["--disable".to_owned(), feature.clone()]);
    }
    if let Some(tuning) = &global.tuning {
        options.extend(["--tuning".to_owned(), tuning.display().to_string()]);
    }
    if global.offline {
        options.push("--offline".to_owned());
    }
    options
}

/// Returns the names and contexts of a server's models.
fn served_models(address: &str, key: Option<&str>) -> anyhow::Result<Vec<(String, Option<u64>)>> {
    let client = HttpClient {
        key: key.map(str::to_owned),
        certificate: None,
        timeout: REQUEST_TIMEOUT,
    };
    let (status, body) = client.get(address, "/v1/models")?;
    match status {
        200 => {}
        401 => bail!("it needs a key; give it with --api-key KEY"),
        status => bail!("it answers with status {status}"),
    }
    let list: Value = serde_json::from_str(&body)?;
    let model = |model: &Value| Some((model["id"].as_str()?.to_owned(), model["max_model_len"].as_u64()));
    Ok(list["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(model)
        .collect())
}

impl Drop for AgentServer {
    fn drop(&mut self) {
        if let Some(started) = &mut self.started {
            if refrain_formats::terminate_process(started.id()).is_err() {
                let _ = started.kill();
            }
            let _ = started.wait();
        }
    }
}
