//! The agents: their programs, and the environment and arguments that point them to a server.

use std::ffi::OsString;

use clap::ValueEnum;
use serde_json::json;

/// The key that agents send to a server without keys. They do not start without one.
const NO_KEY: &str = "refrain";
/// Context that agents need, in tokens: their instructions and tools have some 20,000.
const MIN_CONTEXT: u64 = 32_768;

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Agent {
    /// Claude Code
    Claude,
    /// OpenAI Codex
    Codex,
    /// OpenCode
    Opencode,
    /// Qwen Code
    Qwen,
}

/// A model of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServedEndpoint {
    /// The server's address, such as `http://127.0.0.1:8080`.
    pub address: String,
    pub model: String,
    /// The model's context in tokens, if it is known.
    pub context: Option<u64>,
}

impl ServedEndpoint {
    /// Returns why agents will hardly work, if the context is known to be short.
    pub fn context_warning(&self) -> Option<String> {
        let context = self.context.filter(|context| *context < MIN_CONTEXT)?;
        Some(format!(
            "{} has a context of {context} tokens; agents need {MIN_CONTEXT} or more (--ctx N)",
            self.model
        ))
    }
}

/// What an agent is started with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AgentSetup {
    program: &'static str,
    pub environment: Vec<(String, String)>,
    pub arguments: Vec<String>,
}

impl Agent {
    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Agent::Claude => "claude",
            Agent::Codex => "codex",
            Agent::Opencode => "opencode",
            Agent::Qwen => "qwen",
        }
    }

    /// Where to find out how to install it.
    pub fn installation(self) -> &'static str {
        match self {
            Agent::Claude => "https://code.claude.com/docs",
            Agent::Codex => "https://github.com/openai/codex",
            Agent::Opencode => "https://opencode.ai/docs",
            Agent::Qwen => "https://github.com/QwenLM/qwen-code",
        }
    }

    /// Returns what points the agent to a server.
    pub fn setup(self, endpoint: &ServedEndpoint, key: Option<&str>) -> AgentSetup {
        let key = key.unwrap_or(NO_KEY);
        let (environment, arguments) = match self {
            Agent::Claude => claude(endpoint, key),
            Agent::Codex => codex(endpoint, key),
            Agent::Opencode => opencode(endpoint, key),
            Agent::Qwen => qwen(endpoint, key),
        };
        let owned = |(name, value): (&str, String)| (name.to_owned(), value);
        AgentSetup {
            program: self.program(),
            environment: environment.into_iter().map(owned).collect(),
            arguments,
        }
    }
}

