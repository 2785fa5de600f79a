//! Renders Markdown into terminal rows.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::math;
use super::row::{self, Row, Style, styled, wrapped};
use super::table::Table;
use crate::output;

/// A rendered text.
#[derive(Debug, Default)]
pub(super) struct Rendered {
    pub rows: Vec<Row>,
    /// Line number at which the last block begins, or the last item of a list that is the last block.
    pub last_begins: usize,
    pub last: LastBlock,
}

/// The kind of the innermost block at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LastBlock {
    /// A fenced code block that is not closed.
    Code { is_empty: bool },
    /// A table at the top level.
    Table,
    #[default]
    Other,
}

/// A block that contains other blocks.
enum Container {
    Quote,
    Item { marker: Row, is_written: bool },
}

/// Renders a stream of Markdown events.
struct Renderer<'a> {
    source: &'a str,
    columns: usize,
    rendered: Rendered,
    containers: Vec<Container>,
    /// The text of the current block so far.
    text: Row,
    styles: Vec<Style>,
    /// Open links: the start of their text, and their address.
    links: Vec<(usize, String)>,
    table: Option<Table>,
    /// The open code block: its source range, and whether it is fenced.
    code: Option<(Range<usize>, bool)>,
    depth: usize,
    /// The start of the line last checked for a preceding blank line.
    separated: Option<usize>,
}

/// Renders a text for a terminal of `columns` columns.
pub(super) fn render(text: &str, columns: usize) -> Rendered {
    let source = math::mask_formulas(text);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_MATH;
    let mut renderer = Renderer {
        source: &source,
        columns,
        rendered: Rendered::default(),
        containers: vec![],
        text: vec![],
        styles: vec![],
        links: vec![],
        table: None,
        code: None,
        depth: 0,
        separated: None,
    };
    for (event, range) in Parser::new_ext(&source, options).into_offset_iter() {
        renderer.take(event, range);
    }
    renderer.rendered
}

