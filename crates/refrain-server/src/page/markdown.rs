//! Markdown as HTML, without anything that could act: tags in a text are text, images are links to them.

use std::convert::Infallible;
use std::panic::catch_unwind;

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use pulldown_latex::event::{Content, EnvironmentFlow, Event as Math, StateChange};
use pulldown_latex::{RenderConfig, Storage, config::DisplayMode};

/// Bytes of a formula at most, and how deep its groups lie; what is beyond stays as it was written.
const MOST_BYTES: usize = 4096;
const MOST_GROUPS: usize = 64;

/// The HTML of a text. Formulas stand between `$` or `$$`, or `\(` and `\)`, `\[` and `\]`.
pub(crate) fn html(text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_MATH;
    let text = with_dollars(text);
    let mut links = Links::default();
    let events = Parser::new_ext(&text, options).filter_map(|event| match event {
        Event::Html(tag) | Event::InlineHtml(tag) => Some(Event::Text(tag)),
        Event::InlineMath(source) => Some(formula(&source, DisplayMode::Inline)),
        Event::DisplayMath(source) => Some(formula(&source, DisplayMode::Block)),
        Event::Start(Tag::Heading { level, .. }) => Some(Event::Start(Tag::Heading {
            level: lower(level),
            id: None,
            classes: vec![],
            attrs: vec![],
        })),
        Event::End(TagEnd::Heading(level)) => Some(Event::End(TagEnd::Heading(lower(level)))),
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => links.open(dest_url),
        Event::End(TagEnd::Link | TagEnd::Image) => links.close(),
        event => Some(event),
    });
    let mut written = String::new();
    html::push_html(&mut written, events);
    written
}

/// The page's own headings are above those of a text.
fn lower(level: HeadingLevel) -> HeadingLevel {
    HeadingLevel::try_from((level as usize + 2).min(6)).unwrap_or(HeadingLevel::H6)
}

/// Links that lead to other pages; others are text, and so are links in links.
#[derive(Default)]
struct Links {
    open: Vec<bool>,
}

impl Links {
    fn open<'a>(&mut self, to: CowStr<'a>) -> Option<Event<'a>> {
        let scheme = to.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        let leads = matches!(scheme.as_deref(), Some("http" | "https" | "mailto")) && !self.open.contains(&true);
        self.open.push(leads);
        leads.then(|| {
            Event::Start(Tag::Link {
                link_type: pulldown_cmark::LinkType::Inline,
                dest_url: to,
                title: "".into(),
                id: "".into(),
            })
        })
    }

    fn close<'a>(&mut self) -> Option<Event<'a>> {
        self.open.pop()?.then_some(Event::End(TagEnd::Link))
    }
}

/// A formula as MathML, or its source where it is none.
fn formula<'a>(source: &str, display_mode: DisplayMode) -> Event<'a> {
    let is_small = source.len() <= MOST_BYTES && depth(source) <= MOST_GROUPS;
    // A formula that the renderer was not made for costs itself alone.
    let written = catch_unwind(|| is_small.then(|| mathml(source, display_mode)).flatten());
    match written.ok().flatten() {
        Some(mathml) => Event::InlineHtml(mathml.into()),
        None => Event::Code(source.to_owned().into()),
    }
}

