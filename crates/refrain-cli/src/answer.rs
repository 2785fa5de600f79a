//! Writing an answer as it comes, with what the model thinks apart.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use clap::ValueEnum;
use refrain_engine::{GeneratedText, Generation};
use refrain_text::{Parted, ReasoningMarks, ReasoningSplitter};

use crate::interrupt;
use crate::markdown::MarkdownStream;
use crate::output::{self, human_rate, human_seconds};

/// Where reasoning is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReasoningOutput {
    /// On a terminal, dimmed; not in files and pipes
    #[default]
    Auto,
    /// Everywhere, between the model's marks where they cannot be dimmed
    Show,
    /// Nowhere
    Hide,
}

/// How reasoning looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasoningLook {
    Hidden,
    Dimmed,
    Marked,
}

impl ReasoningOutput {
    fn look(self) -> ReasoningLook {
        match self {
            Self::Hide => ReasoningLook::Hidden,
            Self::Auto if !io::stdout().is_terminal() => ReasoningLook::Hidden,
            _ if output::dims() => ReasoningLook::Dimmed,
            _ => ReasoningLook::Marked,
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

/// Takes the text of an answer, keeps reasoning and answer, and writes them.
#[derive(Debug)]
pub(crate) struct AnswerWriter {
    /// What the model answered so far.
    pub answer: String,
    /// Its reasoning so far.
    pub reasoning: String,
    marks: ReasoningMarks,
    splitter: Option<ReasoningSplitter>,
    /// `None`: nothing is written.
    look: Option<ReasoningLook>,
    /// Draws the answer, if it is drawn.
    markdown: Option<MarkdownStream>,
    last: Last,
    failure: Option<anyhow::Error>,
}

impl AnswerWriter {
    /// Writes to the standard output, `markdown` as it is meant where that is a terminal.
    pub fn new(reasoning: ReasoningOutput, markdown: bool) -> Self {
        Self {
            look: Some(reasoning.look()),
            markdown: output::canvas().filter(|_| markdown).map(|_| MarkdownStream::new()),
            ..Self::silent()
        }
    }

    /// Writes nothing.
    pub fn silent() -> Self {
        Self {
            answer: String::new(),
            reasoning: String::new(),
            marks: ReasoningMarks::default(),
            splitter: None,
            look: None,
            markdown: None,
            last: Last::Nothing,
            failure: None,
        }
    }

    /// Looks for reasoning from now on; `opened`: the prompt has begun some.
    pub fn part(&mut self, marks: ReasoningMarks, opened: bool) {
        self.marks = marks;
        self.splitter = Some(ReasoningSplitter::new(marks, opened));
    }

    /// Takes new text; breaks where it cannot be written, or Ctrl-C was pressed.
    pub fn take(&mut self, text: &str) -> ControlFlow<()> {
        let parted = match &mut self.splitter {
            Some(splitter) => splitter.push(text),
            None => Parted {
                answer: text.to_owned(),
                ..Parted::default()
            },
        };
        self.failure = self.write(&parted).err();
        if self.failure.is_some() || interrupt::requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Takes a text as it is generated, until it ends or [`AnswerWriter::take`] breaks.
    ///
    /// # Errors
    /// If the model cannot go on.
    pub fn take_all(&mut self, mut text: GeneratedText<'_>) -> Result<Generation, refrain_engine::Error> {
        for piece in &mut text {
            if self.take(&piece?).is_break() {
                break;
            }
        }
        text.end()
    }

    /// Writes what was held back, and ends the line.
    ///
    /// # Errors
    /// If something could not be written, now or before.
    pub fn end(&mut self) -> anyhow::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let rest = self.splitter.as_mut().map(ReasoningSplitter::finish);
        self.write(&rest.unwrap_or_default())?;
        if self.markdown.is_some() && self.last == Last::Answer {
            return self.end_markdown();
        }
        if self.look.is_some() && !self.answer.ends_with('\n') {
            output::print("\n")
        } else {
            Ok(())
        }
    }

    /// Whether the text ended within reasoning.
    pub fn is_thinking(&self) -> bool {
        self.splitter.as_ref().is_some_and(ReasoningSplitter::is_thinking)
    }

    fn write(&mut self, new: &Parted) -> anyhow::Result<()> {
        self.reasoning.push_str(&new.reasoning);
        self.answer.push_str(&new.answer);
        let Some(look) = self.look else {
            return Ok(());
        };
        if !new.reasoning.is_empty() && look != ReasoningLook::Hidden {
            if self.last == Last::Answer {
                self.end_markdown()?;
            }
            match look {
                ReasoningLook::Dimmed => output::print_dimmed(&new.reasoning)?,
                _ if self.last == Last::Nothing => {
                    output::print_text(&format!("{}\n{}", self.marks.open, new.reasoning))?;
                }
                _ => output::print_text(&new.reasoning)?,
            }
            self.last = Last::Reasoning;
        }
        if !new.answer.is_empty() {
            match (self.last, look) {
                (Last::Reasoning, ReasoningLook::Marked) => output::print_text(&format!("\n{}\n\n", self.marks.close))?,
                (Last::Reasoning, _) => output::print_text("\n\n")?,
                _ => {}
            }
            match (&mut self.markdown, output::canvas()) {
                (Some(markdown), Some(size)) => output::draw(&markdown.push(&new.answer, size))?,
                _ => output::print_text(&new.answer)?,
            }
            self.last = Last::Answer;
        }
        Ok(())
    }

    /// Draws what was held back of an answer, and ends its line.
    fn end_markdown(&mut self) -> anyhow::Result<()> {
        match (&mut self.markdown, output::canvas()) {
            (Some(markdown), Some(size)) => output::draw(&markdown.end(size)),
            _ => Ok(()),
        }
    }
}

/// An answer's figures in one line.
pub(crate) fn summary(generation: &Generation) -> String {
    let rate = |rate: Option<f64>| match rate {
        Some(rate) => format!(" ({} tokens/s)", human_rate(rate)),
        None => String::new(),
    };
    format!(
        "{} tokens{}; prompt {}{}; first token after {}; end: {}",
        generation.ids.len(),
        rate(generation.decode_rate()),
        generation.prompt_tokens,
        rate(generation.prompt_rate()),
        human_seconds(generation.time_to_first.as_secs_f64()),
        generation.finish.name(),
    )
}
