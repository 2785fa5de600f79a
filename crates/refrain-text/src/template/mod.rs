//! Chat templates: conversations to text, as transformers' `apply_chat_template` renders them.

mod budget;
mod calls;
mod characters;
mod compare;
mod conversation;
mod evaluate;
mod failure;
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
mod print;
mod render;
mod syntax;
mod tests;
mod thinking;
mod value;

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::{Error, guard};
use budget::BoundedText;
use failure::{Attempt, RenderError};
use value::{Datum, Gathered, TemplateText};

pub use conversation::Conversation;
pub use thinking::{Parted, ReasoningMarks, ReasoningSplitter};

/// Bytes that a template's source may have. The longest of the published ones has 17 thousand.
const MAX_SOURCE: usize = 1 << 20;

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
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
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
    /// If the template does not parse, refuses the conversation, fails, or takes more memory, steps or depth than any
    /// template needs (see `budget.rs`).
    pub fn render(&self, conversation: &Conversation, add_generation_prompt: bool) -> Result<String, Error> {
        let source = self.source(conversation.tools.is_some())?;
        let work = || match guard::run(|| self.render_here(source, conversation, add_generation_prompt)) {
            Some(rendered) => rendered.map_err(|error| Error::Template(error.to_string())),
            None => Err(Error::Template("the template engine broke down on it".to_owned())),
        };
        // A thread of its own has a stack of known size, and nothing else to count.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("template".to_owned())
                .stack_size(budget::STACK);
            let thread = thread
                .spawn_scoped(scope, work)
                .map_err(|error| Error::Template(format!("cannot be rendered: {error}")))?;
            let broke = || Err(Error::Template("the template engine broke down on it".to_owned()));
            thread.join().unwrap_or_else(|_| broke())
        })
    }

    fn render_here(&self, source: &str, conversation: &Conversation, add_generation_prompt: bool) -> Attempt<String> {
        let variables = self.variables(conversation, add_generation_prompt)?;
        budget::begin();
        if source.len() > MAX_SOURCE {
            return Err(RenderError::limit(format_args!(
                "has {} bytes, and no chat template has more than {MAX_SOURCE}",
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

    /// What the template can look at.
    fn variables(
        &self,
        conversation: &Conversation,
        add_generation_prompt: bool,
    ) -> Attempt<Vec<(TemplateText, Datum)>> {
        let list = |values: &Vec<serde_json::Value>| Ok(Gathered::of(values.iter().map(Datum::from_json))?.list());
        let optional = |values: &Option<Vec<serde_json::Value>>| values.as_ref().map_or(Ok(Datum::None), list);
        let mut variables = Vec::new();
        let mut add = |name: &str, value: Datum| TemplateText::new(name).map(|name| variables.push((name, value)));
        for (role, token) in &self.special_tokens {
            add(role, Datum::text(token.as_str())?)?;
        }
        for (name, value) in &conversation.variables {
            add(name, Datum::from_json(value)?)?;
        }
        add("messages", list(&conversation.messages)?)?;
        add("tools", optional(&conversation.tools)?)?;
        add("documents", optional(&conversation.documents)?)?;
        add("add_generation_prompt", Datum::Bool(add_generation_prompt))?;
        Ok(variables)
    }
}
