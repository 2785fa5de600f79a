//! Outcomes as Markdown tables, with equal rows merged.

use refrain::DType;

use crate::outcome::Outcome;

/// A table of operations in which operations with equal rows are merged.
pub fn markdown(outcomes: &[(String, Vec<(DType, Outcome)>)]) -> String {
    let mut groups: Vec<(Vec<&str>, Vec<Row>)> = vec![];
    for (name, outcomes) in outcomes {
        let rows = rows(outcomes);
        match groups.iter_mut().find(|(_, known)| *known == rows) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], rows)),
        }
    }
    let mut text = "| operation | T | result | kernels |\n|---|---|---|---|\n".to_string();
    for (names, rows) in groups {
        let mut names = names.join(", ");
        for row in rows {
            let dtypes: Vec<String> = row.dtypes.iter().map(DType::to_string).collect();
            let [result, kernels] = row.cells();
            text.push_str(&format!("| {names} | {} | {result} | {kernels} |\n", dtypes.join(" ")));
            names.clear();
        }
    }
    text
}

/// Dtypes whose outcomes differ only in the dtype's name.
#[derive(PartialEq)]
struct Row {
    dtypes: Vec<DType>,
    is_error: bool,
    /// The words of the outcome; `None` stands for each dtype's own name.
    words: Vec<Option<String>>,
}

fn rows(outcomes: &[(DType, Outcome)]) -> Vec<Row> {
    let mut rows: Vec<Row> = vec![];
    for (dtype, outcome) in outcomes {
        let words = words(outcome);
        let joined = rows
            .iter_mut()
            .any(|row| row.is_error == outcome.is_error() && row.join(*dtype, &words));
        if !joined {
            rows.push(Row {
                dtypes: vec![*dtype],
                is_error: outcome.is_error(),
                words: words.into_iter().map(Some).collect(),
            });
        }
    }
    rows
}

impl Row {
    /// Adds a dtype if its words are the same except for dtype names.
    fn join(&mut self, dtype: DType, words: &[String]) -> bool {
        let first = self.dtypes[0].to_string();
        let own = dtype.to_string();
        let meet = |(mine, other): (&Option<String>, &String)| match mine {
            None => *other == own,
            // With a single dtype, its own name cannot be distinguished from a fixed one.
            Some(word) => word == other || (self.dtypes.len() == 1 && *word == first && *other == own),
        };
        if self.words.len() != words.len() || !self.words.iter().zip(words).all(meet) {
            return false;
        }
        for (mine, other) in self.words.iter_mut().zip(words) {
            if mine.as_ref() != Some(other) {
                *mine = None;
            }
        }
        self.dtypes.push(dtype);
        true
    }

    /// The result's dtype and the kernels, or the error.
    fn cells(&self) -> [String; 2] {
        let words: String = self.words.iter().map(|word| word.as_deref().unwrap_or("T")).collect();
        if self.is_error {
            return [String::new(), format!("*{words}*")];
        }
        let (result, kernels) = words.split_once(' ').expect("a result and its kernels");
        let kernels: Vec<String> = kernels.split_whitespace().map(|kernel| format!("`{kernel}`")).collect();
        [
            result.to_string(),
            if kernels.is_empty() {
                "none".to_string()
            } else {
                kernels.join(", ")
            },
        ]
    }
}

/// The outcome as text, split at word boundaries.
fn words(outcome: &Outcome) -> Vec<String> {
    let text = match outcome {
        Outcome::Kernels(result, kernels) => format!("{result} {}", kernels.join(" ")),
        Outcome::Error(what) => what.clone(),
    };
    let mut words: Vec<String> = vec![];
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if word.ends_with(char::is_alphanumeric) && c.is_alphanumeric() => word.push(c),
            _ => words.push(c.to_string()),
        }
    }
    words
}
