//! Thoughts: what some models write before their answers, between marks of their family.

use serde_json::Value;

use super::{ChatTemplate, Conversation};
use crate::{Error, Tokenizer};

/// The marks around what a model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningMarks {
    /// Begins reasoning.
    pub open: &'static str,
    /// Ends it.
    pub close: &'static str,
}

/// Qwen's, DeepSeek's and most others'.
const USUAL: ReasoningMarks = marks("<think>", "</think>");

/// By which a template or a tokenizer shows that its model thinks.
const KNOWN: [ReasoningMarks; 7] = [
    USUAL,
    // Mistral
    marks("[THINK]", "[/THINK]"),
    // Gemma
    marks("<|channel>thought", "<channel|>"),
    // Cohere
    marks("<|START_THINKING|>", "<|END_THINKING|>"),
    // Seed-OSS
    marks("<seed:think>", "</seed:think>"),
    // Apertus
    marks("<|inner_prefix|>", "<|inner_suffix|>"),
    // EXAONE Deep
    marks("<thought>", "</thought>"),
];

/// What templates call the variable that switches thinking.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

const fn marks(open: &'static str, close: &'static str) -> ReasoningMarks {
    ReasoningMarks { open, close }
}

/// Those that most models use.
impl Default for ReasoningMarks {
    fn default() -> Self {
        USUAL
    }
}

impl ReasoningMarks {
    /// The marks of a model that thinks: those in its template, else those among its tokens.
    pub fn of(template: &ChatTemplate, tokenizer: &Tokenizer) -> Option<ReasoningMarks> {
        let written = |marks: &&ReasoningMarks| {
            let mut sources = template.sources();
            sources.any(|(_, source)| source.contains(marks.open) || source.contains(marks.close))
        };
        let token = |marks: &&ReasoningMarks| tokenizer.id(marks.open).is_some() && tokenizer.id(marks.close).is_some();
        KNOWN.iter().find(written).or_else(|| KNOWN.iter().find(token)).copied()
    }

    /// Whether a rendered prompt ends within reasoning, which the answer then goes on with.
    pub fn opened_by(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.open)
    }
}

impl ChatTemplate {
    /// Render a conversation up to where the model's answer begins; `think` tells the model to think first, or
    /// not to. A template without a switch for that gets some begun, or none, by `marks`.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; if a model without switch and marks is to think.
    pub fn render_for_answer(
        &self,
        conversation: &Conversation,
        think: Option<bool>,
        marks: Option<ReasoningMarks>,
    ) -> Result<String, Error> {
        let Some(think) = think else {
            return self.render(conversation, true);
        };
        let switched = |to: bool| {
            let mut conversation = conversation.clone();
            for name in SWITCHES {
                conversation.variables.insert(name.to_owned(), Value::Bool(to));
            }
            self.render(&conversation, true)
        };
        let text = switched(think)?;
        // What a template does not look at changes nothing.
        if switched(!think).ok().as_ref() != Some(&text) {
            return Ok(text);
        }
        match (marks, think) {
            (None, false) => Ok(text),
            (None, true) => Err(Error::Template("has no switch for thinking".to_owned())),
            (Some(marks), true) if marks.opened_by(&text) => Ok(text),
            (Some(marks), true) => Ok(format!("{text}{}\n", marks.open)),
            (Some(marks), false) => {
                let text = text.trim_end().strip_suffix(marks.open).unwrap_or(&text);
                Ok(format!("{text}{}\n\n{}\n\n", marks.open, marks.close))
            }
        }
    }
}

/// New text of an answer, told apart. Where both are there, the reasoning comes first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parted {
    /// What the model thinks.
    pub reasoning: String,
    /// What it answers.
    pub answer: String,
}

