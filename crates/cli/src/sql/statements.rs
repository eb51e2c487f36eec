//! Text cut into statements and commands, with the lines they are on.
//!
//! The cuts are made by the lexer of DataFusion's parser, so that a `;` in quotes, comments or dollar quotes is none.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// One statement, or one command that begins with a backslash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Without the `;`.
    pub(crate) text: String,
    /// Where it begins, from 1.
    pub(crate) line: usize,
    /// Where in the line it begins, from 1.
    pub(crate) column: usize,
}

impl Piece {
    /// The command, without its backslash.
    pub(crate) fn command(&self) -> Option<&str> {
        self.text.strip_prefix('\\')
    }

    /// Its first line, shortened, for errors.
    pub(crate) fn name(&self) -> String {
        const LONGEST: usize = 60;
        let first = self.text.lines().next().unwrap_or_default().trim_end();
        let more = first.chars().count() > LONGEST || self.text.lines().count() > 1;
        let shown: String = first.chars().take(LONGEST).collect();
        format!("`{}{}`", shown.trim_end(), if more { " .." } else { "" })
    }
}

/// The pieces of a text.
pub(crate) fn split(dialect: Box<dyn Dialect>, text: &str) -> Vec<Piece> {
    let mut splitter = Splitter::new(dialect);
    let mut pieces: Vec<Piece> = text.lines().flat_map(|line| splitter.push(line)).collect();
    pieces.extend(splitter.finish());
    pieces
}

/// Takes lines, gives pieces.
pub(crate) struct Splitter {
    dialect: Box<dyn Dialect>,
    pending: String,
    /// The line that `pending` begins on, and its place in it.
    start: Location,
    lines: u64,
    waiting: bool,
}

impl Splitter {
    pub(crate) fn new(dialect: Box<dyn Dialect>) -> Self {
        Self { dialect, pending: String::new(), start: Location { line: 1, column: 1 }, lines: 0, waiting: false }
    }

    /// What is complete with this line.
    pub(crate) fn push(&mut self, line: &str) -> Vec<Piece> {
        self.lines += 1;
        if !self.waiting {
            self.pending.clear();
            self.start = Location { line: self.lines, column: 1 };
            let trimmed = line.trim();
            if trimmed.starts_with('\\') {
                let text = trimmed.trim_end_matches(';').trim_end().to_owned();
                return vec![Piece { text, line: self.lines as usize, column: 1 }];
            }
        }
        self.pending.push_str(line);
        self.pending.push('\n');
        let pieces = if line.contains(';') { self.cut() } else { Vec::new() };
        // A statement that has begun is not read again with each of its lines; a comment of several lines may end.
        if !self.waiting || !pieces.is_empty() || line.contains("*/") {
            self.waiting = self.has_begun();
        }
        pieces
    }

    /// What is left at the end, without a `;`.
    pub(crate) fn finish(&mut self) -> Option<Piece> {
        let tokens = self.tokens();
        // Also what the lexer cannot read, for the parser to say what is wrong.
        let first = tokens.iter().find(|token| !is_blank(token)).map(|token| token.span.start);
        let first = first.or_else(|| self.has_begun().then_some(Location { line: 1, column: 1 }))?;
        let piece = self.piece(first, self.pending.len());
        self.forget();
        Some(piece)
    }

    /// Whether a statement has begun.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    fn has_begun(&self) -> bool {
        let mut tokens = Vec::new();
        let read = Tokenizer::new(self.dialect.as_ref(), &self.pending).tokenize_with_location_into_buf(&mut tokens);
        read.is_err() || tokens.iter().any(|token| !is_blank(token))
    }

    /// Drops what has begun.
    pub(crate) fn forget(&mut self) {
        self.pending.clear();
        self.waiting = false;
    }

    /// Takes every statement that a `;` ends.
    fn cut(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut first, mut end) = (None, None);
        for token in self.tokens() {
            match token.token {
                Token::SemiColon => {
                    if let Some(first) = first.take() {
                        pieces.push(self.piece(first, offset(&self.pending, token.span.start)));
                    }
                    end = Some(token.span.end);
                }
                _ if !is_blank(&token) => first = first.or(Some(token.span.start)),
                _ => {}
            }
        }
        if let Some(end) = end {
            self.start = self.absolute(end);
            self.pending.drain(..offset(&self.pending, end));
        }
        pieces
    }

    /// The lexer's tokens, as far as it comes.
    fn tokens(&self) -> Vec<TokenWithSpan> {
        let mut tokens = Vec::new();
        // A quote that is still open is no error while lines come in.
        let _ = Tokenizer::new(self.dialect.as_ref(), &self.pending).tokenize_with_location_into_buf(&mut tokens);
        tokens
    }

    fn piece(&self, from: Location, to: usize) -> Piece {
        let text = self.pending[offset(&self.pending, from)..to].trim_end().to_owned();
        let at = self.absolute(from);
        Piece { text, line: at.line as usize, column: at.column as usize }
    }

    /// A place in `pending` as a place in the whole text.
    fn absolute(&self, at: Location) -> Location {
        let column = if at.line == 1 { self.start.column + at.column - 1 } else { at.column };
        Location { line: self.start.line + at.line - 1, column }
    }
}

