//! Number and string literals.

use super::lexer::Lexeme;

/// White space as in Python: Unicode's, and four ASCII separators.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Parses the number at the start of `text`; also returns its length in bytes.
pub(super) fn number(text: &str) -> Result<(Lexeme<'static>, usize), String> {
    let lower = |at: usize| text.as_bytes().get(at).map(u8::to_ascii_lowercase);
    let radix = match (lower(0), lower(1)) {
        (Some(b'0'), Some(b'b')) => 2,
        (Some(b'0'), Some(b'o')) => 8,
        (Some(b'0'), Some(b'x')) => 16,
        _ => 10,
    };
    let too_large = |digits: &str| format!("the number {digits} is too large");
    if radix != 10 {
        let length = 2 + digits(&text[2..], radix);
        let written = text[2..length].replace('_', "");
        let number = i128::from_str_radix(&written, radix).map_err(|_| too_large(&text[..length]))?;
        return Ok((Lexeme::Int(number), length));
    }
    let integer_digits = digits(text, 10);
    let mut length = integer_digits;
    if lower(length) == Some(b'.') && digits(&text[length + 1..], 10) > 0 {
        length += 1 + digits(&text[length + 1..], 10);
    }
    if lower(length) == Some(b'e') {
        let signed = length + 1 + usize::from(matches!(lower(length + 1), Some(b'+' | b'-')));
        let exponent = text.get(signed..).map_or(0, |rest| digits(rest, 10));
        if exponent > 0 {
            length = signed + exponent;
        }
    }
    let written = text[..length].replace('_', "");
    let number = if length == integer_digits {
        written
            .parse()
            .map(Lexeme::Int)
            .map_err(|_| too_large(&text[..length]))?
    } else {
        written
            .parse()
            .map(Lexeme::Float)
            .map_err(|_| too_large(&text[..length]))?
    };
    Ok((number, length))
}

/// Returns the length in bytes of the digits at the start of `text`; single `_` may separate them.
fn digits(text: &str, radix: u32) -> usize {
    let mut length = 0;
    for (at, c) in text.char_indices() {
        match c {
            '_' if at > 0 && at == length => {}
            c if c.is_digit(radix) && at <= length + 1 => length = at + 1,
            _ => break,
        }
    }
    length
}

/// Parses the string literal at the start of `text`; also returns its length in bytes.
pub(super) fn text(text: &str) -> Result<(String, usize), String> {
    let mut chars = text.char_indices();
    let quote = chars.next().map_or('\'', |(_, quote)| quote);
    let mut value = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((value, at + c.len_utf8())),
            '\\' => escape(&mut chars, &mut value)?,
            c => value.push(c),
        }
    }
    Err("unterminated string".to_owned())
}

/// Parses an escape sequence after its backslash.
fn escape(chars: &mut std::str::CharIndices<'_>, value: &mut String) -> Result<(), String> {
    let Some((_, c)) = chars.next() else {
        return Ok(());
    };
    let digits = match c {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => 0,
    };
    if digits > 0 {
        let code = chars.as_str().get(..digits);
        let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let c = code
            .and_then(char::from_u32)
            .ok_or("an escape in a string is not a character")?;
        value.push(c);
        chars.nth(digits - 1);
        return Ok(());
    }
    match c {
        '\n' => {}
        'n' => value.push('\n'),
        't' => value.push('\t'),
        'r' => value.push('\r'),
        'a' => value.push('\u{7}'),
        'b' => value.push('\u{8}'),
        'f' => value.push('\u{c}'),
        'v' => value.push('\u{b}'),
        '\\' | '\'' | '"' => value.push(c),
        '0'..='7' => {
            let mut code = c as u32 - '0' as u32;
            for _ in 0..2 {
                match chars.as_str().chars().next().and_then(|c| c.to_digit(8)) {
                    Some(digit) => {
                        code = code * 8 + digit;
                        chars.next();
                    }
                    None => break,
                }
            }
            value.extend(char::from_u32(code));
        }
        c => value.extend(['\\', c]),
    }
    Ok(())
}
