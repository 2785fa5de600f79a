//! What a chat template writes after a prompt.

/// Returns what `whole`, a rendered conversation with an answer, has after `prompt`, the same without the answer. If the
/// prompt ends with marks that the whole does not have, the rest begins before the first mark that differs: no mark is
/// cut.
pub fn continuation<'w>(prompt: &str, whole: &'w str) -> &'w str {
    let same = prompt
        .char_indices()
        .zip(whole.chars())
        .take_while(|((_, a), b)| a == b);
    let mut at = same.last().map_or(0, |((at, letter), _)| at + letter.len_utf8());
    if at < prompt.len() {
        let opened = whole[..at].rfind(['<', '[']);
        at = opened
            .filter(|open| !whole[*open..at].contains(['>', ']']))
            .unwrap_or(at);
    }
    &whole[at..]
}

#[cfg(test)]
mod tests {
    use super::continuation;

    #[test]
    fn cuts_after_the_prompt_but_no_mark() {
        assert_eq!(continuation("<user>Hi<assistant>", "<user>Hi<assistant>Yes"), "Yes");
        assert_eq!(continuation("<user>Hi<think>", "<user>Hi<text>Yes"), "<text>Yes");
    }
}
