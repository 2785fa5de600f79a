//! Filters that return strings.

use crate::template::budget::{BoundedText, spend};
use crate::template::calls::{CallArguments, flag, integer, required, size, text as text_of};
use crate::template::error::{RenderError, Try};
use crate::template::literals::is_space;
use crate::template::methods::{split, text};
use crate::template::value::{ItemsBuilder, TemplateText, Value};
use crate::template::{characters, percent, print};

/// Default width of `center`, in characters.
const DEFAULT_CENTER_WIDTH: usize = 80;

pub(super) fn apply(name: &str, value: &Value, arguments: CallArguments) -> Try<Value> {
    let shown = print::display(value)?;
    // Case mappings look up each character.
    spend(shown.len())?;
    match name {
        "trim" => {
            let [characters] = arguments.bind(name, ["chars"])?;
            let characters = characters.filter(|value| !matches!(value, Value::None));
            let characters = characters.map(|value| text_of(Some(value), name)).transpose()?;
            Value::text(text::strip(&shown, characters.as_deref(), "strip")?)
        }
        "replace" => {
            let [old, new, count] = arguments.bind(name, ["old", "new", "count"])?;
            let count = integer(count, name)?.and_then(|count| usize::try_from(count).ok());
            let old = print::display(&required(old, name)?)?;
            let new = print::display(&required(new, name)?)?;
            text::replace(&shown, &old, &new, count)
        }
        "format" => format(&shown, arguments),
        "indent" => indent(&shown, arguments),
        "truncate" => truncate(&shown, arguments),
        "center" => {
            let [width] = arguments.bind(name, ["width"])?;
            text::justify(
                "center",
                &shown,
                size(width, name)?.unwrap_or(DEFAULT_CENTER_WIDTH),
                None,
            )
        }
        "wordcount" => {
            arguments.none(name)?;
            Ok(Value::count(characters::words(&shown)))
        }
        "upper" | "lower" | "capitalize" | "title" | "escape" | "e" | "forceescape" => {
            arguments.none(name)?;
            match name {
                "upper" => Value::text(shown.to_uppercase()),
                "lower" => Value::text(shown.to_lowercase()),
                "capitalize" => Value::text(characters::capitalise(&shown)),
                "title" => Value::text(title(&shown)),
                _ => escape(&shown),
            }
        }
        other => Err(RenderError::unknown("filter", other)),
    }
}

/// `format(*values)` or `format(**values)`
fn format(shown: &str, arguments: CallArguments) -> Try<Value> {
    if !arguments.positional.is_empty() && !arguments.named.is_empty() {
        return Err(RenderError::invalid(
            "format takes values in order or by name, not both",
        ));
    }
    if arguments.named.is_empty() {
        let values = ItemsBuilder::of(arguments.positional.into_iter().map(Ok))?;
        return percent::format(shown, &values.tuple());
    }
    percent::format(shown, &arguments.dict()?.into_value())
}

/// `indent(text, width=4, first=False, blank=False)`, where `width` may also be the indentation itself. A trailing
/// line feed starts a last, blank line.
fn indent(shown: &str, arguments: CallArguments) -> Try<Value> {
    let [width, first, blank] = arguments.bind("indent", ["width", "first", "blank"])?;
    let (first, blank) = (flag(first), flag(blank));
    let put_first = match width {
        Some(Value::Text(text)) => text,
        width => {
            let mut spaces = BoundedText::new();
            spaces.push_repeated(" ", size(width, "the width of indent")?.unwrap_or(4))?;
            TemplateText::new(spaces.into_string())?
        }
    };
    let mut indented = BoundedText::new();
    // `\r\n` is one line end.
    let ended = match shown.chars().next_back() {
        Some(last) => last != '\r' && split::is_line_end(last),
        None => true,
    };
    let lines = split::split_lines(shown, false).chain(ended.then_some(""));
    for (number, line) in lines.enumerate() {
        if number > 0 {
            indented.push("\n")?;
        }
        let wanted = if number == 0 { first } else { blank || !line.is_empty() };
        if wanted {
            indented.push(&put_first)?;
        }
        indented.push(line)?;
    }
    Value::built(indented)
}

/// `truncate(text, length=255, killwords=False, end='...', leeway=5)`.
fn truncate(shown: &TemplateText, arguments: CallArguments) -> Try<Value> {
    let [length, kill_words, end, leeway] = arguments.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let length = size(length, "truncate")?.unwrap_or(255);
    let leeway = size(leeway, "truncate")?.unwrap_or(5);
    let end = match end {
        Some(end) => print::display(&end)?,
        None => TemplateText::new("...")?,
    };
    if shown.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::Text(shown.clone()));
    }
    let kept = length.saturating_sub(end.chars().count());
    let kept = shown
        .char_indices()
        .nth(kept)
        .map_or(&shown[..], |(end, _)| &shown[..end]);
    let shortened = if flag(kill_words) {
        kept
    } else {
        kept.rsplit_once(' ').map_or(kept, |(shortened, _)| shortened)
    };
    let mut out = BoundedText::new();
    out.push(shortened)?;
    out.push(&end)?;
    Value::built(out)
}

/// Unlike `str.title`, words end only at white space, dashes and opening brackets.
fn title(shown: &str) -> String {
    let between = |c: char| is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    let mut titled = String::with_capacity(shown.len());
    for word in shown.split_inclusive(between) {
        let mut chars = word.chars();
        titled.extend(chars.next().into_iter().flat_map(char::to_uppercase));
        titled.push_str(&chars.as_str().to_lowercase());
    }
    titled
}

fn escape(shown: &str) -> Try<Value> {
    let mut out = BoundedText::new();
    for c in shown.chars() {
        match c {
            '&' => out.push("&amp;")?,
            '<' => out.push("&lt;")?,
            '>' => out.push("&gt;")?,
            '"' => out.push("&#34;")?,
            '\'' => out.push("&#39;")?,
            c => out.push_char(c)?,
        }
    }
    Value::built(out)
}
