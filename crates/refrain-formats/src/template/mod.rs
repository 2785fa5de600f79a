//! Chat templates: conversations to text, as transformers' `apply_chat_template` renders them.

mod conversation;
mod environment;
mod filters;
mod json;
mod methods;
mod source;

use std::collections::BTreeMap;
use std::time::SystemTime;

use minijinja::Value;
use minijinja::value::Serde;

use crate::{Error, guard};

pub use conversation::Conversation;

/// Instructions after which a template is taken to loop without end. The longest of the published
/// templates needs a few hundred per message.
const FUEL: u64 = 20_000_000;

/// A model's chat template (in Jinja), with the special tokens that it may write.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    /// Sources by name; most models have only `default`, some `tool_use` as well.
    templates: BTreeMap<String, String>,
    special_tokens: BTreeMap<String, String>,
    time: Option<SystemTime>,
}

impl ChatTemplate {
    /// A template from its source. `special_tokens` are the variables that hold special tokens,
    /// such as `bos_token`.
    pub fn new(source: impl Into<String>, special_tokens: BTreeMap<String, String>) -> Self {
        Self::named(BTreeMap::from([("default".to_owned(), source.into())]), special_tokens)
    }

    pub(crate) fn named(templates: BTreeMap<String, String>, special_tokens: BTreeMap<String, String>) -> Self {
        ChatTemplate {
            templates,
            special_tokens,
            time: None,
        }
    }

    /// The same template with `time` for now. Some templates write today's date: this makes what they render
    /// repeatable.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.time = Some(time);
        self
    }

    /// All sources by name.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.templates
            .iter()
            .map(|(name, source)| (name.as_str(), source.as_str()))
    }

    /// The source that is rendered for conversations with tools (or without).
    ///
    /// # Errors
    /// If there are only templates for other purposes.
    pub fn source(&self, with_tools: bool) -> Result<&str, Error> {
        let tools = self.templates.get("tool_use").filter(|_| with_tools);
        match tools.or_else(|| self.templates.get("default")) {
            Some(source) => Ok(source),
            None => {
                let names: Vec<&str> = self.templates.keys().map(String::as_str).collect();
                Err(Error::Template(format!(
                    "the model has no default template, only {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// Render a conversation. With `add_generation_prompt`, the text ends with what begins the
    /// model's answer.
    ///
    /// # Errors
    /// If the template does not parse, refuses the conversation, fails, or loops without end.
    pub fn render(&self, conversation: &Conversation, add_generation_prompt: bool) -> Result<String, Error> {
        let source = source::prepare(self.source(conversation.tools.is_some())?);
        let mut environment = environment::new(self.time).map_err(describe)?;
        environment.set_fuel(Some(FUEL));
        let template = environment
            .template_from_named_str("template", &source)
            .map_err(describe)?;
        let mut variables: BTreeMap<String, Value> = BTreeMap::new();
        for (role, token) in &self.special_tokens {
            variables.insert(role.clone(), Value::from(token.as_str()));
        }
        for (name, value) in &conversation.variables {
            variables.insert(name.clone(), Value::from(Serde(value)));
        }
        let list = |values: &Vec<serde_json::Value>| Value::from(Serde(values));
        let optional = |values: &Option<Vec<serde_json::Value>>| values.as_ref().map_or(Value::from(()), list);
        variables.insert("messages".to_owned(), list(&conversation.messages));
        variables.insert("tools".to_owned(), optional(&conversation.tools));
        variables.insert("documents".to_owned(), optional(&conversation.documents));
        variables.insert("add_generation_prompt".to_owned(), Value::from(add_generation_prompt));
        // The engine has panics left on odd input (`''[::-1][0]` is one).
        match guard::run(|| template.render(variables)) {
            Some(text) => text.map_err(describe),
            None => Err(Error::Template("the template engine broke down on it".to_owned())),
        }
    }
}

/// An error of the template engine in the user's language.
fn describe(error: minijinja::Error) -> Error {
    use minijinja::ErrorKind;

    let line = error.line().map_or(String::new(), |line| format!("line {line}: "));
    let detail = error.detail().unwrap_or_default();
    let text = match error.kind() {
        ErrorKind::OutOfFuel => {
            format!("gave up after {FUEL} steps: the template seems to loop without end")
        }
        ErrorKind::SyntaxError => format!("{line}does not parse: {detail}"),
        _ if environment::is_raised(&error) => format!("refuses these messages: {detail}"),
        kind if detail.is_empty() => format!("{line}{kind}"),
        kind => format!("{line}{kind}: {detail}"),
    };
    Error::Template(text)
}
