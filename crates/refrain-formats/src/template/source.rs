//! Rewriting of what the engine's own language lacks, before it parses a template.

use std::borrow::Cow;

/// Rewrite line ends to `\n`, as Jinja does, and inside tags only
/// - `{% generation %}` … `{% endgeneration %}`, with which templates mark what the model writes, to
///   a block that only opens a scope;
/// - `a[::-1]` to a filter, since the engine panics on it if `a` is an empty string;
/// - `'…' % (a, b)` and `'…' % a`, Python's formatting of a literal, to the `format` filter.
pub(super) fn prepare(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut prepared = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(start) = find_tag(rest) {
        let (before, tag) = rest.split_at(start);
        prepared.push_str(before);
        let length = tag_length(tag);
        let (tag, after) = tag.split_at(length);
        prepared.push_str(&rewrite_tag(tag));
        rest = after;
    }
    prepared.push_str(rest);
    prepared
}

/// Where the next tag or comment begins.
fn find_tag(text: &str) -> Option<usize> {
    ["{%", "{{", "{#"].iter().filter_map(|open| text.find(open)).min()
}

/// Bytes of the tag or comment that `text` begins with; all of it if it never ends.
fn tag_length(text: &str) -> usize {
    let close = match &text[..2] {
        "{%" => "%}",
        "{{" => "}}",
        _ => return text.find("#}").map_or(text.len(), |end| end + 2),
    };
    let mut at = 2;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(close) {
            return at + 2;
        }
        at += literal_length(rest).unwrap_or_else(|| rest.chars().next().map_or(1, char::len_utf8));
    }
    text.len()
}

/// Bytes of the string literal that `text` begins with.
fn literal_length(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

fn rewrite_tag(tag: &str) -> Cow<'_, str> {
    let closed = tag.len() >= 4 && (tag.ends_with("%}") || tag.ends_with("}}"));
    if tag.starts_with("{#") || !closed {
        return Cow::Borrowed(tag);
    }
    let inner = &tag[2..tag.len() - 2];
    let name = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']);
    match name.trim() {
        "generation" => return Cow::Owned(tag.replacen("generation", "with", 1)),
        "endgeneration" => return Cow::Owned(tag.replacen("endgeneration", "endwith", 1)),
        _ => {}
    }
    let mut rewritten = String::with_capacity(tag.len());
    let mut rest = tag;
    while let Some(start) = rest.find(['\'', '"']) {
        let (before, literal) = rest.split_at(start);
        let (literal, after) = literal.split_at(literal_length(literal).unwrap_or(1));
        push_code(before, &mut rewritten);
        rewritten.push_str(literal);
        rest = after;
        let Some(operand) = after.trim_start().strip_prefix('%') else {
            continue;
        };
        let operand = operand.trim_start();
        let path = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let length = operand.find(|c| !path(c)).unwrap_or(0);
        if operand.starts_with('(') {
            rewritten.push_str(" | format");
            rest = operand;
        } else if length > 0 {
            rewritten.push_str(&format!(" | format({})", &operand[..length]));
            rest = &operand[length..];
        }
    }
    push_code(rest, &mut rewritten);
    Cow::Owned(rewritten)
}

/// Append a part of a tag without literals. A reversal is left alone if something is done to it
/// directly, as filters bind less tightly than that.
fn push_code(code: &str, rewritten: &mut String) {
    const REVERSAL: &str = "[::-1]";
    let mut rest = code;
    while let Some((before, after)) = rest.split_once(REVERSAL) {
        rewritten.push_str(before);
        rewritten.push_str(match after.starts_with(['[', '.', '(']) {
            true => REVERSAL,
            false => " | reversed",
        });
        rest = after;
    }
    rewritten.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_become_new_lines() {
        assert_eq!(prepare("a\r\nb\rc\n{{ 'x\r\n' }}"), "a\nb\nc\n{{ 'x\n' }}");
    }

    #[test]
    fn generation_tags_become_scopes() {
        assert_eq!(
            prepare("a{% generation %}b{%- endgeneration -%}c"),
            "a{% with %}b{%- endwith -%}c"
        );
    }

    #[test]
    fn percent_after_a_literal_becomes_the_format_filter() {
        let cases = [
            ("{{ '%s-%d' % ('x', 3) }}", "{{ '%s-%d' | format('x', 3) }}"),
            ("{{ '%s' % a.b ~ c }}", "{{ '%s' | format(a.b) ~ c }}"),
        ];
        for (source, expected) in cases {
            assert_eq!(prepare(source), expected);
        }
    }

    #[test]
    fn reversals_become_a_filter_unless_something_is_done_to_them() {
        let cases = [
            ("{% for m in a.b[::-1] %}", "{% for m in a.b | reversed %}"),
            ("{{ a[::-1][0] ~ '[::-1]' }}", "{{ a[::-1][0] ~ '[::-1]' }}"),
        ];
        for (source, expected) in cases {
            assert_eq!(prepare(source), expected);
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let cases = [
            "{% if add_generation_prompt %}x{% endif %}",
            "generation 'a' % (b) {% unclosed",
            "{# '%s' % (x) #}{{ 7 % (2) }}{{ '}}' }}{{ \"%}\" ~ 'it\\'s' }}",
            "{%}{{}}{#}",
            "{{ é'",
            "it's {{ 'é' }} isn't {% raw %}",
        ];
        for source in cases {
            assert_eq!(prepare(source), source);
        }
    }
}
