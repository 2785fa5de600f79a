//! Markdown as rows of a terminal.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::formulas;
use super::row::{self, Look, Row, styled, wrapped};
use super::table::Table;
use crate::output;

/// A text as it is drawn.
#[derive(Debug, Default)]
pub(super) struct Drawing {
    pub rows: Vec<Row>,
    /// The line in which the last block begins, or the last item of a list that is the last block.
    pub last_begins: usize,
    pub last: LastBlock,
}

/// What the innermost block at the end is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LastBlock {
    /// Code between fences, of which the second is missing.
    Code { is_empty: bool },
    /// A table in nothing else.
    Table,
    #[default]
    Other,
}

/// What blocks lie in.
enum Container {
    Quote,
    Item { marker: Row, is_written: bool },
}

/// Draws blocks as they are told of.
struct Drawer<'a> {
    source: &'a str,
    columns: usize,
    drawing: Drawing,
    containers: Vec<Container>,
    /// The text of a block so far.
    text: Row,
    looks: Vec<Look>,
    /// Links under way: where their text begins, and where they lead.
    links: Vec<(usize, String)>,
    table: Option<Table>,
    /// The code block under way: where it stands, and whether it is fenced.
    code: Option<(Range<usize>, bool)>,
    depth: usize,
    /// The beginning of the line that was last looked at for a blank one before it.
    separated: Option<usize>,
}

/// Draws a text on a terminal of so many columns.
pub(super) fn draw(text: &str, columns: usize) -> Drawing {
    let source = formulas::hide(text);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_MATH;
    let mut drawer = Drawer {
        source: &source,
        columns,
        drawing: Drawing::default(),
        containers: vec![],
        text: vec![],
        looks: vec![],
        links: vec![],
        table: None,
        code: None,
        depth: 0,
        separated: None,
    };
    for (event, range) in Parser::new_ext(&source, options).into_offset_iter() {
        drawer.take(event, range);
    }
    drawer.drawing
}

