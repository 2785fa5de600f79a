//! Options that `run` and `chat` share, and the rendering of prompts with chat templates.

use std::cell::OnceCell;
use std::path::PathBuf;

use clap::Args;
use refrain_engine::{EngineOptions, Model, Speculation};
use refrain_grammar::{
    Grammar, GrammarCompiler, GrammarError, ReasoningBudget, ReasoningSource, ReasoningTokens, SpecialTokens,
};
use refrain_models::Checkpoint;
use refrain_text::dialects::Dialect;
use refrain_text::{ChatTemplate, Conversation, ReasoningOptions, Tokenizer};
use serde_json::Value;

use crate::cache_args::CacheArguments;
use crate::decoding::DecodingArguments;
use crate::model::TokenizerSource;
use crate::response::{ReasoningOutput, ResponseWriter};
use crate::sampling::SamplingArguments;
use crate::speculation_args::{Guesser, SpeculationArguments};
use crate::value_parsers::token_limit;
use crate::{Global, Usage, hyphen_text, input};

/// Marks a `--template-arg` that is an object of several variables.
const SEVERAL_VARIABLES: &str = "";

/// Options of commands that generate responses.
#[derive(Debug, Args)]
pub(crate) struct GenerationArguments {
    /// System message for the chat template
    #[arg(long, alias = "system-prompt", value_name = "TEXT", value_parser = hyphen_text::text)]
    pub system: Option<String>,
    /// Enable reasoning (thinking) before the answer [default: as the chat template does]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        overrides_with = "no_think"
    )]
    think: Option<bool>,
    /// Disable reasoning; if the template has no switch for it, an empty reasoning block is added to the prompt
    #[arg(long, overrides_with = "think")]
    no_think: bool,
    /// Maximum number of tokens of reasoning; then it is closed and the answer follows. 0 disables reasoning, -1 is no
    /// limit [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(-1..), allow_hyphen_values = true)]
    reasoning_budget: Option<i64>,
    /// Set a chat template variable, such as enable_thinking=false or date="today" (may be repeated)
    #[arg(
        long,
        aliases = ["chat-template-kwargs", "chat-template-config"],
        value_name = "NAME=JSON",
        value_parser = template_argument
    )]
    template_arg: Vec<(String, Value)>,
    /// Use this chat template instead of the model's own
    #[arg(long, alias = "chat-template-file", value_name = "FILE.jinja")]
    pub template: Option<PathBuf>,
    /// Maximum number of tokens to generate [default: until the model stops or the context is full]
    #[arg(
        short = 'n',
        long,
        aliases = ["n-predict", "predict", "num-predict"],
        value_name = "N",
        value_parser = token_limit,
        help_heading = "Output"
    )]
    pub max_tokens: Option<usize>,
    /// Stop before this string (may be repeated)
    #[arg(long, value_name = "TEXT", value_parser = hyphen_text::text, help_heading = "Output")]
    pub stop: Vec<String>,
    /// Show reasoning: auto, show or hide [default: auto, dimmed on a terminal and left out of files and
    /// pipes]
    #[arg(
        long,
        alias = "thoughts",
        value_enum,
        value_name = "WHEN",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub reasoning: Option<ReasoningOutput>,
    /// Print Markdown as plain text instead of rendering it on a terminal
    #[arg(long, help_heading = "Output")]
    pub no_markdown: bool,
    /// Context length in tokens, prompt and responses together [default: 4096, or more if the prompt
    /// and -n need it, up to the model's limit]
    #[arg(
        short = 'c',
        long,
        alias = "ctx-size",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Context"
    )]
    ctx: Option<u32>,
    #[command(flatten, next_help_heading = "Context")]
    pub cache: CacheArguments,
    #[command(flatten)]
    pub sampling: SamplingArguments,
    /// CPU threads to use with --device cpu [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Performance")]
    threads: Option<u32>,
    #[command(flatten, next_help_heading = "Performance")]
    speculation: SpeculationArguments,
    #[command(flatten, next_help_heading = "Performance")]
    decoding: DecodingArguments,
}

