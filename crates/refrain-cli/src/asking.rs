//! How a model is asked, in `run` and in `chat`.

use std::path::PathBuf;

use clap::Args;
use refrain_grammar::ReasoningTokens;
use refrain_models::Checkpoint;
use refrain_text::{ChatTemplate, Conversation, ReasoningMarks, Tokenizer};
use serde_json::Value;

use crate::answer::{AnswerWriter, ReasoningOutput};
use crate::decoding::DecodingArguments;
use crate::model::TextSide;
use crate::numbers::most_tokens;
use crate::sampling::SamplingArguments;
use crate::{Usage, input};

/// What stands for an object of variables instead of one of them.
const OBJECT: &str = "";

/// Options of commands that let a model answer.
#[derive(Debug, Args)]
pub(crate) struct AskArguments {
    /// System message for the chat template
    #[arg(long, alias = "system-prompt", value_name = "TEXT")]
    pub system: Option<String>,
    /// Let the model think before it answers [default: as its chat template has it]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        overrides_with = "no_think"
    )]
    think: Option<bool>,
    /// Let it answer at once; where the template has no switch for that, the prompt has an empty thought
    #[arg(long, overrides_with = "think")]
    no_think: bool,
    /// Set a variable of the chat template, such as enable_thinking=false or date="today" (may be repeated)
    #[arg(
        long,
        aliases = ["chat-template-kwargs", "chat-template-config"],
        value_name = "NAME=JSON",
        value_parser = template_argument
    )]
    template_arg: Vec<(String, Value)>,
    /// Use this chat template instead of the model's
    #[arg(long, alias = "chat-template-file", value_name = "FILE.jinja")]
    pub template: Option<PathBuf>,
    /// Tokens of an answer at most [default: until the model ends it or the context is full]
    #[arg(
        short = 'n',
        long,
        aliases = ["n-predict", "predict", "num-predict"],
        value_name = "N",
        value_parser = most_tokens,
        help_heading = "Output"
    )]
    pub max_tokens: Option<usize>,
    /// End an answer before this string (may be repeated)
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    pub stop: Vec<String>,
    /// What the model thinks before it answers: auto, show or hide [default: auto, dimmed on a terminal and
    /// left out of files and pipes]
    #[arg(
        long = "thoughts",
        value_enum,
        value_name = "WHEN",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub reasoning: Option<ReasoningOutput>,
    /// Write answers as the model has them: without it, a terminal shows their markdown as it is meant
    #[arg(long, help_heading = "Output")]
    pub no_markdown: bool,
    /// Tokens that prompt and answers may have together [default: 4096 or what the prompt and -n
    /// need, up to the model's limit]
    #[arg(
        short = 'c',
        long,
        alias = "ctx-size",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Context"
    )]
    ctx: Option<u32>,
    #[command(flatten)]
    pub sampling: SamplingArguments,
    /// Threads of the CPU executor [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "To measure")]
    threads: Option<u32>,
    #[command(flatten, next_help_heading = "To measure")]
    pub decoding: DecodingArguments,
}

impl AskArguments {
    /// Checks what clap cannot, and sets up what holds for the whole program.
    ///
    /// # Errors
    /// If something cannot be meant.
    pub fn prepare(&self) -> Result<(), Usage> {
        if self.stop.iter().any(String::is_empty) {
            return Err(Usage("--stop needs a text to stop at".to_owned()));
        }
        if let Some(threads) = self.threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize);
            pool.build_global()
                .map_err(|error| Usage(format!("--threads {threads}: {error}")))?;
        }
        Ok(())
    }

    /// Tokens of context that the user wants.
    pub fn context(&self) -> Option<usize> {
        self.ctx.map(|context| context as usize)
    }

    /// Whether the user says anything that only a chat template understands.
    pub fn wants_template(&self) -> Option<&'static str> {
        let wishes = [
            (self.system.is_some(), "--system"),
            (self.think.is_some(), "--think"),
            (self.no_think, "--no-think"),
            (!self.template_arg.is_empty(), "--template-arg"),
            (self.template.is_some(), "--template"),
        ];
        wishes.into_iter().find_map(|(wished, name)| wished.then_some(name))
    }

    /// A writer for the next answer.
    pub fn writer(&self, markdown: bool) -> AnswerWriter {
        AnswerWriter::new(self.reasoning.unwrap_or_default(), markdown)
    }

    /// Sets the variables that the user gives.
    pub fn set_variables(&self, conversation: &mut Conversation) {
        for (name, value) in &self.template_arg {
            match value {
                Value::Object(object) if name == OBJECT => conversation.variables.extend(object.clone()),
                _ => {
                    conversation.variables.insert(name.clone(), value.clone());
                }
            }
        }
    }

    /// The model's tokenizer and what makes prompts of conversations, if it has a template or the user gives one.
    ///
    /// # Errors
    /// If one of them is missing or damaged.
    pub fn text_side(&self, model: &str, checkpoint: &Checkpoint) -> anyhow::Result<(Tokenizer, Option<Prompter>)> {
        let tokenizer = checkpoint.tokenizer()?;
        let template = match &self.template {
            Some(file) => {
                let special = TextSide::open(model)?.special_tokens()?;
                Some(ChatTemplate::new(input::read_text(file)?, special))
            }
            None => checkpoint.chat_template()?,
        };
        let think = self.think.or(self.no_think.then_some(false));
        Ok(match template {
            None => (tokenizer, None),
            Some(template) => {
                let (tokenizer, prompter) = Prompter::new(template, tokenizer, think);
                (tokenizer, Some(prompter))
            }
        })
    }
}