fn is_blank(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_) | Token::EOF)
}

/// The byte at a place, which the lexer counts in lines and characters.
fn offset(text: &str, at: Location) -> usize {
    let line = text.split_inclusive('\n').take(at.line.saturating_sub(1) as usize).map(str::len).sum::<usize>();
    let rest = text.get(line..).unwrap_or_default();
    line + rest.chars().take(at.column.saturating_sub(1) as usize).map(char::len_utf8).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    use super::*;

    fn split(text: &str) -> Vec<(usize, usize, String)> {
        super::split(Box::new(GenericDialect {}), text)
            .into_iter()
            .map(|piece| (piece.line, piece.column, piece.text))
            .collect()
    }

    fn texts(text: &str) -> Vec<String> {
        split(text).into_iter().map(|(_, _, text)| text).collect()
    }

    #[test]
    fn semicolons_end_statements() {
        assert_eq!(texts("SELECT 1; SELECT 2;"), ["SELECT 1", "SELECT 2"]);
        assert_eq!(texts("SELECT 1;\n\n;;  ;\nSELECT\n 2"), ["SELECT 1", "SELECT\n 2"]);
        assert_eq!(texts(" \n-- nothing\n/* at all */ ;"), [""; 0]);
    }

    #[test]
    fn semicolons_in_quotes_and_comments_do_not() {
        for text in [
            "SELECT 'a;b', 'it''s;'",
            "SELECT \"a;b\"",
            "SELECT 1 -- one; or\n, 2",
            "SELECT /* one; /* two; */ */ 1",
            "SELECT $$a;b$$",
            "SELECT $tag$a;$$b;$tag$",
            "SELECT $1, $2",
            "SELECT 'two;\nlines'",
            "SELECT 'grün;', '⟨;⟩'",
        ] {
            assert_eq!(texts(&format!("{text};SELECT 2;")), [text, "SELECT 2"], "{text}");
        }
    }

    #[test]
    fn places_are_those_of_the_text() {
        let text = "-- first\nSELECT 1;\n\n  SELECT 'ü'; SELECT\n3;\n\\d t;\n  SELECT 4";
        let expected = [
            (2, 1, "SELECT 1".to_owned()),
            (4, 3, "SELECT 'ü'".to_owned()),
            (4, 15, "SELECT\n3".to_owned()),
            (6, 1, "\\d t".to_owned()),
            (7, 3, "SELECT 4".to_owned()),
        ];
        assert_eq!(split(text), expected);
    }

    #[test]
    fn commands_stand_on_lines_of_their_own() {
        assert_eq!(
            texts("-- a note\n\\d\n\\f mask_shift\nSELECT '\n\\d';"),
            ["\\d", "\\f mask_shift", "SELECT '\n\\d'"]
        );
    }

    #[test]
    fn what_never_ends_is_for_the_parser() {
        assert_eq!(texts("SELECT 'open;\nSELECT 2;"), ["SELECT 'open;\nSELECT 2;"]);
        assert_eq!(texts("'open"), ["'open"]);
    }

    #[test]
    fn names_are_short() {
        let name = |text: &str| Piece { text: text.to_owned(), line: 1, column: 1 }.name();
        assert_eq!(name("SELECT 1"), "`SELECT 1`");
        assert_eq!(name("SELECT\n1"), "`SELECT ..`");
        assert_eq!(name(&"x".repeat(70)), format!("`{} ..`", "x".repeat(60)));
    }
}
