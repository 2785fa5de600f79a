//! How reasoning that takes too long is ended from outside.

use super::Dialect;

/// The text that ends reasoning, so that the answer follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningEnd {
    /// Ends the reasoning and, in dialects of messages, begins the header of the next message.
    pub text: String,
    /// What must not follow: it would begin more reasoning.
    pub forbidden: &'static str,
}

impl Dialect {
    /// Returns what ends reasoning; `None` if the model does not reason. `may_call`: calls may follow, not only text.
    pub fn reasoning_end(&self, may_call: bool) -> Option<ReasoningEnd> {
        let Some(format) = self.messages else {
            let marks = self.reasoning?;
            return Some(ReasoningEnd {
                text: format!("\n{}", marks.close),
                forbidden: marks.open,
            });
        };
        let reasoning = format.headers.reasoning?;
        let begin = format!("{}{}", format.ends[0], format.start);
        if !may_call {
            return Some(ReasoningEnd {
                text: format!("{begin}{}", format.headers.text),
                forbidden: "",
            });
        }
        // The model chooses between text and calls where their headers part from each other.
        let shared = common_prefix(common_prefix(reasoning, format.headers.text), format.headers.call.open);
        Some(ReasoningEnd {
            text: format!("{begin}{shared}"),
            forbidden: &reasoning[shared.len()..],
        })
    }
}

/// The longest text that both begin with.
fn common_prefix<'t>(one: &'t str, other: &str) -> &'t str {
    let same = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
    let end = same.map_or(one.len().min(other.len()), |((at, _), _)| at);
    &one[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::Marks;

    #[test]
    fn reasoning_ends_with_its_mark_or_where_headers_part() {
        let marked = Dialect {
            reasoning: Some(Marks {
                open: "<think>",
                close: "</think>",
            }),
            ..Dialect::PLAIN
        };
        let end = marked.reasoning_end(true).unwrap();
        assert_eq!((end.text.as_str(), end.forbidden), ("\n</think>", "<think>"));
        assert_eq!(Dialect::PLAIN.reasoning_end(true), None);
        let of_messages = |name: &str, may_call: bool| {
            let mut all = Dialect::all().into_iter();
            let dialect = all.find(|dialect| dialect.messages.is_some_and(|format| format.name == name));
            dialect
                .unwrap()
                .reasoning_end(may_call)
                .map(|end| (end.text, end.forbidden))
        };
        let ends = |text: &str, forbidden| Some((text.to_owned(), forbidden));
        assert_eq!(
            of_messages("harmony", true),
            ends("<|end|><|start|>assistant<|channel|>", "analysis<|message|>")
        );
        assert_eq!(
            of_messages("harmony", false),
            ends("<|end|><|start|>assistant<|channel|>final<|message|>", "")
        );
        assert_eq!(
            of_messages("muse", true),
            ends("<|eom|><|start|>assistant to=", "self<|message|>")
        );
        assert_eq!(of_messages("functionary-3.2", true), None);
    }
}
