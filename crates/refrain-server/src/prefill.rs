//! The beginning of an answer that the client gives, for the model to continue.

use refrain_text::dialects::{Dialect, Marks};
use serde_json::Value;

/// The beginning of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefill {
    /// Reasoning before the text. Empty if there is none.
    pub reasoning: String,
    /// The text to continue.
    pub text: String,
}

impl Prefill {
    /// Removes the last message and returns it as a prefill, if it is the assistant's and calls no tools.
    ///
    /// `messages` are as [`crate::messages::read`] returns them.
    pub fn take(messages: &mut Vec<Value>) -> Option<Prefill> {
        let last = messages.last()?;
        let has_calls = last["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        if last["role"] != "assistant" || has_calls {
            return None;
        }
        let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
        let prefill = Prefill {
            reasoning: text("reasoning_content"),
            text: text("content"),
        };
        messages.pop();
        Some(prefill)
    }

    /// Appends to a rendered prompt everything that stands before the text: the reasoning, headers and marks.
    pub fn open(&self, prompt: &mut String, dialect: &Dialect) {
        match dialect.messages {
            Some(format) => {
                if let Some(header) = format.headers.reasoning.filter(|_| !self.reasoning.is_empty()) {
                    let end = format.ends.first().copied().unwrap_or_default();
                    prompt.extend([header, &self.reasoning, end, format.start]);
                }
                prompt.push_str(format.headers.text);
            }
            None => {
                if let Some(marks) = dialect.reasoning {
                    self.write_reasoning(prompt, marks);
                }
                let marks = dialect.calls.and_then(|notation| notation.text);
                if let Some(marks) = marks.filter(|marks| !prompt.trim_end().ends_with(marks.open.trim_end())) {
                    prompt.push_str(marks.open);
                }
            }
        }
    }

    /// Appends the reasoning, and closes a block that the template opened.
    fn write_reasoning(&self, prompt: &mut String, marks: Marks) {
        let is_open = prompt.trim_end().ends_with(marks.open.trim_end());
        if self.reasoning.is_empty() && !is_open {
            return;
        }
        if !is_open {
            prompt.extend([marks.open, "\n"]);
        }
        prompt.extend([&self.reasoning, "\n", marks.close, "\n\n"]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const REASONING: Dialect = Dialect {
        reasoning: Some(Marks {
            open: "<think>",
            close: "</think>",
        }),
        ..Dialect::PLAIN
    };

    fn opened(prompt: &str, reasoning: &str, dialect: &Dialect) -> String {
        let (mut prompt, text) = (prompt.to_owned(), "Sure".to_owned());
        let reasoning = reasoning.to_owned();
        Prefill { reasoning, text }.open(&mut prompt, dialect);
        prompt
    }

    #[test]
    fn takes_only_a_last_message_of_the_assistant_without_calls() {
        let user = json!({"role": "user", "content": "q"});
        let mut messages = vec![
            user.clone(),
            json!({"role": "assistant", "content": "Sure", "reasoning_content": "hm"}),
        ];
        let prefill = Prefill::take(&mut messages).unwrap();
        assert_eq!((&prefill.text[..], &prefill.reasoning[..]), ("Sure", "hm"));
        assert_eq!(messages, [user]);
        assert_eq!(Prefill::take(&mut messages), None);
        let mut calling =
            vec![json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]})];
        assert_eq!(Prefill::take(&mut calling), None);
        assert_eq!(calling.len(), 1);
    }

    #[test]
    fn text_stands_outside_the_reasoning() {
        assert_eq!(opened("A:", "", &Dialect::PLAIN), "A:");
        assert_eq!(opened("A:", "", &REASONING), "A:");
        assert_eq!(opened("A:<think>\n", "", &REASONING), "A:<think>\n\n</think>\n\n");
        assert_eq!(opened("A:", "hm", &REASONING), "A:<think>\nhm\n</think>\n\n");
        assert_eq!(opened("A:<think>\n", "hm", &REASONING), "A:<think>\nhm\n</think>\n\n");
        assert_eq!(
            opened("A:<think>\n\n</think>\n\n", "", &REASONING),
            "A:<think>\n\n</think>\n\n"
        );
    }
}
