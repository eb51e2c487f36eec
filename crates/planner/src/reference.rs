//! docs/sql.md, from the functions' own documentation. A test writes it.

use std::fmt::Write;

use crate::{Veil, documented};

const INTRODUCTION: &str = "\
# SQL on encrypted columns
<!-- Written by `VEIL_BLESS=1 cargo test -p veil-planner reference` from the functions' own documentation: change it there. -->

An encrypted column is an Arrow binary column of type `veil.cell`. It can be selected, renamed, copied, carried through joins, unions,
subqueries, views and `CASE`, and given to the functions below. Comparing, sorting, grouping, casting it or giving it to other functions is
refused when a query is planned, with what to use instead. Clear columns are DataFusion's: `WHERE`, `GROUP BY`, `JOIN` and `ORDER BY` them as on any
table. `SELECT * FROM veil_functions()` lists the functions, `\\f NAME` in `veil sql` shows one.

Where the third column says *rounds*, the engine asks P2 while the query runs; `EXPLAIN` shows such calls as `VeilRounds`, or under a name of their own, with the protocols they run
([what each tells whom](protocols/README.md)). A call in the text of a query runs once for every row that reaches it, and two calls draw different noise. A view or CTE is
read anew at each place that names it, and so draws anew: `CREATE TABLE .. AS` draws once. `dp_*` protects values, not which rows are NULL.

";

const SETTINGS: &str = "
## Settings
| `SET ...` | default | meaning |
|---|---|---|
| `veil.noise` | `'joint'` | whose noise a released value carries: of both servers (`'joint'`), or of the engine alone (`'single'`) |
| `veil.p2` | the one given at the start | where P2 listens: `'https://host:7722'` |
| `veil.p2_ca`, `veil.p2_cert`, `veil.p2_key` | none | PEM files for mutual TLS with it |
| `veil.batch_rows` | `65536` | rows of a batch of rounds; 8192 fit a ciphertext |
| `veil.seed` | none | makes all noise repeatable, and so worthless: for tests only |
";

/// Functions that ask P2 always, or where their bounds are encrypted.
fn rounds(name: &str) -> &'static str {
    match name {
        "mask_random" | "dp_exponential" => "always",
        "identifiers" | "risk" | "class_sizes" | "utility" => "unless all columns are clear",
        "k_anonymize" | "sweep" | "release" => "always",
        "dp_laplace" | "dp_geometric" => "if the bounds are encrypted",
        "dp_randomized_response" => "on categories",
        _ => "none",
    }
}

/// The text.
fn sql_reference() -> String {
    let all = documented(&Veil::default());
    let mut text = String::from(INTRODUCTION);
    text.push_str("| function | does | rounds |\n|---|---|---|\n");
    for (name, docs) in &all {
        let first = docs.description.split_inclusive(". ").next().unwrap_or_default().trim();
        let _ = writeln!(text, "| [`{}`](#{name}) | {first} | {} |", docs.syntax_example, rounds(name));
    }
    let mut section = "";
    for (name, docs) in &all {
        if section != docs.doc_section.label {
            section = docs.doc_section.label;
            let _ = write!(text, "\n## {section}\n");
        }
        let _ = write!(text, "\n### {name}\n{}\n", docs.description);
        let example = docs.sql_example.as_deref().unwrap_or_default();
        let _ = write!(text, "```sql\n{example}\n```\n");
        for (argument, meaning) in docs.arguments.iter().flatten() {
            let _ = writeln!(text, "- `{argument}`: {meaning}");
        }
    }
    text.push_str(SETTINGS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_what_the_functions_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sql.md");
        let text = sql_reference();
        if std::env::var_os("VEIL_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == text, "docs/sql.md is out of date: VEIL_BLESS=1 cargo test -p veil-planner reference");
    }
}
