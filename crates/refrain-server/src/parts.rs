//! An answer as its parts come: thoughts, text, calls of functions.

use refrain_text::Parted;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::answer::{Answer, Ended};
use crate::error::Refusal;
use crate::openai::likelihood;
use crate::tools::{CallSplitter, CallsAndText};

/// Parts that may wait for a slow reader; then the text waits too.
const PARTS: usize = 64;

/// A part, or a piece of one: what is of the kind of the part before goes on from it, but for calls.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Thought(String),
    Text(String),
    Call {
        name: String,
        /// JSON.
        arguments: String,
    },
}

/// What is heard of an answer.
pub(crate) enum News {
    /// How likely the tokens of what comes next were, if that was asked: entries as chats have them.
    Likelihoods(Vec<Value>),
    Part(Part),
    Ended(Ended),
    Failed(Refusal),
}

/// What comes of an answer, whose model may call functions if `calls`. Who hears no more of it ends it.
pub(crate) fn hear(answer: Answer, calls: bool) -> mpsc::Receiver<News> {
    let (news, heard) = mpsc::channel(PARTS);
    tokio::spawn(tell(answer, calls, news));
    heard
}

async fn tell(mut answer: Answer, calls: bool, news: mpsc::Sender<News>) {
    let mut reader = PartReader {
        splitter: calls.then(CallSplitter::default),
        blanks: String::new(),
    };
    let model = answer.model.clone();
    let mut pieces = answer.pieces();
    loop {
        let (parts, last) = match pieces.next().await {
            Ok(Some(piece)) => (reader.push(piece), None),
            Ok(None) => (reader.finish(), Some(News::Ended(pieces.ended()))),
            Err(why) => (vec![], Some(News::Failed(why))),
        };
        let told = pieces.told();
        if !told.is_empty() {
            let entries = told.iter().map(|token| likelihood::of_chat(&model, token)).collect();
            if news.send(News::Likelihoods(entries)).await.is_err() {
                return;
            }
        }
        for news_of in parts.into_iter().map(News::Part) {
            if news.send(news_of).await.is_err() {
                return;
            }
        }
        if let Some(last) = last {
            return drop(news.send(last).await);
        }
    }
}

/// From pieces to parts.
struct PartReader {
    splitter: Option<CallSplitter>,
    /// Blanks that may stand before a call, or before nothing.
    blanks: String,
}

impl PartReader {
    fn push(&mut self, piece: Parted) -> Vec<Part> {
        let mut parts = vec![];
        if !piece.reasoning.is_empty() {
            parts.push(Part::Thought(piece.reasoning));
        }
        match &mut self.splitter {
            Some(splitter) => {
                let found = splitter.push(&piece.answer);
                self.take(found, &mut parts);
            }
            None if !piece.answer.is_empty() => parts.push(Part::Text(piece.answer)),
            None => {}
        }
        parts
    }

    fn finish(&mut self) -> Vec<Part> {
        let mut parts = vec![];
        if let Some(found) = self.splitter.as_mut().map(CallSplitter::finish) {
            self.take(found, &mut parts);
        }
        parts
    }

    fn take(&mut self, found: CallsAndText, parts: &mut Vec<Part>) {
        self.blanks.push_str(&found.text);
        let certain = self.blanks.trim_end().len();
        if certain > 0 {
            parts.push(Part::Text(self.blanks.drain(..certain).collect()));
        }
        for (name, arguments) in found.calls {
            self.blanks.clear();
            parts.push(Part::Call { name, arguments });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_before_calls_are_no_text() {
        let mut reader = PartReader {
            splitter: Some(CallSplitter::default()),
            blanks: String::new(),
        };
        let piece = |reasoning: &str, answer: &str| Parted {
            reasoning: reasoning.to_owned(),
            answer: answer.to_owned(),
        };
        let mut parts = reader.push(piece("Hm", "\n\n"));
        parts.extend(reader.push(piece("", "A b \n<tool_call>{\"name\": \"f\"}</tool_call>")));
        parts.extend(reader.finish());
        let call = Part::Call {
            name: "f".to_owned(),
            arguments: "{}".to_owned(),
        };
        let text = Part::Text("\n\nA b".to_owned());
        assert_eq!(parts, [Part::Thought("Hm".to_owned()), text, call]);
    }
}