impl Drawer<'_> {
    fn take(&mut self, event: Event, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag, range),
            Event::End(tag) => self.end(tag, range),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.push(&text, Look::default()),
            Event::Code(text) => {
                let code = Look {
                    code: true,
                    ..Look::default()
                };
                self.push(&text, code);
            }
            Event::InlineMath(text) => self.push(&format!("${text}$"), Look::default()),
            Event::DisplayMath(text) => self.push(&format!("$${text}$$"), Look::default()),
            Event::SoftBreak | Event::HardBreak => self.text.push(('\n', Look::default())),
            Event::Rule => {
                self.begin(&range);
                let prefix = self.prefix();
                let width = self.limit().saturating_sub(row::width(&prefix)).max(1);
                self.drawing
                    .rows
                    .push([prefix, styled(&"─".repeat(width), Look::DIM)].concat());
            }
            // What is not asked for in the options.
            Event::TaskListMarker(_) | Event::FootnoteReference(_) => {}
        }
    }

    fn start(&mut self, tag: Tag, range: Range<usize>) {
        let look = |change: fn(&mut Look)| {
            let mut look = Look::default();
            change(&mut look);
            look
        };
        match tag {
            Tag::Emphasis => return self.looks.push(look(|look| look.italic = true)),
            Tag::Strong => return self.looks.push(look(|look| look.bold = true)),
            Tag::Strikethrough => return self.looks.push(look(|look| look.struck = true)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((self.text.len(), dest_url.into_string()));
                return self.looks.push(look(|look| look.underlined = true));
            }
            Tag::TableHead | Tag::TableRow => return self.table.iter_mut().for_each(Table::begin_row),
            Tag::TableCell => return,
            _ => {}
        }
        self.begin(&range);
        self.depth += 1;
        match tag {
            Tag::Heading { level, .. } => self.looks.push(Look {
                bold: true,
                underlined: level == HeadingLevel::H1,
                ..Look::default()
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
                    self.drawing.last = LastBlock::Table;
                }
            }
            _ => {}
        }
    }

    /// Begins a block: what stands before it is drawn, and an empty row where it has a blank line before it.
    fn begin(&mut self, range: &Range<usize>) {
        self.flush();
        self.drawing.last = LastBlock::Other;
        let before = &self.source[..range.start];
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        let is_last_item = self.depth == 1 && self.containers.is_empty();
        if self.depth == 0 || is_last_item {
            self.drawing.last_begins = before.matches('\n').count();
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
            self.drawing.rows.push(row);
        }
    }

    fn end(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.looks.pop();
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
                self.looks.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.containers.pop();
            }
            TagEnd::Item => {
                // One without anything.
                if matches!(self.containers.last(), Some(Container::Item { is_written: false, .. })) {
                    let mut prefix = self.prefix();
                    prefix.pop();
                    self.drawing.rows.push(prefix);
                }
                self.containers.pop();
            }
            _ => {}
        }
    }

    /// A link's address behind its text, unless that is the text.
    fn end_link(&mut self) {
        self.looks.pop();
        let Some((begin, address)) = self.links.pop() else {
            return;
        };
        let text: String = self.text[begin..].iter().map(|(c, _)| c).collect();
        if text.is_empty() {
            self.push(&address, Look::default());
        } else if text != address && Some(&text[..]) != address.strip_prefix("mailto:") {
            self.push(&format!(" ({address})"), Look::DIM);
        }
    }

    /// Code, line by line as it is: to be copied.
    fn end_code(&mut self) {
        let Some((range, is_fenced)) = self.code.take() else {
            return;
        };
        let text = std::mem::take(&mut self.text);
        let is_empty = text.is_empty();
        if is_fenced && (!is_empty || self.source[range].trim_end().lines().count() == 1) {
            self.drawing.last = LastBlock::Code { is_empty };
        }
        let code = |letter: &(char, Look)| {
            let look = Look {
                code: true,
                ..Look::default()
            };
            (letter.0, look)
        };
        for line in text.split_inclusive(|(c, _)| *c == '\n') {
            let line = line.strip_suffix(&[('\n', Look::default())]).unwrap_or(line);
            let prefix = self.prefix();
            self.drawing
                .rows
                .push(prefix.into_iter().chain(line.iter().map(code)).collect());
        }
    }

    /// A table: aligned, or as it was written where there is no room for that, or a cell has no head.
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
                    self.drawing.rows.push([prefix, row].concat());
                }
            }
            None => {
                self.push(&lines.join("\n"), Look::default());
                self.flush();
            }
        }
    }

    /// Adds to the text of the block under way.
    fn push(&mut self, text: &str, mut look: Look) {
        for outer in &self.looks {
            look.bold |= outer.bold;
            look.italic |= outer.italic;
            look.underlined |= outer.underlined;
            look.struck |= outer.struck;
        }
        let in_code = self.code.is_some();
        let letter = |c| if c == '\t' && !in_code { ' ' } else { formulas::shown(c) };
        let text: String = text.chars().map(letter).collect();
        self.text.extend(styled(&output::plain(&text), look));
    }

    /// Draws the text of a block.
    fn flush(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        while text.last().is_some_and(|(c, _)| c.is_whitespace()) {
            text.pop();
        }
        if !text.is_empty() {
            let (first, rest) = (self.prefix(), self.prefix());
            self.drawing.rows.extend(wrapped(&text, first, &rest, self.limit()));
        }
    }

    /// Columns of text: where the last is free, terminals need not agree on what happens behind it.
    fn limit(&self) -> usize {
        self.columns.saturating_sub(1).max(1)
    }

    /// What stands before a row; the markers of items stand before their first.
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
                Container::Quote => prefix.extend(styled("│ ", Look::DIM)),
                Container::Item { marker, is_written } if *is_written || !with_markers => {
                    prefix.extend(styled(&" ".repeat(row::width(marker)), Look::default()));
                }
                Container::Item { marker, .. } => prefix.extend(marker),
            }
        }
        // What lies deeper than half of the terminal keeps what is nearest to it.
        let excess = prefix.len().saturating_sub(self.columns / 2);
        prefix.split_off(excess)
    }
}

/// Whether a line has nothing but what quotes have in each.
pub(super) fn is_blank(line: &str) -> bool {
    line.trim_matches([' ', '\t', '>']).is_empty()
}

/// What stands before an item: its number as it was written, or a bullet.
fn marker(item: &str) -> Row {
    let digits = item.len() - item.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let marker = match digits {
        0 => "• ".to_owned(),
        _ => format!("{} ", item.get(..=digits).unwrap_or(item)),
    };
    styled(&marker, Look::default())
}
