//! Converts markdown to HTML that cannot run scripts.
//!
//! Tags in the text are shown as text, images become links, and there are no inline styles.

mod delimiters;

use std::convert::Infallible;
use std::panic::catch_unwind;

use delimiters::normalise_delimiters;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use pulldown_latex::event::{Content, EnvironmentFlow, Event as Math, StateChange};
use pulldown_latex::{RenderConfig, Storage, config::DisplayMode};

/// Bytes of the longest formula that is rendered; longer ones are shown as source.
const MAX_FORMULA_BYTES: usize = 4096;
/// Nesting depth of groups in a formula; deeper ones are shown as source.
const MAX_FORMULA_DEPTH: usize = 64;

/// Returns the HTML of a text. Formulas are delimited by `$`, `$$`, `\(` and `\)`, or `\[` and `\]`.
pub(crate) fn html(text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_MATH;
    let text = normalise_delimiters(text);
    let mut links = Links::default();
    let events = Parser::new_ext(&text, options).filter_map(|event| match event {
        Event::Html(tag) | Event::InlineHtml(tag) => Some(Event::Text(tag)),
        Event::InlineMath(source) => Some(render_formula(&source, DisplayMode::Inline)),
        Event::DisplayMath(source) => Some(render_formula(&source, DisplayMode::Block)),
        Event::Start(Tag::Heading { level, .. }) => Some(Event::Start(Tag::Heading {
            level: lower_heading(level),
            id: None,
            classes: vec![],
            attrs: vec![],
        })),
        Event::End(TagEnd::Heading(level)) => Some(Event::End(TagEnd::Heading(lower_heading(level)))),
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => links.open(dest_url),
        Event::End(TagEnd::Link | TagEnd::Image) => links.close(),
        event => Some(event),
    });
    let mut html = String::new();
    html::push_html(&mut html, events);
    align_without_styles(html)
}

/// Replaces the inline styles of table cells, which the page's policy forbids, by `align` attributes.
///
/// Text cannot contain these tags: `<` is escaped there.
fn align_without_styles(mut html: String) -> String {
    for cell in ["th", "td"] {
        for side in ["left", "center", "right"] {
            let style = format!("<{cell} style=\"text-align: {side}\">");
            if html.contains(&style) {
                html = html.replace(&style, &format!("<{cell} align=\"{side}\">"));
            }
        }
    }
    html
}

/// Moves a heading two levels down, below the page's own headings.
fn lower_heading(level: HeadingLevel) -> HeadingLevel {
    HeadingLevel::try_from((level as usize + 2).min(6)).unwrap_or(HeadingLevel::H6)
}

/// Filter of links: keeps those with an HTTP or mail address, and turns others and nested ones into text.
#[derive(Default)]
struct Links {
    /// For each open link, whether it is kept.
    open: Vec<bool>,
}

impl Links {
    fn open<'a>(&mut self, address: CowStr<'a>) -> Option<Event<'a>> {
        let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        let is_kept = matches!(scheme.as_deref(), Some("http" | "https" | "mailto")) && !self.open.contains(&true);
        self.open.push(is_kept);
        is_kept.then(|| {
            Event::Start(Tag::Link {
                link_type: pulldown_cmark::LinkType::Inline,
                dest_url: address,
                title: "".into(),
                id: "".into(),
            })
        })
    }

    fn close<'a>(&mut self) -> Option<Event<'a>> {
        self.open.pop()?.then_some(Event::End(TagEnd::Link))
    }
}

/// Returns a formula as MathML, or its source as code if it cannot be rendered.
fn render_formula<'a>(source: &str, display_mode: DisplayMode) -> Event<'a> {
    let is_small = source.len() <= MAX_FORMULA_BYTES && group_depth(source) <= MAX_FORMULA_DEPTH;
    // A panic of the renderer must affect this formula only.
    let rendered = catch_unwind(|| is_small.then(|| mathml(source, display_mode)).flatten());
    match rendered.ok().flatten() {
        Some(mathml) => Event::InlineHtml(mathml.into()),
        None => Event::Code(source.to_owned().into()),
    }
}

/// Returns how deep the groups of a formula are nested.
fn group_depth(source: &str) -> usize {
    let (mut depth, mut max) = (0usize, 0);
    for character in source.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        max = max.max(depth);
    }
    max
}

/// Returns a formula as MathML, or `None` if it is not valid LaTeX.
fn mathml(source: &str, display_mode: DisplayMode) -> Option<String> {
    let storage = Storage::new();
    let mut events = vec![];
    for event in pulldown_latex::Parser::new(source, &storage) {
        events.push(match event.ok()? {
            // The renderer does not escape these.
            Math::Content(Content::Function(name) | Content::Number(name)) if name.contains(['<', '>', '&']) => {
                return None;
            }
            // These would become inline styles, which the page's policy forbids.
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
    let mut mathml = String::new();
    let events = events.into_iter().map(Ok::<_, Infallible>);
    pulldown_latex::push_mathml(&mut mathml, events, config).ok()?;
    Some(mathml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_and_formulas_become_html_and_mathml() {
        assert_eq!(html("**a** `b`"), "<p><strong>a</strong> <code>b</code></p>\n");
        assert!(html("# Title").contains("<h3>Title</h3>"));
        assert!(html("|a|b|\n|-|-|\n|1|2|").contains("<td>2</td>"));
        assert!(html("|a|b|\n|-|-:|\n|1|2|").contains("<td align=\"right\">2</td>"));
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
    fn output_contains_no_active_content() {
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
            "|a|b|c|\n|:-|:-:|-:|\n|1|2|3|",
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
    fn pathological_input_renders_in_bounded_time() {
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

    /// Texts whose time grows with the square of their length took 10 s for 160 kB.
    #[test]
    fn time_grows_linearly_with_the_text() {
        if !refrain_testing::drawn(8) {
            return;
        }
        let begin = std::time::Instant::now();
        for piece in [
            "\\( ",
            "\\[ ",
            "\\(\\[",
            "` ",
            "`` ` ",
            "\\(` ",
            "\\( x $ ",
            "\\( x\n\n",
            "$ ",
            "$$ ",
            "[a](",
            "<a ",
            "&",
            "*a _",
        ] {
            html(&piece.repeat(400_000 / piece.len()));
            html(&format!("{}\\) $ \n\n", piece.repeat(400_000 / piece.len())));
        }
        assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
    }
}
