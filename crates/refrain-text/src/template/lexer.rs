//! Splits templates into lexemes, by Jinja's rules with `trim_blocks` and `lstrip_blocks`.

use super::error::{RenderError, Try};
use super::literals;

/// A token of the template language.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Lexeme<'s> {
    /// Text outside of tags.
    Data(&'s str),
    /// `{%`
    BlockBegin,
    /// `%}`
    BlockEnd,
    /// `{{`
    PrintBegin,
    /// `}}`
    PrintEnd,
    Name(&'s str),
    Text(String),
    Int(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

/// Operators; longer ones come before their prefixes.
const OPERATORS: [&str; 28] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".",
    ":", "|", ",", ";", "!", "?",
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Data,
    Block,
    Print,
}

#[derive(Debug)]
pub(super) struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: u32,
    mode: Mode,
    /// The lexeme after the data that was returned last.
    pending: Option<(Lexeme<'s>, u32)>,
    /// The open brackets.
    brackets: Vec<&'static str>,
}

impl<'s> Lexer<'s> {
    /// Creates a lexer; line ends in `source` must all be `\n`.
    pub fn new(source: &'s str) -> Self {
        Lexer {
            source,
            at: 0,
            line: 1,
            mode: Mode::Data,
            pending: None,
            brackets: Vec::new(),
        }
    }

    /// Returns the next lexeme with its line.
    pub fn next(&mut self) -> Try<(Lexeme<'s>, u32)> {
        if let Some(pending) = self.pending.take() {
            return Ok(pending);
        }
        match self.mode {
            Mode::Data => self.data(),
            Mode::Block | Mode::Print => self.code(),
        }
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.rest()[..bytes];
        self.line += passed.matches('\n').count() as u32;
        self.at += bytes;
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.advance(rest.len() - rest.trim_start_matches(literals::is_space).len());
    }

    fn skip_line_end(&mut self) {
        if self.rest().starts_with('\n') {
            self.advance(1);
        }
    }

    /// Returns the data before the next tag, or the tag's opening lexeme.
    fn data(&mut self) -> Try<(Lexeme<'s>, u32)> {
        loop {
            let (line, start) = (self.line, self.at);
            let Some(length) = find_tag(self.rest()) else {
                let data = self.rest();
                self.advance(data.len());
                return Ok((
                    if data.is_empty() {
                        Lexeme::End
                    } else {
                        Lexeme::Data(data)
                    },
                    line,
                ));
            };
            let tag = &self.rest()[length..];
            let sign = sign(&tag[2..]);
            let kept = self.trim_before_tag(start, start + length, sign, tag.starts_with("{{"));
            self.advance(length + 2 + sign.map_or(0, char::len_utf8));
            let tag_line = self.line;
            if tag.starts_with("{#") {
                self.comment()?;
            } else if tag.starts_with("{{") {
                self.mode = Mode::Print;
                self.pending = Some((Lexeme::PrintBegin, tag_line));
            } else if let Some((length, strip)) = raw_tag(self.rest(), "raw") {
                self.advance(length);
                if strip {
                    self.skip_space();
                }
                let raw = self.raw()?;
                self.pending = Some((Lexeme::Data(raw), tag_line));
            } else {
                self.mode = Mode::Block;
                self.pending = Some((Lexeme::BlockBegin, tag_line));
            }
            if !kept.is_empty() {
                return Ok((Lexeme::Data(kept), line));
            }
            if let Some(pending) = self.pending.take() {
                return Ok(pending);
            }
        }
    }

    /// Returns the data from `start` to `end`, without the white space that the following tag strips.
    fn trim_before_tag(&self, start: usize, end: usize, sign: Option<char>, prints: bool) -> &'s str {
        let data = &self.source[start..end];
        if sign == Some('-') {
            return data.trim_end_matches(literals::is_space);
        }
        if sign == Some('+') || prints {
            return data;
        }
        let line = data.rfind('\n').map(|at| at + 1);
        let begins_line = start == 0 || self.source[..start].ends_with('\n');
        match line.or(begins_line.then_some(0)) {
            Some(line) if data[line..].chars().all(literals::is_space) => &data[..line],
            _ => data,
        }
    }

    fn comment(&mut self) -> Try<()> {
        let Some(length) = self.rest().find("#}") else {
            return Err(RenderError::syntax("unterminated comment", self.line));
        };
        let last = self.rest()[..length].chars().next_back();
        self.advance(length + 2);
        match last {
            Some('-') => self.skip_space(),
            Some('+') => {}
            _ => self.skip_line_end(),
        }
        Ok(())
    }

    /// Returns the text up to `{% endraw %}`.
    fn raw(&mut self) -> Try<&'s str> {
        let start = self.at;
        let mut from = 0;
        while let Some(found) = self.rest()[from..].find("{%") {
            let (end, tag) = (from + found, from + found + 2);
            let sign = sign(&self.rest()[tag..]);
            let inner = tag + sign.map_or(0, char::len_utf8);
            let Some((length, strip)) = raw_tag(&self.rest()[inner..], "endraw") else {
                from = tag;
                continue;
            };
            let raw = self.trim_before_tag(start, start + end, sign, false);
            let keep = self.rest()[..inner + length].ends_with("+%}");
            self.advance(inner + length);
            match (strip, keep) {
                (true, _) => self.skip_space(),
                (false, true) => {}
                (false, false) => self.skip_line_end(),
            }
            return Ok(raw);
        }
        Err(RenderError::syntax("unterminated raw block", self.line))
    }

    /// Returns a lexeme inside a tag.
    fn code(&mut self) -> Try<(Lexeme<'s>, u32)> {
        self.skip_space();
        let (rest, line) = (self.rest(), self.line);
        let Some(first) = rest.chars().next() else {
            return Ok((Lexeme::End, line));
        };
        if self.brackets.is_empty() && self.tag_end() {
            let ended = match std::mem::replace(&mut self.mode, Mode::Data) {
                Mode::Print => Lexeme::PrintEnd,
                _ => Lexeme::BlockEnd,
            };
            return Ok((ended, line));
        }
        let wrong = |what: String| RenderError::syntax(what, line);
        let (lexeme, length) = if first.is_ascii_digit() {
            let (number, length) = literals::number(rest).map_err(wrong)?;
            (number, length)
        } else if first.is_alphanumeric() || first == '_' {
            let length = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            (Lexeme::Name(&rest[..length]), length)
        } else if matches!(first, '\'' | '"') {
            let (text, length) = literals::text(rest).map_err(wrong)?;
            (Lexeme::Text(text), length)
        } else {
            let found = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
            let operator = found.ok_or_else(|| wrong(format!("unexpected character {first:?}")))?;
            self.balance(operator)?;
            (Lexeme::Operator(operator), operator.len())
        };
        self.advance(length);
        Ok((lexeme, line))
    }

    /// Consumes the end of the tag, if it is here.
    fn tag_end(&mut self) -> bool {
        let rest = self.rest();
        let close = if self.mode == Mode::Print { "}}" } else { "%}" };
        if rest.starts_with(close) {
            self.advance(2);
            if self.mode == Mode::Block {
                self.skip_line_end();
            }
        } else if rest.starts_with('-') && rest[1..].starts_with(close) {
            self.advance(3);
            self.skip_space();
        } else if self.mode == Mode::Block && rest.starts_with("+%}") {
            self.advance(3);
        } else {
            return false;
        }
        true
    }

    fn balance(&mut self, operator: &str) -> Try<()> {
        match operator {
            "(" => self.brackets.push(")"),
            "[" => self.brackets.push("]"),
            "{" => self.brackets.push("}"),
            ")" | "]" | "}" => match self.brackets.pop() {
                Some(expected) if expected == operator => {}
                Some(expected) => {
                    let what = format!("unexpected {operator:?}, expected {expected:?}");
                    return Err(RenderError::syntax(what, self.line));
                }
                None => return Err(RenderError::syntax(format!("unexpected {operator:?}"), self.line)),
            },
            _ => {}
        }
        Ok(())
    }
}

/// Finds the next tag or comment.
fn find_tag(text: &str) -> Option<usize> {
    text.match_indices('{')
        .map(|(at, _)| at)
        .find(|at| matches!(text.as_bytes().get(at + 1), Some(b'%' | b'{' | b'#')))
}

/// Returns the tag's sign (`-` or `+`), which controls the white space before it.
fn sign(tag: &str) -> Option<char> {
    tag.chars().next().filter(|c| matches!(c, '-' | '+'))
}

/// Returns the length in bytes of the rest of a tag that holds only `name`, and whether it strips the white space
/// after it.
fn raw_tag(text: &str, name: &str) -> Option<(usize, bool)> {
    let after = text.trim_start_matches(literals::is_space).strip_prefix(name)?;
    let after = after.trim_start_matches(literals::is_space);
    let ends = [("-%}", true), ("%}", false), ("+%}", false)];
    let allowed = if name == "raw" { &ends[..2] } else { &ends[..] };
    allowed.iter().find_map(|(end, strip)| {
        let rest = after.strip_prefix(end)?;
        Some((text.len() - rest.len(), *strip))
    })
}
