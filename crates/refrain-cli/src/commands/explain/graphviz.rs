//! Converts a printed graph to Graphviz.

/// The Graphviz source: a node for each line, and an edge for each `%N` that it reads.
pub(super) fn dot(printed: &str) -> String {
    let mut text = String::from("digraph program {\n  rankdir = TB;\n  node [shape = box, fontname = monospace];\n");
    let quoted = |line: &str| line.replace('\\', "\\\\").replace('"', "\\\"");
    for line in printed.lines().filter(|line| line.starts_with('%')) {
        let Some((name, rest)) = line.split_once(" = ") else {
            continue;
        };
        text.push_str(&format!("  \"{name}\" [label = \"{}\"];\n", quoted(line)));
        for source in sources(rest) {
            text.push_str(&format!("  \"{source}\" -> \"{name}\";\n"));
        }
    }
    text.push_str("}\n");
    text
}

/// The nodes that a line reads, listed in its last parentheses.
fn sources(line: &str) -> Vec<String> {
    let inputs = line.rfind(" (").map_or("", |start| &line[start..]);
    inputs
        .split('%')
        .skip(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>())
        .map(|number| format!("%{number}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_nodes_and_reads_become_edges() {
        let drawn = dot("%0 = weight f32[4] ()\n%1 = rms_norm eps 1e-6 f32[4] (%0, %0[2:1])\nreturn %1\n");
        assert!(drawn.contains("\"%1\" [label = "), "{drawn}");
        assert_eq!(drawn.matches("\"%0\" -> \"%1\"").count(), 2, "{drawn}");
    }
}