/// Tells reasoning from answer in a text that comes piece by piece. A mark begins reasoning only where nothing
/// was answered yet; the marks and the blanks around them are left out.
#[derive(Debug)]
pub struct ReasoningSplitter {
    marks: ReasoningMarks,
    state: SplitterState,
    /// What may be part of a mark, and blanks that may stand before one.
    held: String,
    /// Whether there was reasoning.
    reasoning: bool,
    /// Whether something of the present one was given out.
    told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitterState {
    /// Nothing but blanks since the beginning or the last reasoning.
    Between,
    Thinking,
    Answering,
}

impl ReasoningSplitter {
    /// A splitter for an answer; `opened`: it begins within reasoning.
    pub fn new(marks: ReasoningMarks, opened: bool) -> Self {
        Self {
            marks,
            state: if opened {
                SplitterState::Thinking
            } else {
                SplitterState::Between
            },
            held: String::new(),
            reasoning: opened,
            told: false,
        }
    }

    /// Whether the text is in the middle of reasoning.
    pub fn is_thinking(&self) -> bool {
        self.state == SplitterState::Thinking
    }

    /// Takes the next piece of the text, and gives out what is certain now.
    pub fn push(&mut self, piece: &str) -> Parted {
        self.held.push_str(piece);
        let mut parted = Parted::default();
        while self.advance(&mut parted) {}
        parted
    }

    /// The end of the text: what was held back.
    pub fn finish(&mut self) -> Parted {
        let held = std::mem::take(&mut self.held);
        let mut parted = Parted::default();
        match self.state {
            SplitterState::Thinking => parted.reasoning.push_str(held.trim_end()),
            SplitterState::Between if self.reasoning && held.trim().is_empty() => {}
            SplitterState::Between | SplitterState::Answering => parted.answer = held,
        }
        parted
    }

    /// Goes as far as the held text is certain; true if the state changed.
    fn advance(&mut self, parted: &mut Parted) -> bool {
        match self.state {
            SplitterState::Between => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(self.marks.open) {
                    if self.reasoning {
                        parted.reasoning.push_str("\n\n");
                    }
                    self.held = rest.to_owned();
                    (self.state, self.reasoning, self.told) = (SplitterState::Thinking, true, false);
                    return true;
                }
                if self.marks.open.starts_with(text) {
                    return false;
                }
                if self.reasoning {
                    self.held = text.to_owned();
                }
                self.state = SplitterState::Answering;
                true
            }
            SplitterState::Thinking => {
                if !self.told {
                    self.held = self.held.trim_start().to_owned();
                }
                if let Some(at) = self.held.find(self.marks.close) {
                    parted.reasoning.push_str(self.held[..at].trim_end());
                    self.held.drain(..at + self.marks.close.len());
                    self.state = SplitterState::Between;
                    return true;
                }
                let certain = self.held.len() - begun(&self.held, self.marks.close);
                // Blanks may be the last of the reasoning.
                let certain = self.held[..certain].trim_end().len();
                self.told |= certain > 0;
                parted.reasoning.extend(self.held.drain(..certain));
                false
            }
            SplitterState::Answering => {
                parted.answer.push_str(&std::mem::take(&mut self.held));
                false
            }
        }
    }
}

