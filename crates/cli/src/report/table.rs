//! Tables of the page: rows become cards where the screen is narrow, so every cell carries the title of its column.

use super::words::escape;

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Text,
    /// Text of which two go side by side on a narrow screen.
    Short,
    Number,
}

/// A table. Titles and cells are HTML: whoever fills them escapes what comes from outside.
pub(super) fn table(caption: &str, columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let class = |align: Align| match align {
        Align::Text => "",
        Align::Short => r#" class="short""#,
        Align::Number => r#" class="number""#,
    };
    let heads: String = columns
        .iter()
        .map(|(title, align)| format!(r#"<th scope="col" role="columnheader"{}>{title}</th>"#, class(*align)))
        .collect();
    let row = |cells: &Vec<String>| {
        let cells: String = cells
            .iter()
            .zip(columns)
            .map(|(cell, (title, align))| {
                format!(r#"<td role="cell" data-title="{title}"{}><span>{cell}</span></td>"#, class(*align))
            })
            .collect();
        format!(r#"<tr role="row">{cells}</tr>"#)
    };
    let body: String = rows.iter().map(row).collect();
    format!(
        r#"<table role="table"><caption>{}</caption><thead role="rowgroup"><tr role="row">{heads}</tr></thead><tbody role="rowgroup">{body}</tbody></table>"#,
        escape(caption)
    )
}

/// A table behind a chart, for those who want its numbers.
pub(super) fn behind(caption: &str, columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    format!("<details><summary>The numbers</summary>{}</details>", table(caption, columns, rows))
}