/// Environment and arguments of an agent.
type Setup = (Vec<(&'static str, String)>, Vec<String>);

fn claude(endpoint: &ServedEndpoint, key: &str) -> Setup {
    let model = || endpoint.model.clone();
    let mut environment = vec![
        ("ANTHROPIC_BASE_URL", endpoint.address.clone()),
        ("ANTHROPIC_AUTH_TOKEN", key.to_owned()),
        // An account's key would be used instead.
        ("ANTHROPIC_API_KEY", String::new()),
        // The names of Anthropic's models, which it uses for side tasks.
        ("ANTHROPIC_DEFAULT_OPUS_MODEL", model()),
        ("ANTHROPIC_DEFAULT_SONNET_MODEL", model()),
        ("ANTHROPIC_DEFAULT_HAIKU_MODEL", model()),
        ("CLAUDE_CODE_SUBAGENT_MODEL", model()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        // A header in the prompt that changes with each request would make the prefix cache useless.
        ("CLAUDE_CODE_ATTRIBUTION_HEADER", "0".to_owned()),
    ];
    if let Some(context) = endpoint.context {
        environment.push(("CLAUDE_CODE_AUTO_COMPACT_WINDOW", context.to_string()));
    }
    (environment, vec!["--model".to_owned(), model()])
}

fn codex(endpoint: &ServedEndpoint, key: &str) -> Setup {
    let text = |value: &str| json!(value).to_string();
    let mut settings = vec![
        ("model_provider", text("refrain")),
        ("model_providers.refrain.name", text("Refrain")),
        (
            "model_providers.refrain.base_url",
            text(&format!("{}/v1", endpoint.address)),
        ),
        ("model_providers.refrain.wire_api", text("responses")),
        ("model_providers.refrain.env_key", text("REFRAIN_API_KEY")),
    ];
    if let Some(context) = endpoint.context {
        settings.push(("model_context_window", context.to_string()));
    }
    let mut arguments = vec!["--model".to_owned(), endpoint.model.clone()];
    for (name, value) in settings {
        arguments.extend(["--config".to_owned(), format!("{name}={value}")]);
    }
    (vec![("REFRAIN_API_KEY", key.to_owned())], arguments)
}

fn opencode(endpoint: &ServedEndpoint, key: &str) -> Setup {
    let mut model = json!({"name": endpoint.model});
    if let Some(context) = endpoint.context {
        model["limit"] = json!({"context": context, "output": context / 2});
    }
    let config = json!({
        "$schema": "https://opencode.ai/config.json",
        "provider": {"refrain": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Refrain",
            "options": {"baseURL": format!("{}/v1", endpoint.address), "apiKey": key},
            "models": {(endpoint.model.clone()): model},
        }},
        "model": format!("refrain/{}", endpoint.model),
        "small_model": format!("refrain/{}", endpoint.model),
    });
    (vec![("OPENCODE_CONFIG_CONTENT", config.to_string())], vec![])
}

fn qwen(endpoint: &ServedEndpoint, key: &str) -> Setup {
    let environment = vec![
        ("OPENAI_BASE_URL", format!("{}/v1", endpoint.address)),
        ("OPENAI_API_KEY", key.to_owned()),
        ("OPENAI_MODEL", endpoint.model.clone()),
    ];
    let arguments = ["--auth-type", "openai", "--model", &endpoint.model];
    (environment, arguments.map(str::to_owned).to_vec())
}

impl AgentSetup {
    /// Returns a shell command that starts the agent.
    pub fn shell_lines(&self, more: &[OsString]) -> String {
        let mut text = String::new();
        for (name, value) in &self.environment {
            text.push_str(&format!("{name}={} \\\n", shell_quoted(value)));
        }
        text.push_str(self.program);
        let more = more.iter().map(|argument| argument.to_string_lossy().into_owned());
        for argument in self.arguments.iter().cloned().chain(more) {
            text.push_str(&format!(" {}", shell_quoted(&argument)));
        }
        text.push('\n');
        text
    }
}

/// A word as a POSIX shell reads it.
pub(super) fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> ServedEndpoint {
        ServedEndpoint {
            address: "http://127.0.0.1:8080".to_owned(),
            model: "Qwen/Qwen3-8B".to_owned(),
            context: Some(32_768),
        }
    }

    #[test]
    fn every_agent_gets_the_address_the_model_and_the_key() {
        for agent in Agent::value_variants() {
            let text = agent
                .setup(&endpoint(), Some("SECRET"))
                .shell_lines(&["-p".into(), "it's".into()]);
            for part in ["http://127.0.0.1:8080", "Qwen/Qwen3-8B", "SECRET", "-p 'it'\\''s'\n"] {
                assert!(text.contains(part), "{agent:?}: no {part} in {text}");
            }
            let without = agent.setup(&endpoint(), None).shell_lines(&[]);
            assert!(without.contains(NO_KEY), "{without}");
        }
    }

    #[test]
    fn short_contexts_are_reported() {
        let with = |context| ServedEndpoint { context, ..endpoint() }.context_warning();
        assert_eq!((with(None), with(Some(MIN_CONTEXT))), (None, None));
        let warning = with(Some(8_192)).expect("a warning");
        assert!(warning.contains("8192 tokens; agents need 32768"), "{warning}");
    }

    #[test]
    fn only_plain_words_are_unquoted() {
        assert_eq!(shell_quoted("http://a:1/b"), "http://a:1/b");
        assert_eq!(shell_quoted(""), "''");
        assert_eq!(shell_quoted("a b$(c)"), "'a b$(c)'");
    }
}