/// Bytes at the end of a text that begin `mark`.
fn begun(text: &str, mark: &str) -> usize {
    let lengths = mark.char_indices().map(|(length, _)| length);
    lengths
        .filter(|length| text.ends_with(&mark[..*length]))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Thought and answer, given piece by piece.
    fn parted(pieces: &[&str], opened: bool) -> (String, String) {
        let mut splitter = ReasoningSplitter::new(ReasoningMarks::default(), opened);
        let mut all: Vec<Parted> = pieces.iter().map(|piece| splitter.push(piece)).collect();
        all.push(splitter.finish());
        let reasoning = all.iter().map(|parted| parted.reasoning.as_str()).collect();
        (reasoning, all.iter().map(|parted| parted.answer.as_str()).collect())
    }

    fn pair(reasoning: &str, answer: &str) -> (String, String) {
        (reasoning.to_owned(), answer.to_owned())
    }

    #[test]
    fn reasoning_is_told_from_the_answer_however_the_text_is_cut() {
        let text = "<think>\nTwo and two.\n\nOr < three?\n</think>\n\nFour </think> é.";
        let expected = pair("Two and two.\n\nOr < three?", "Four </think> é.");
        assert_eq!(parted(&[text], false), expected);
        let single: Vec<String> = text.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(parted(&single, false), expected);
        for (at, _) in text.char_indices() {
            let (left, right) = text.split_at(at);
            assert_eq!(parted(&[left, right], false), expected, "{at}");
        }
    }

    #[test]
    fn reasoning_may_begin_in_the_prompt_and_may_be_empty_or_never_end() {
        assert_eq!(parted(&["\nHm", ".\n</think>", "\n\n4"], true), pair("Hm.", "4"));
        assert_eq!(parted(&["<think>\n\n</think>\n\n4\n"], false), pair("", "4\n"));
        assert_eq!(parted(&["<think>so ", "<b </thin"], false), pair("so <b </thin", ""));
        assert_eq!(
            parted(&["<think>a</think>\n<think>b</think>\n\nc"], false),
            pair("a\n\nb", "c")
        );
    }

    #[test]
    fn what_is_no_reasoning_stays_as_it_is() {
        for text in [
            "",
            " Hello\n",
            "Write <think> before </think>.",
            "<thin",
            "  \n",
            "</think>x",
        ] {
            assert_eq!(parted(&[text], false), pair("", text), "{text:?}");
        }
    }

    #[test]
    fn reasoning_is_given_out_as_it_comes() {
        let mut splitter = ReasoningSplitter::new(ReasoningMarks::default(), false);
        assert_eq!(splitter.push("<think>one two ").reasoning, "one two");
        assert!(splitter.is_thinking());
        assert_eq!(splitter.push("three").reasoning, " three");
        assert_eq!(splitter.push("</think>").answer, "");
        assert_eq!(splitter.push(" 4").answer, "4");
    }

    fn render(source: &str, think: Option<bool>, marks: Option<ReasoningMarks>) -> Result<String, Error> {
        let conversation = Conversation::from_prompt(None, "hi");
        ChatTemplate::new(source, BTreeMap::new()).render_for_answer(&conversation, think, marks)
    }

    #[test]
    fn a_template_with_a_switch_is_switched() {
        for name in SWITCHES {
            let source = format!("A:{{% if {name} is defined and not {name} %}}<think>\n\n</think>\n{{% endif %}}");
            let told = |think| render(&source, think, Some(USUAL)).unwrap();
            assert_eq!(told(None), "A:");
            assert_eq!(told(Some(true)), "A:");
            assert_eq!(told(Some(false)), "A:<think>\n\n</think>\n");
        }
    }

    #[test]
    fn without_a_switch_the_prompt_begins_reasoning_or_ends_it() {
        let told = |source: &str, think| render(source, Some(think), Some(USUAL)).unwrap();
        assert_eq!(told("A:", true), "A:<think>\n");
        assert_eq!(told("A:", false), "A:<think>\n\n</think>\n\n");
        assert_eq!(told("A:{{ '<think>\n' }}", true), "A:<think>\n");
        assert_eq!(told("A:{{ '<think>\n' }}", false), "A:<think>\n\n</think>\n\n");
        // Of a model that does not think, nothing else is asked.
        assert_eq!(render("A:", Some(false), None).unwrap(), "A:");
        let error = render("A:", Some(true), None).unwrap_err().to_string();
        assert!(error.contains("no switch for thinking"), "{error}");
    }

    #[test]
    fn a_prompt_that_ends_with_the_mark_has_opened_the_reasoning() {
        assert!(USUAL.opened_by("A:<think>\n"));
        assert!(!USUAL.opened_by("A:<think>\n\n</think>\n\n") && !USUAL.opened_by("<think>?\nA:"));
    }
}
