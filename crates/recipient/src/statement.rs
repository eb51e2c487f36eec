//! A query as the statement that releases its rows.

use veil_release::is_recipient_name;

use crate::RecipientError;

/// The statement that releases a query's rows to a recipient. What calls `release` itself stays as it is.
pub fn release_statement(sql: &str, recipient: &str) -> Result<String, RecipientError> {
    if !is_recipient_name(recipient) {
        return Err(RecipientError::Setting(format!("`{recipient}` cannot be a recipient's name")));
    }
    let sql = sql.trim().trim_end_matches(';').trim_end();
    if sql.is_empty() {
        return Err(RecipientError::Setting("the statement is empty: write a query".to_owned()));
    }
    match calls_release(sql) {
        true => Ok(sql.to_owned()),
        // A comment may end the query: the bracket stands on a line of its own.
        false => Ok(format!("SELECT * FROM release((\n{sql}\n), recipient => '{recipient}')")),
    }
}

/// Whether `release(` stands somewhere that is neither a text, a quoted name nor a comment.
fn calls_release(sql: &str) -> bool {
    let mut rest = sql;
    let mut is_called = false;
    while let Some(letter) = rest.chars().next() {
        if letter.is_alphanumeric() || letter == '_' {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            is_called |= word.eq_ignore_ascii_case("release") && after.trim_start().starts_with('(');
            rest = after;
            continue;
        }
        let skipped = [("'", "'"), ("\"", "\""), ("--", "\n"), ("/*", "*/")].into_iter().find_map(|(start, end)| {
            let inside = rest.strip_prefix(start)?;
            Some(inside.split_once(end).map_or("", |(_, after)| after))
        });
        rest = skipped.unwrap_or_else(|| rest.get(letter.len_utf8()..).unwrap_or_default());
    }
    is_called
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_wrapped_and_releases_are_not() {
        let wrapped = release_statement(" SELECT a FROM t -- all of it\n; ", "alice").unwrap();
        assert_eq!(wrapped, "SELECT * FROM release((\nSELECT a FROM t -- all of it\n), recipient => 'alice')");
        for sql in [
            "SELECT * FROM release(anon, recipient => 'alice')",
            "select * from RELEASE\n ((select 1), recipient => 'alice')",
            "WITH a AS (SELECT 'x''y') SELECT * FROM release(a, recipient => 'alice')",
        ] {
            assert_eq!(release_statement(sql, "alice").unwrap(), sql);
        }
        for sql in [
            "SELECT 'release(' FROM t",
            "SELECT \"release\"(a) FROM t",
            "SELECT 1 -- release(a)",
            "SELECT 1 /* release(a) */",
            "SELECT prerelease(a), release FROM t",
            "SELECT 'grün', release_day(a) FROM t",
            "SELECT 'open",
        ] {
            assert!(release_statement(sql, "alice").unwrap().starts_with("SELECT * FROM release((\n"), "{sql}");
        }
        assert!(release_statement(" ; ", "alice").is_err());
        assert!(release_statement("SELECT 1", "a' OR '1").is_err());
    }
}
