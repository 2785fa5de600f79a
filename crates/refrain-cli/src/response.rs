//! Streams a response to the terminal, with reasoning kept separate from the answer.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use clap::ValueEnum;
use refrain_engine::{GeneratedText, Generation};
use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions};

use crate::interrupt;
use crate::markdown::MarkdownStream;
use crate::output::{self, human_rate, human_seconds};

/// Where reasoning is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReasoningOutput {
    /// On a terminal, dimmed; not in files and pipes
    #[default]
    Auto,
    /// Everywhere, between the model's tags if it cannot be dimmed
    Show,
    /// Never
    Hide,
}

/// How reasoning is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasoningStyle {
    Hidden,
    Dimmed,
    Tagged,
}

impl ReasoningOutput {
    fn style(self) -> ReasoningStyle {
        match self {
            Self::Hide => ReasoningStyle::Hidden,
            Self::Auto if !io::stdout().is_terminal() => ReasoningStyle::Hidden,
            _ if output::can_dim() => ReasoningStyle::Dimmed,
            _ => ReasoningStyle::Tagged,
        }
    }
}

/// What was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Reasoning,
    Answer,
}

/// Receives generated text, separates reasoning from the answer, collects both and writes them.
#[derive(Debug)]
pub(crate) struct ResponseWriter {
    /// The answer so far.
    pub answer: String,
    /// The reasoning so far.
    pub reasoning: String,
    /// The tags around reasoning where it cannot be dimmed.
    tags: [&'static str; 2],
    /// Reads the model's dialect; `None` takes all text as the answer.
    reader: Option<AnswerReader>,
    /// `None`: nothing is written.
    style: Option<ReasoningStyle>,
    /// Renders the answer's Markdown, if enabled.
    markdown: Option<MarkdownStream>,
    last: Last,
    failure: Option<anyhow::Error>,
}

impl ResponseWriter {
    /// Writes to standard output. `markdown` renders Markdown if that is a terminal.
    pub fn new(reasoning: ReasoningOutput, markdown: bool) -> Self {
        Self {
            style: Some(reasoning.style()),
            markdown: output::drawable_terminal()
                .filter(|_| markdown)
                .map(|_| MarkdownStream::new()),
            ..Self::silent()
        }
    }

    /// Collects the response without writing it.
    pub fn silent() -> Self {
        Self {
            answer: String::new(),
            reasoning: String::new(),
            tags: ["<think>", "</think>"],
            reader: None,
            style: None,
            markdown: None,
            last: Last::Nothing,
            failure: None,
        }
    }

    /// Reads the response to `prompt` in a dialect from now on: reasoning is kept apart from the answer.
    pub fn read_dialect(&mut self, dialect: Dialect, prompt: &str) {
        if let Some(marks) = dialect.reasoning {
            self.tags = [marks.open, marks.close];
        }
        self.reader = Some(AnswerReader::new(dialect, Functions::default(), prompt));
    }

    /// Writes new text. Breaks if writing failed or Ctrl-C was pressed.
    pub fn push(&mut self, text: &str) -> ControlFlow<()> {
        let pieces = match &mut self.reader {
            Some(reader) => reader.push(text),
            None => vec![AnswerPiece::Text(text.to_owned())],
        };
        self.failure = self.write(pieces).err();
        if self.failure.is_some() || interrupt::requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Writes generated text until it ends or [`ResponseWriter::push`] breaks.
    ///
    /// # Errors
    /// If generation fails.
    pub fn push_all(&mut self, mut text: GeneratedText<'_>) -> Result<Generation, refrain_engine::Error> {
        for piece in &mut text {
            if self.push(&piece?).is_break() {
                break;
            }
        }
        Ok(text.end())
    }

    /// Flushes held-back text and ends the line.
    ///
    /// # Errors
    /// If writing failed, now or before.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let rest = self.reader.as_mut().map(AnswerReader::finish);
        self.write(rest.unwrap_or_default())?;
        if self.markdown.is_some() && self.last == Last::Answer {
            return self.finish_markdown();
        }
        if self.style.is_some() && !self.answer.ends_with('\n') {
            output::print("\n")
        } else {
            Ok(())
        }
    }

    /// Whether the response ended inside a reasoning block.
    pub fn is_thinking(&self) -> bool {
        self.reader.as_ref().is_some_and(AnswerReader::is_reasoning)
    }

    fn write(&mut self, pieces: Vec<AnswerPiece>) -> anyhow::Result<()> {
        for piece in pieces {
            match piece {
                AnswerPiece::Reasoning(text) => self.write_reasoning(&text)?,
                // No tools are offered: a call of one is text like any other.
                AnswerPiece::Text(text) | AnswerPiece::Arguments(text) => self.write_answer(&text)?,
                AnswerPiece::Call { name, .. } => self.write_answer(&format!("{name} "))?,
            }
        }
        Ok(())
    }

    fn write_reasoning(&mut self, text: &str) -> anyhow::Result<()> {
        self.reasoning.push_str(text);
        let Some(style) = self.style.filter(|style| *style != ReasoningStyle::Hidden) else {
            return Ok(());
        };
        if self.last == Last::Answer {
            self.finish_markdown()?;
        }
        match style {
            ReasoningStyle::Dimmed => output::print_dimmed(text)?,
            _ if self.last == Last::Nothing => output::print_text(&format!("{}\n{text}", self.tags[0]))?,
            _ => output::print_text(text)?,
        }
        self.last = Last::Reasoning;
        Ok(())
    }

    fn write_answer(&mut self, text: &str) -> anyhow::Result<()> {
        self.answer.push_str(text);
        let Some(style) = self.style.filter(|_| !text.is_empty()) else {
            return Ok(());
        };
        match (self.last, style) {
            (Last::Reasoning, ReasoningStyle::Tagged) => output::print_text(&format!("\n{}\n\n", self.tags[1]))?,
            (Last::Reasoning, _) => output::print_text("\n\n")?,
            _ => {}
        }
        match (&mut self.markdown, output::drawable_terminal()) {
            (Some(markdown), Some(size)) => output::draw(&markdown.push(text, size))?,
            _ => output::print_text(text)?,
        }
        self.last = Last::Answer;
        Ok(())
    }

    /// Flushes the Markdown renderer and ends the line.
    fn finish_markdown(&mut self) -> anyhow::Result<()> {
        match (&mut self.markdown, output::drawable_terminal()) {
            (Some(markdown), Some(size)) => output::draw(&markdown.finish(size)),
            _ => Ok(()),
        }
    }
}

/// A response's token counts and speeds in one line.
pub(crate) fn summary(generation: &Generation) -> String {
    let rate = |rate: Option<f64>| match rate {
        Some(rate) => format!(" ({} tokens/s)", human_rate(rate)),
        None => String::new(),
    };
    format!(
        "{} tokens{}; prompt {} tokens{}; time to first token {}; finish reason: {}",
        generation.ids.len(),
        rate(generation.decode_rate()),
        generation.prompt_tokens,
        rate(generation.prompt_rate()),
        human_seconds(generation.time_to_first.as_secs_f64()),
        generation.finish.name(),
    )
}