impl GenerationArguments {
    /// Validates what clap cannot, and sets up the thread pool.
    ///
    /// # Errors
    /// If an argument is invalid.
    pub fn prepare(&self) -> Result<(), Usage> {
        if self.stop.iter().any(String::is_empty) {
            return Err(Usage("--stop must not be empty".to_owned()));
        }
        if let Some(threads) = self.threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize);
            pool.build_global()
                .map_err(|error| Usage(format!("--threads {threads}: {error}")))?;
        }
        Ok(())
    }

    /// Finds what guesses tokens of a model.
    ///
    /// # Errors
    /// As [`SpeculationArguments::guesser`].
    pub fn guesser(&self, global: &Global, checkpoint: &Checkpoint) -> anyhow::Result<Guesser> {
        self.speculation.guesser(global, checkpoint, self.cache)
    }

    /// Returns the options of an engine for one request at a time, with a context of `context` tokens. `draft` is the model
    /// that guesses, if one does.
    pub fn engine_options(
        &self,
        model: &Model,
        context: usize,
        speculation: Speculation,
        draft: Option<Model>,
    ) -> EngineOptions {
        let mut options = EngineOptions {
            speculation,
            draft,
            ..EngineOptions::single(context)
        };
        self.decoding.apply_to(&mut options, model);
        options
    }

    /// The requested context length in tokens.
    pub fn context(&self) -> Option<usize> {
        self.ctx.map(|context| context as usize)
    }

    /// The first given option that needs a chat template, if any.
    pub fn template_option(&self) -> Option<&'static str> {
        let options = [
            (self.system.is_some(), "--system"),
            (self.think.is_some(), "--think"),
            (self.no_think, "--no-think"),
            (self.reasoning_budget.is_some(), "--reasoning-budget"),
            (!self.template_arg.is_empty(), "--template-arg"),
            (self.template.is_some(), "--template"),
        ];
        options.into_iter().find_map(|(given, name)| given.then_some(name))
    }

    /// Maximum number of tokens of reasoning.
    pub fn reasoning_budget(&self) -> Option<usize> {
        usize::try_from(self.reasoning_budget?).ok()
    }

    /// Returns a writer for the next response.
    pub fn writer(&self, markdown: bool) -> ResponseWriter {
        ResponseWriter::new(self.reasoning.unwrap_or_default(), markdown)
    }

    /// Sets the template variables of the command line.
    pub fn set_variables(&self, conversation: &mut Conversation) {
        for (name, value) in &self.template_arg {
            match value {
                Value::Object(object) if name == SEVERAL_VARIABLES => conversation.variables.extend(object.clone()),
                _ => {
                    conversation.variables.insert(name.clone(), value.clone());
                }
            }
        }
    }

    /// Opens the model's tokenizer, and a prompt renderer if there is a chat template.
    ///
    /// # Errors
    /// If a file is missing or damaged.
    pub fn tokenizer_and_renderer(
        &self,
        model: &str,
        checkpoint: &Checkpoint,
    ) -> anyhow::Result<(Tokenizer, Option<PromptRenderer>)> {
        let tokenizer = checkpoint.tokenizer()?;
        let template = match &self.template {
            Some(file) => {
                let special = TokenizerSource::open(model)?.special_tokens()?;
                Some(ChatTemplate::new(input::read_text(file)?, special))
            }
            None => checkpoint.chat_template()?,
        };
        let think = self.think.or(self.no_think.then_some(false));
        Ok(match template {
            None => (tokenizer, None),
            Some(template) => {
                let (tokenizer, mut renderer) = PromptRenderer::new(template, tokenizer, think);
                renderer.budget = self.reasoning_budget();
                (tokenizer, Some(renderer))
            }
        })
    }
}

/// Renders conversations into prompts.
pub(crate) struct PromptRenderer {
    template: ChatTemplate,
    /// How the model writes reasoning and text.
    dialect: Dialect,
    /// Whether to enable reasoning; `None` leaves it to the template.
    pub think: Option<bool>,
    /// Maximum number of tokens of reasoning.
    pub budget: Option<usize>,
    /// What budgets are made with, once there is one.
    compiler: OnceCell<Result<GrammarCompiler, GrammarError>>,
}

impl PromptRenderer {
    /// Creates a renderer. The returned tokenizer also decodes the tags of reasoning blocks.
    pub fn new(template: ChatTemplate, tokenizer: Tokenizer, think: Option<bool>) -> (Tokenizer, Self) {
        let dialect = Dialect::of(&template, Some(&tokenizer));
        let prompter = Self {
            template,
            dialect,
            think,
            budget: None,
            compiler: OnceCell::new(),
        };
        (tokenizer.show_special(&dialect.marks()), prompter)
    }