/// Makes prompts of conversations.
pub(crate) struct Prompter {
    template: ChatTemplate,
    /// `None`: as far as is known, the model does not think.
    marks: Option<ReasoningMarks>,
    /// Whether the model is to think; `None`: as the template has it.
    pub think: Option<bool>,
}

impl Prompter {
    /// By a template; the tokenizer comes back as one that shows where thoughts begin and end.
    pub fn new(template: ChatTemplate, tokenizer: Tokenizer, think: Option<bool>) -> (Tokenizer, Self) {
        let marks = ReasoningMarks::of(&template, &tokenizer);
        let shown = marks.map_or(vec![], |marks| vec![marks.open, marks.close]);
        let prompter = Self { template, marks, think };
        (tokenizer.show(&shown), prompter)
    }

    /// The text up to where the model's answer begins.
    ///
    /// # Errors
    /// If the template refuses the conversation, fails, or cannot let the model think.
    pub fn prompt(&self, conversation: &Conversation) -> Result<String, refrain_formats::Error> {
        self.template.render_for_answer(conversation, self.think, self.marks)
    }

    /// Lets a writer know what thoughts look like in the answer to a prompt.
    pub fn watch(&self, prompt: &str, writer: &mut AnswerWriter) {
        let marks = self.marks.unwrap_or_default();
        writer.part(marks, marks.opened_by(prompt));
    }

    /// The tokens between which the model may think in the answer to a prompt, if it does.
    pub fn reasoning(&self, prompt: &str, tokenizer: &Tokenizer) -> Option<ReasoningTokens> {
        let marks = self.marks?;
        let is_open = marks.opened_by(prompt);
        let may_begin = !is_open && self.think != Some(false);
        Some(ReasoningTokens {
            open: tokenizer.id(marks.open).filter(|_| may_begin),
            close: tokenizer.id(marks.close)?,
            is_open,
        })
    }
}

/// `NAME=JSON`, or an object with several of them. What is no JSON is a text.
fn template_argument(text: &str) -> Result<(String, Value), String> {
    if text.trim_start().starts_with('{') {
        let object = serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))?;
        return Ok((OBJECT.to_owned(), Value::Object(object)));
    }
    let (name, value) = text.split_once('=').ok_or("not NAME=JSON")?;
    let name = name.trim();
    match name {
        "" => Err("not NAME=JSON".to_owned()),
        "messages" | "tools" | "documents" | "add_generation_prompt" => {
            Err(format!("{name} is the conversation's own, and no variable"))
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
    fn a_template_argument_is_a_name_and_json_or_a_text() {
        let given = |text| template_argument(text).unwrap();
        assert_eq!(
            given("enable_thinking=false"),
            ("enable_thinking".to_owned(), json!(false))
        );
        assert_eq!(given("date=26 Jul"), ("date".to_owned(), json!("26 Jul")));
        assert_eq!(given("n=[1]"), ("n".to_owned(), json!([1])));
        assert_eq!(given(r#"{"a": 1}"#), (OBJECT.to_owned(), json!({"a": 1})));
        for wrong in ["enable_thinking", "=1", "{", "messages=[]"] {
            assert!(template_argument(wrong).is_err(), "{wrong}");
        }
    }
}
