//! Chat templates: renders conversations to text, as transformers' `apply_chat_template` does.

mod budget;
mod calls;
mod changes;
mod characters;
mod compare;
mod conversation;
mod counters;
mod error;
mod evaluate;
mod filters;
mod format;
mod layout;
mod lexer;
mod literals;
mod loops;
mod methods;
mod operators;
mod parser;
mod percent;
mod predicates;
mod print;
mod reasoning;
mod render;
mod syntax;
mod time;
mod value;

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::{Error, guard};
use budget::BoundedText;
use error::{RenderError, Try};
use value::{ItemsBuilder, TemplateText, Value};

pub use conversation::Conversation;
pub use reasoning::ReasoningOptions;

/// Limit of a template's source, in bytes. The longest published one has 17 thousand.
const MAX_SOURCE: usize = 1 << 20;

/// Variables by which some templates take the tools instead of `tools`, preferred first: calls as JSON, and as Python
/// code. A model gets them in one form only.
const TOOLS_BY_FORM: [&str; 2] = ["xml_tools", "python_tools"];

/// A model's chat template (Jinja), with the special tokens that it may write.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    /// Sources by name. Most models have only `default`, some also `tool_use`.
    templates: BTreeMap<String, String>,
    special_tokens: BTreeMap<String, String>,
    time: Option<SystemTime>,
}

impl ChatTemplate {
    /// Creates a template from its source. `special_tokens` are the variables that hold special tokens, such as
    /// `bos_token`.
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

    /// Fixes the current time to `time`. Some templates write today's date; this makes their output reproducible.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.time = Some(time);
        self
    }

    /// Returns all sources with their names.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.templates
            .iter()
            .map(|(name, source)| (name.as_str(), source.as_str()))
    }

    /// Returns the source for conversations with or without tools.
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

    /// Renders a conversation. With `add_generation_prompt`, the text ends with the start of the model's reply.
    ///
    /// # Errors
    /// If the template does not parse, rejects the conversation, fails, or exceeds its limits on memory, steps or
    /// nesting.
    pub fn render(&self, conversation: &Conversation, add_generation_prompt: bool) -> Result<String, Error> {
        let source = self.source(conversation.tools.is_some())?;
        let work = || match guard::catch_panic(|| self.render_here(source, conversation, add_generation_prompt)) {
            Some(rendered) => rendered.map_err(|error| Error::Template(error.to_string())),
            None => Err(Error::Template("the template engine panicked".to_owned())),
        };
        // A thread of its own has a known stack size and fresh counters.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("template".to_owned())
                .stack_size(budget::STACK_BYTES);
            let thread = thread
                .spawn_scoped(scope, work)
                .map_err(|error| Error::Template(format!("cannot be rendered: {error}")))?;
            let broke = || Err(Error::Template("the template engine panicked".to_owned()));
            thread.join().unwrap_or_else(|_| broke())
        })
    }

    fn render_here(&self, source: &str, conversation: &Conversation, add_generation_prompt: bool) -> Try<String> {
        let variables = self.variables(source, conversation, add_generation_prompt)?;
        budget::start();
        if source.len() > MAX_SOURCE {
            return Err(RenderError::limit(format_args!(
                "has {} bytes, more than the limit of {MAX_SOURCE}",
                source.len()
            )));
        }
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let parsed = parser::parse(source.strip_suffix('\n').unwrap_or(&source))?;
        let mut renderer = render::Renderer::new(variables, self.time)?;
        let mut out = BoundedText::new();
        let root = renderer.root.clone();
        renderer.run(&parsed.body, &root, &mut out)?;
        Ok(out.into_string())
    }

    /// Returns the variables that the template can read.
    fn variables(
        &self,
        source: &str,
        conversation: &Conversation,
        add_generation_prompt: bool,
    ) -> Try<Vec<(TemplateText, Value)>> {
        let list = |values: &Vec<serde_json::Value>| Ok(ItemsBuilder::of(values.iter().map(Value::from_json))?.list());
        let optional = |values: &Option<Vec<serde_json::Value>>| values.as_ref().map_or(Ok(Value::None), list);
        let mut variables = Vec::new();
        let mut add = |name: &str, value: Value| TemplateText::new(name).map(|name| variables.push((name, value)));
        for (role, token) in &self.special_tokens {
            add(role, Value::text(token.as_str())?)?;
        }
        for (name, value) in &conversation.variables {
            add(name, Value::from_json(value)?)?;
        }
        // SmolLM3's template reads the tools by the form of its calls.
        let is_given = |name: &&str| conversation.variables.contains_key(*name);
        let form = TOOLS_BY_FORM.into_iter().find(|name| source.contains(name));
        if let Some(name) = form.filter(|_| conversation.tools.is_some() && !TOOLS_BY_FORM.iter().any(is_given)) {
            add(name, optional(&conversation.tools)?)?;
        }
        add("messages", list(&conversation.messages)?)?;
        add("tools", optional(&conversation.tools)?)?;
        add("documents", optional(&conversation.documents)?)?;
        add("add_generation_prompt", Value::Bool(add_generation_prompt))?;
        Ok(variables)
    }
}
