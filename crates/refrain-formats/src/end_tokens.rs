//! Tokens that end a reply, known by their names.
//!
//! A GGUF file names one to three of them, and some directories list too few. Models also end with others of their
//! vocabulary, so llama.cpp keeps a list of names; this is the same list, with those of Llama 4 and DeepSeek Coder.

/// Names of tokens that end a reply in some family.
const END_TOKENS: [&str; 26] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|im_end|>",
    MESSAGE_END,
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<turn|>",
    TOOL_RESPONSE,
    "<|EOT|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    STRIKE_END,
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|end_of_turn|>",
];

/// Ends a reply in most families. It only ends one of the reply's messages where the vocabulary has one of
/// [`REPLY_ENDS`] (gpt-oss, Solar).
const MESSAGE_END: &str = "<|end|>";

/// Tokens that end a reply of several messages.
const REPLY_ENDS: [&str; 4] = ["<|return|>", "<|call|>", "<|calls|>", "<|flush|>"];

/// Ends a reply in most families. It is an HTML tag in vocabularies with [`TOOL_RESPONSE`] (Gemma 4).
const STRIKE_END: &str = "</s>";

/// Follows a call of a tool in Gemma 4, which ends the reply with it.
const TOOL_RESPONSE: &str = "<|tool_response>";

/// Returns whether a token of this name ends a reply in some family.
pub fn is_end_token(name: &str) -> bool {
    END_TOKENS.contains(&name)
}

/// The tokens of a vocabulary that end a reply by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndTokens {
    /// Ids of the tokens that end a reply, in ascending order.
    pub ids: Vec<u32>,
    /// Ids of tokens that end no reply of this vocabulary although they do in others, whatever the files list.
    pub excluded: Vec<u32>,
}

impl EndTokens {
    /// Finds them among a vocabulary's control tokens.
    pub fn among<'a>(control_tokens: impl IntoIterator<Item = (u32, &'a str)>) -> Self {
        let mut found: Vec<(u32, &str)> = (control_tokens.into_iter())
            .filter(|(_, name)| is_end_token(name))
            .collect();
        found.sort_unstable();
        let has = |wanted: &str| found.iter().any(|(_, name)| *name == wanted);
        let excludes_message_end = REPLY_ENDS.iter().any(|name| has(name));
        let excludes_strike_end = has(TOOL_RESPONSE);
        let (excluded, ends): (Vec<_>, Vec<_>) = found.iter().copied().partition(|(_, name)| match *name {
            MESSAGE_END => excludes_message_end,
            STRIKE_END => excludes_strike_end,
            _ => false,
        });
        let ids = |tokens: Vec<(u32, &str)>| tokens.into_iter().map(|(id, _)| id).collect();
        EndTokens {
            ids: ids(ends),
            excluded: ids(excluded),
        }
    }

    /// Joins the ids that files list, in order, with those known by name. No id occurs twice.
    pub fn join<'a>(&self, listed: impl IntoIterator<Item = &'a [u32]>) -> Vec<u32> {
        let mut all = Vec::new();
        let listed = listed.into_iter().flatten().copied();
        for id in listed.chain(self.ids.iter().copied()) {
            if !all.contains(&id) && !self.excluded.contains(&id) {
                all.push(id);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::EndTokens;

    fn ends(names: &[&str]) -> EndTokens {
        EndTokens::among((0..).zip(names.iter().copied()))
    }

    #[test]
    fn finds_end_tokens_by_name() {
        let found = ends(&["<s>", "[EOT]", "<|im_start|>", "<|im_end|>", "<turn|>", "<EOT>"]);
        assert_eq!(found.join([&[7][..], &[3, 7]]), [7, 3, 1, 4, 5]);
    }

    #[test]
    fn message_end_is_no_end_where_replies_have_several_messages() {
        assert_eq!(ends(&["<|user|>", "<|end|>"]).join([]), [1]);
        let harmony = ends(&["<|start|>", "<|end|>", "<|call|>", "<|return|>"]);
        // A file that lists it is one that an older conversion wrote.
        assert_eq!(harmony.join([&[3, 1][..]]), [3, 2]);
        assert_eq!(
            ends(&["<|begin|>", "<|end|>", "<|calls|>", "<|flush|>"]).join([]),
            [2, 3]
        );
    }

    #[test]
    fn html_tag_of_gemma_is_no_end() {
        assert_eq!(ends(&["<eos>", "</s>", "<|tool_response>"]).join([]), [0, 2]);
        assert_eq!(ends(&["<s>", "</s>"]).join([]), [1]);
    }
}