impl Renderer<'_> {
    fn take(&mut self, event: Event, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag, range),
            Event::End(tag) => self.end(tag, range),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.push(&text, Style::default()),
            Event::Code(text) => {
                let code = Style {
                    code: true,
                    ..Style::default()
                };
                self.push(&text, code);
            }
            Event::InlineMath(text) => self.push(&format!("${text}$"), Style::default()),
            Event::DisplayMath(text) => self.push(&format!("$${text}$$"), Style::default()),
            Event::SoftBreak | Event::HardBreak => self.text.push(('\n', Style::default())),
            Event::Rule => {
                self.begin(&range);
                let prefix = self.prefix();
                let width = self.limit().saturating_sub(row::width(&prefix)).max(1);
                self.rendered
                    .rows
                    .push([prefix, styled(&"─".repeat(width), Style::DIM)].concat());
            }
            // Not enabled in the options.
            Event::TaskListMarker(_) | Event::FootnoteReference(_) => {}
        }
    }

    fn start(&mut self, tag: Tag, range: Range<usize>) {
        let style = |change: fn(&mut Style)| {
            let mut style = Style::default();
            change(&mut style);
            style
        };
        match tag {
            Tag::Emphasis => return self.styles.push(style(|style| style.italic = true)),
            Tag::Strong => return self.styles.push(style(|style| style.bold = true)),
            Tag::Strikethrough => return self.styles.push(style(|style| style.struck = true)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((self.text.len(), dest_url.into_string()));
                return self.styles.push(style(|style| style.underlined = true));
            }
            Tag::TableHead | Tag::TableRow => return self.table.iter_mut().for_each(Table::begin_row),
            Tag::TableCell => return,
            _ => {}
        }
        self.begin(&range);
        self.depth += 1;
        match tag {
            Tag::Heading { level, .. } => self.styles.push(Style {
                bold: true,
                underlined: level == HeadingLevel::H1,
                ..Style::default()
            }),
            Tag::BlockQuote(_) => self.containers.push(Container::Quote),
            Tag::Item => {
                let marker = marker(&self.source[range]);
                self.containers.push(Container::Item {
                    marker,
                    is_written: false,
                });
            }
            Tag::CodeBlock(kind) => {
                self.code = Some((range, matches!(kind, CodeBlockKind::Fenced(_))));
            }
            Tag::Table(alignments) => {
                self.table = Some(Table::new(alignments));
                if self.depth == 1 {
                    self.rendered.last = LastBlock::Table;
                }
            }
            _ => {}
        }
    }

    /// Begins a block: flushes the previous one, and adds an empty row if a blank line precedes it.
    fn begin(&mut self, range: &Range<usize>) {
        self.flush();
        self.rendered.last = LastBlock::Other;
        let before = &self.source[..range.start];
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        let is_last_item = self.depth == 1 && self.containers.is_empty();
        if self.depth == 0 || is_last_item {
            self.rendered.last_begins = before.matches('\n').count();
        }
        if self.separated.replace(line) == Some(line) || line == 0 {
            return;
        }
        let previous = before[..line - 1].rsplit('\n').next().unwrap_or_default();
        if is_blank(previous) {
            let quotes = self
                .containers
                .iter()
                .rposition(|container| matches!(container, Container::Quote));
            let mut row = quotes.map_or(Row::new(), |last| self.prefix_of(last + 1, false));
            row.pop();
            self.rendered.rows.push(row);
        }
    }

    fn end(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
                return;
            }
            TagEnd::Link | TagEnd::Image => return self.end_link(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                return self.table.iter_mut().for_each(|table| table.push(cell.clone()));
            }
            TagEnd::TableHead | TagEnd::TableRow => return,
            _ => {}
        }
        self.depth -= 1;
        match tag {
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::Table => self.end_table(range),
            _ => self.flush(),
        }
        match tag {
            TagEnd::Heading(_) => {
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.containers.pop();
            }
            TagEnd::Item => {
                // An empty item.
                if matches!(self.containers.last(), Some(Container::Item { is_written: false, .. })) {
                    let mut prefix = self.prefix();
                    prefix.pop();
                    self.rendered.rows.push(prefix);
                }
                self.containers.pop();
            }
            _ => {}
        }
    }

    /// Appends a link's address to its text, unless they are equal.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some((begin, address)) = self.links.pop() else {
            return;
        };
        let text: String = self.text[begin..].iter().map(|(c, _)| c).collect();
        if text.is_empty() {
            self.push(&address, Style::default());
        } else if text != address && Some(&text[..]) != address.strip_prefix("mailto:") {
            self.push(&format!(" ({address})"), Style::DIM);
        }
    }

    /// Renders code line by line without wrapping, so that it can be copied.
    fn end_code(&mut self) {
        let Some((range, is_fenced)) = self.code.take() else {
            return;
        };
        let text = std::mem::take(&mut self.text);
        let is_empty = text.is_empty();
        if is_fenced && (!is_empty || self.source[range].trim_end().lines().count() == 1) {
            self.rendered.last = LastBlock::Code { is_empty };
        }
        let code = |letter: &(char, Style)| {
            let style = Style {
                code: true,
                ..Style::default()
            };
            (letter.0, style)
        };
        for line in text.split_inclusive(|(c, _)| *c == '\n') {
            let line = line.strip_suffix(&[('\n', Style::default())]).unwrap_or(line);
            let prefix = self.prefix();
            self.rendered
                .rows
                .push(prefix.into_iter().chain(line.iter().map(code)).collect());
        }
    }

    /// Renders a table: aligned, or as source text if it does not fit or a cell has no header.
    fn end_table(&mut self, range: Range<usize>) {
        let Some(table) = self.table.take() else {
            return;
        };
        let room = self
            .limit()
            .saturating_sub(row::width(&self.prefix_of(self.containers.len(), false)));
        let source = self.source;
        let lines = source[range].trim_end().lines();
        let lines: Vec<&str> = lines.map(|line| line.trim_start_matches([' ', '\t', '>'])).collect();
        match table.rows(room).filter(|_| table.has_all(&lines)) {
            Some(rows) => {
                for row in rows {
                    let prefix = self.prefix();
                    self.rendered.rows.push([prefix, row].concat());
                }
            }
            None => {
                self.push(&lines.join("\n"), Style::default());
                self.flush();
            }
        }
    }

    /// Appends to the text of the current block.
    fn push(&mut self, text: &str, mut style: Style) {
        for outer in &self.styles {
            style.bold |= outer.bold;
            style.italic |= outer.italic;
            style.underlined |= outer.underlined;
            style.struck |= outer.struck;
        }
        let in_code = self.code.is_some();
        let letter = |c| if c == '\t' && !in_code { ' ' } else { math::unmask(c) };
        let text: String = text.chars().map(letter).collect();
        self.text.extend(styled(&output::escape_control(&text), style));
    }

    /// Renders the collected text of the current block.
    fn flush(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        while text.last().is_some_and(|(c, _)| c.is_whitespace()) {
            text.pop();
        }
        if !text.is_empty() {
            let (first, rest) = (self.prefix(), self.prefix());
            self.rendered.rows.extend(wrapped(&text, first, &rest, self.limit()));
        }
    }

    /// Usable columns. The last one stays free, because terminals differ in what they do after it.
    fn limit(&self) -> usize {
        self.columns.saturating_sub(1).max(1)
    }

    /// The prefix of the next row: quote bars, indentation, and the markers of items that have not been written yet.
    fn prefix(&mut self) -> Row {
        let prefix = self.prefix_of(self.containers.len(), true);
        for container in &mut self.containers {
            if let Container::Item { is_written, .. } = container {
                *is_written = true;
            }
        }
        prefix
    }

    fn prefix_of(&self, containers: usize, with_markers: bool) -> Row {
        let mut prefix = Row::new();
        for container in &self.containers[..containers] {
            match container {
                Container::Quote => prefix.extend(styled("│ ", Style::DIM)),
                Container::Item { marker, is_written } if *is_written || !with_markers => {
                    prefix.extend(styled(&" ".repeat(row::width(marker)), Style::default()));
                }
                Container::Item { marker, .. } => prefix.extend(marker),
            }
        }
        // Deeper nesting than half of the terminal keeps only the innermost prefixes.
        let excess = prefix.len().saturating_sub(self.columns / 2);
        prefix.split_off(excess)
    }
}

/// Whether a line is blank apart from quote markers.
pub(super) fn is_blank(line: &str) -> bool {
    line.trim_matches([' ', '\t', '>']).is_empty()
}

/// The marker of a list item: its number as written, or a bullet.
fn marker(item: &str) -> Row {
    let digits = item.len() - item.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let marker = match digits {
        0 => "• ".to_owned(),
        _ => format!("{} ", item.get(..=digits).unwrap_or(item)),
    };
    styled(&marker, Style::default())
}
