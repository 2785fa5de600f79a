//! Writing an answer as it comes, with what the model thinks apart.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use clap::ValueEnum;
use refrain_engine::{GeneratedText, Generation};
use refrain_formats::{Parted, ThoughtMarks, ThoughtSplitter};

use crate::interrupt;
use crate::output::{self, human_rate, human_seconds};

/// Where thoughts are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Thoughts {
    /// On a terminal, dimmed; not in files and pipes
    #[default]
    Auto,
    /// Everywhere, between the model's marks where they cannot be dimmed
    Show,
    /// Nowhere
    Hide,
}

/// How thoughts look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Hidden,
    Dimmed,
    Marked,
}

impl Thoughts {
    fn look(self) -> Look {
        match self {
            Self::Hide => Look::Hidden,
            Self::Auto if !io::stdout().is_terminal() => Look::Hidden,
            _ if output::dims() => Look::Dimmed,
            _ => Look::Marked,
        }
    }
}

/// What was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Thought,
    Answer,
}

/// Takes the text of an answer, keeps thoughts and answer, and writes them.
#[derive(Debug)]
pub(crate) struct AnswerWriter {
    /// What the model answered so far.
    pub answer: String,
    /// What it thought so far.
    pub thoughts: String,
    marks: ThoughtMarks,
    splitter: Option<ThoughtSplitter>,
    /// `None`: nothing is written.
    look: Option<Look>,
    last: Last,
    failure: Option<anyhow::Error>,
}

impl AnswerWriter {
    /// Writes to the standard output.
    pub fn new(thoughts: Thoughts) -> Self {
        Self {
            look: Some(thoughts.look()),
            ..Self::silent()
        }
    }

    /// Writes nothing.
    pub fn silent() -> Self {
        Self {
            answer: String::new(),
            thoughts: String::new(),
            marks: ThoughtMarks::default(),
            splitter: None,
            look: None,
            last: Last::Nothing,
            failure: None,
        }
    }

    /// Looks for thoughts from now on; `opened`: the prompt has begun one.
    pub fn part(&mut self, marks: ThoughtMarks, opened: bool) {
        self.marks = marks;
        self.splitter = Some(ThoughtSplitter::new(marks, opened));
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
        match self.failure.is_some() || interrupt::requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
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
        let rest = self.splitter.as_mut().map(ThoughtSplitter::finish);
        self.write(&rest.unwrap_or_default())?;
        match self.look.is_some() && !self.answer.ends_with('\n') {
            true => output::print("\n"),
            false => Ok(()),
        }
    }

    /// Whether the text ended within a thought.
    pub fn is_thinking(&self) -> bool {
        self.splitter.as_ref().is_some_and(ThoughtSplitter::is_thinking)
    }

    fn write(&mut self, new: &Parted) -> anyhow::Result<()> {
        self.thoughts.push_str(&new.thought);
        self.answer.push_str(&new.answer);
        let Some(look) = self.look else {
            return Ok(());
        };
        if !new.thought.is_empty() && look != Look::Hidden {
            match look {
                Look::Dimmed => output::print_dimmed(&new.thought)?,
                _ if self.last == Last::Nothing => {
                    output::print_text(&format!("{}\n{}", self.marks.open, new.thought))?;
                }
                _ => output::print_text(&new.thought)?,
            }
            self.last = Last::Thought;
        }
        if !new.answer.is_empty() {
            match (self.last, look) {
                (Last::Thought, Look::Marked) => {
                    output::print_text(&format!("\n{}\n\n{}", self.marks.close, new.answer))?
                }
                (Last::Thought, _) => output::print_text(&format!("\n\n{}", new.answer))?,
                _ => output::print_text(&new.answer)?,
            }
            self.last = Last::Answer;
        }
        Ok(())
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