    /// Renders the prompt, up to where the response begins.
    ///
    /// # Errors
    /// If the template rejects the conversation or fails, or reasoning is requested of a model that has none.
    pub fn prompt(&self, conversation: &Conversation) -> Result<String, refrain_formats::Error> {
        let is_refused = self.think == Some(true) && !self.dialect.reasons();
        if is_refused && !self.template.switches_reasoning(conversation) {
            return Err(refrain_formats::Error::Template(
                "has no switch for reasoning".to_owned(),
            ));
        }
        let reasoning = ReasoningOptions::switched(self.think).with_budget(self.budget);
        self.template.render_for_answer(conversation, &reasoning, &self.dialect)
    }

    /// Tells a writer how to recognise reasoning in the response to `prompt`.
    pub fn configure_writer(&self, prompt: &str, writer: &mut ResponseWriter) {
        writer.read_dialect(self.dialect.without_calls(), prompt);
    }

    /// The tokens that delimit reasoning in the response to `prompt`, if there may be any.
    pub fn reasoning(&self, prompt: &str, tokenizer: &Tokenizer) -> Option<ReasoningTokens> {
        let marks = self.dialect.reasoning?;
        let is_open = prompt.trim_end().ends_with(marks.open);
        let may_begin = !is_open && self.think != Some(false);
        Some(ReasoningTokens {
            open: tokenizer.id(marks.open).filter(|_| may_begin),
            close: tokenizer.id(marks.close)?,
            is_open,
        })
    }

    /// The limit of reasoning in the response to `prompt`, if there is one.
    ///
    /// # Errors
    /// If the tokenizer's tokens cannot be read.
    pub fn reasoning_budget(
        &self,
        prompt: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Option<ReasoningBudget>, GrammarError> {
        let Some(limit) = self.budget else {
            return Ok(None);
        };
        let compiler = self.compiler.get_or_init(|| GrammarCompiler::new(tokenizer));
        let source = ReasoningSource {
            dialect: &self.dialect.without_calls(),
            may_call: false,
            prompt_end: prompt,
        };
        let compiler = compiler.as_ref().map_err(Clone::clone)?;
        Ok(compiler.reasoning_budget(limit, source, tokenizer))
    }

    /// The grammar of answers whose text has a form, with what the model writes around text.
    ///
    /// # Errors
    /// If the form is invalid.
    pub fn answer_grammar(&self, form: Grammar, tokenizer: &Tokenizer) -> Result<Grammar, GrammarError> {
        form.in_dialect(&self.dialect, &SpecialTokens::of(tokenizer))
    }
}

/// Parses `NAME=JSON`, or a JSON object of several variables. A value that is not JSON is taken as a string.
fn template_argument(text: &str) -> Result<(String, Value), String> {
    if text.trim_start().starts_with('{') {
        let object = serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))?;
        return Ok((SEVERAL_VARIABLES.to_owned(), Value::Object(object)));
    }
    let (name, value) = text.split_once('=').ok_or("not NAME=JSON")?;
    let name = name.trim();
    match name {
        "" => Err("not NAME=JSON".to_owned()),
        "messages" | "tools" | "documents" | "add_generation_prompt" => {
            Err(format!("{name} is part of the conversation and cannot be set"))
        }
        _ => Ok((
            name.to_owned(),
            serde_json::from_str(value).unwrap_or_else(|_| Value::from(value)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_template_arguments() {
        let given = |text| template_argument(text).unwrap();
        assert_eq!(
            given("enable_thinking=false"),
            ("enable_thinking".to_owned(), json!(false))
        );
        assert_eq!(given("date=26 Jul"), ("date".to_owned(), json!("26 Jul")));
        assert_eq!(given("n=[1]"), ("n".to_owned(), json!([1])));
        assert_eq!(given(r#"{"a": 1}"#), (SEVERAL_VARIABLES.to_owned(), json!({"a": 1})));
        for wrong in ["enable_thinking", "=1", "{", "messages=[]"] {
            assert!(template_argument(wrong).is_err(), "{wrong}");
        }
    }
}