fn depth(source: &str) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for letter in source.chars() {
        match letter {
            '{' => now += 1,
            '}' => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

fn mathml(source: &str, display_mode: DisplayMode) -> Option<String> {
    let storage = Storage::new();
    let mut events = vec![];
    for event in pulldown_latex::Parser::new(source, &storage) {
        events.push(match event.ok()? {
            // The writer puts these as they are.
            Math::Content(Content::Function(name) | Content::Number(name)) if name.contains(['<', '>', '&']) => {
                return None;
            }
            // These would be styles within the text, which the page's policy forbids.
            Math::StateChange(StateChange::Color(_)) => continue,
            Math::Space { width, height, depth } => Math::Space {
                width: width.filter(|width| width.value >= 0.0),
                height,
                depth,
            },
            Math::EnvironmentFlow(EnvironmentFlow::NewLine { horizontal_lines, .. }) => {
                Math::EnvironmentFlow(EnvironmentFlow::NewLine {
                    spacing: None,
                    horizontal_lines,
                })
            }
            event => event,
        });
    }
    let config = RenderConfig {
        display_mode,
        ..RenderConfig::default()
    };
    let mut written = String::new();
    let events = events.into_iter().map(Ok::<_, Infallible>);
    pulldown_latex::push_mathml(&mut written, events, config).ok()?;
    Some(written)
}

/// The text with `$` and `$$` instead of LaTeX's own brackets, outside of code.
fn with_dollars(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut fence: Option<char> = None;
    let mut rest = text;
    while !rest.is_empty() {
        let line = &rest[..rest.find('\n').map_or(rest.len(), |end| end + 1)];
        let mark = line
            .trim_start()
            .chars()
            .next()
            .filter(|mark| ['`', '~'].contains(mark));
        let is_fence = mark.is_some_and(|mark| line.trim_start().starts_with(&mark.to_string().repeat(3)));
        if is_fence && (fence.is_none() || fence == mark) {
            fence = if fence.is_none() { mark } else { None };
            written.push_str(line);
            rest = &rest[line.len()..];
        } else if fence.is_some() {
            written.push_str(line);
            rest = &rest[line.len()..];
        } else {
            // A formula in brackets, or code between backticks, may go over several lines.
            let length = one_line(rest, &mut written);
            rest = &rest[length..];
        }
    }
    written
}

/// Writes what stands up to the end of the line, and what is opened there; the bytes of that.
fn one_line(text: &str, written: &mut String) -> usize {
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = match letter {
            '`' => {
                let run = rest.len() - rest.trim_start_matches('`').len();
                rest[run..].find(&rest[..run]).map_or(run, |end| end + 2 * run)
            }
            '\\' => match bracketed(rest) {
                Some((inner, mark, length)) => {
                    written.push_str(&format!("{mark}{inner}{mark}"));
                    at += length;
                    continue;
                }
                None => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            },
            letter => letter.len_utf8(),
        };
        written.push_str(&rest[..length]);
        at += length;
        if letter == '\n' {
            break;
        }
    }
    at
}

/// A formula that a text begins with, its mark in markdown, and its length with its brackets.
fn bracketed(text: &str) -> Option<(&str, &'static str, usize)> {
    let (close, mark) = match text.get(..2)? {
        "\\(" => ("\\)", "$"),
        "\\[" => ("\\]", "$$"),
        _ => return None,
    };
    let inner = &text[2..2 + text[2..].find(close)?];
    let is_formula = !inner.contains('$') && !inner.contains("\n\n") && !inner.trim().is_empty();
    is_formula.then_some((inner.trim(), mark, inner.len() + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_and_formulas_become_html_and_mathml() {
        assert_eq!(html("**a** `b`"), "<p><strong>a</strong> <code>b</code></p>\n");
        assert!(html("# Title").contains("<h3>Title</h3>"));
        assert!(html("|a|b|\n|-|-|\n|1|2|").contains("<td>2</td>"));
        let code = "<pre><code class=\"language-rust\">let a = \"\\(x\\)\";\n</code></pre>\n";
        assert_eq!(html("```rust\nlet a = \"\\(x\\)\";\n```"), code);
        for text in [
            "$\\frac{a}{b}$",
            "so \\(\\frac{a}{b}\\) is",
            "\\[\n\\frac{a}{b}\n\\]",
            "$$\\frac{a}{b}$$",
        ] {
            assert!(
                html(text).contains("<mfrac><mrow><mi>a</mi></mrow>"),
                "{text}: {}",
                html(text)
            );
        }
        assert!(html("\\[x\\]").contains("display=\"block\""));
        assert!(
            html("`\\(x\\)`").contains("<code>\\(x\\)</code>"),
            "{}",
            html("`\\(x\\)`")
        );
        assert!(html("$\\unknown$").contains("<code>\\unknown</code>"));
        assert_eq!(html("It costs $5 and $6."), "<p>It costs $5 and $6.</p>\n");
    }

    #[test]
    fn nothing_in_a_text_can_act_on_the_page() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<div\nonclick=x>",
            "[a](javascript:alert(1))",
            "[a](JavaScript:alert(1))",
            "[a](data:text/html,x)",
            "![a](http://example.org/spy.png)",
            "<javascript:alert(1)>",
            "$\\operatorname{<img src=x onerror=alert(1)>}$",
            "$\\text{<script>alert(1)</script>}$",
            "$\\mathrm{<b>}\\color{red} x\\!y$",
            "$$\\begin{array}{c}<b> \\\\[3em] b\\end{array}$$",
            "```\"><script>alert(1)</script>\nx\n```",
            "[a](https://x \"\\\" onclick=1\")",
            "# a {onclick=alert(1)}",
        ] {
            let html = html(text);
            for bad in [
                "<script",
                "<img",
                "<div",
                "<b>",
                "href=\"java",
                "href=\"Java",
                "href=\"data",
                "style=",
                "\" on",
            ] {
                assert!(!html.contains(bad), "{text}: {html}");
            }
        }
        let image = html("[![alt](https://a/b.png)](https://c)");
        assert_eq!(image, "<p><a href=\"https://c\">alt</a></p>\n");
        assert_eq!(
            html("![alt](https://a/b.png)"),
            "<p><a href=\"https://a/b.png\">alt</a></p>\n"
        );
    }

    #[test]
    fn no_text_takes_long_or_deep() {
        let begin = std::time::Instant::now();
        for piece in [
            "{",
            "\\frac",
            "x^{",
            "\\left(",
            "\\begin{matrix}",
            "$",
            "`",
            "\\(",
            "[",
            "> ",
            "* ",
            "\\def\\a{\\a\\a}\\a",
        ] {
            let many = piece.repeat(1000);
            html(&format!("${many}$"));
            html(&many);
        }
        html(&format!("${}1{}$", "\\sqrt{".repeat(5000), "}".repeat(5000)));
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }
}
