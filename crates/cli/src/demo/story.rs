//! How the demo is told: chapters, commands, statements, tables, and what each party saw. Colours on a terminal only, and never wider than
//! a hundred columns.

use std::io::{IsTerminal, Stdout, Write};
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};

use super::books::Cost;
use super::table::Table;
use crate::Outcome;

/// Columns of a terminal that everybody has.
pub(super) const WIDTH: usize = 100;
const INDENT: &str = "   ";
/// Words in front of what a party saw.
const LABEL: usize = 11;

/// Standard output.
pub(super) struct Story {
    out: Stdout,
    colours: bool,
    chapters: usize,
}

/// How a piece of text looks.
#[derive(Clone, Copy)]
enum Look {
    Title,
    Typed,
    Printed,
    Label,
}

impl Look {
    fn code(self) -> &'static str {
        match self {
            Self::Title => "1",
            Self::Typed => "36",
            Self::Printed => "2",
            Self::Label => "33",
        }
    }
}

impl Story {
    pub(super) fn new() -> Self {
        let out = std::io::stdout();
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let able = out.is_terminal() && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
        Self { out, colours: wanted && able, chapters: 0 }
    }

    /// Begins a chapter.
    pub(super) fn chapter(&mut self, title: &str) -> Outcome {
        self.chapters += 1;
        let title = format!("{}. {title}", self.chapters);
        let rule = "=".repeat(title.chars().count().min(WIDTH));
        writeln!(self.out, "\n{}\n{rule}", self.looking(&title, Look::Title))?;
        Ok(())
    }

    /// A paragraph.
    pub(super) fn say(&mut self, text: &str) -> Outcome {
        for line in wrapped(text, WIDTH) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    /// A command as somebody types it, in a folder. An option stays with its value.
    pub(super) fn command(&mut self, prompt: &str, words: &[&str]) -> Outcome {
        writeln!(self.out)?;
        self.typed("veil", prompt, words)
    }

    /// The same with the program's name as it can be typed here.
    pub(super) fn typed(&mut self, program: &str, prompt: &str, words: &[&str]) -> Outcome {
        let mut pieces: Vec<String> = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let is_value =
                at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word.starts_with('-'));
            match pieces.last_mut() {
                Some(option) if is_value && !word.starts_with('-') => option.extend([" ", &shell_word(word)]),
                _ => pieces.push(shell_word(word)),
            }
        }
        let room = WIDTH - INDENT.len() - prompt.len() - 4;
        let mut lines = vec![program.to_owned()];
        for piece in pieces {
            match lines.last_mut() {
                Some(line) if !piece.contains('\n') && line.len() + 1 + piece.len() <= room => {
                    line.extend([" ", &piece])
                }
                _ => lines.push(format!("    {piece}")),
            }
        }
        let last = lines.len() - 1;
        for (at, line) in lines.into_iter().enumerate() {
            let start = if at == 0 { format!("{prompt}$ ") } else { "  ".to_owned() };
            let end = if at < last { " \\" } else { "" };
            // A text of several lines, as SQL is, stays one word between its quotes.
            let line = format!("{line}{end}").replace('\n', &format!("\n{INDENT}      "));
            writeln!(self.out, "{INDENT}{start}{}", self.looking(&line, Look::Typed))?;
        }
        Ok(())
    }

    /// What a command printed.
    pub(super) fn printed(&mut self, text: &str) -> Outcome {
        for line in text.trim_end().lines() {
            for (at, piece) in wrapped(line, WIDTH - 2 * INDENT.len()).iter().enumerate() {
                let start = if at == 0 { "" } else { INDENT };
                writeln!(self.out, "{INDENT}{start}{}", self.looking(piece, Look::Printed))?;
            }
        }
        Ok(())
    }

    /// Lines as they are.
    pub(super) fn quote(&mut self, text: &str) -> Outcome {
        for line in text.trim_end().lines() {
            writeln!(self.out, "{INDENT}{line}")?;
        }
        Ok(())
    }

    /// A statement as P1 gets it.
    pub(super) fn sql(&mut self, sql: &str) -> Outcome {
        writeln!(self.out)?;
        for (at, line) in sql.lines().enumerate() {
            let start = if at == 0 { "sql> " } else { "  -> " };
            let end = if at + 1 == sql.lines().count() { ";" } else { "" };
            writeln!(self.out, "{INDENT}{start}{}", self.looking(&format!("{line}{end}"), Look::Typed))?;
        }
        Ok(())
    }

    /// A table, narrow enough.
    pub(super) fn table(&mut self, table: &Table) -> Outcome {
        let text = table.text(WIDTH - INDENT.len());
        self.quote(&text)
    }

    /// An empty line.
    pub(super) fn pause(&mut self) -> Outcome {
        Ok(writeln!(self.out)?)
    }

    /// What somebody saw, or what something took.
    pub(super) fn seen(&mut self, label: &str, text: &str) -> Outcome {
        let lines = wrapped(text, WIDTH - INDENT.len() - LABEL);
        for (at, line) in lines.into_iter().enumerate() {
            let label = format!("{:<LABEL$}", if at == 0 { label } else { "" });
            writeln!(self.out, "{INDENT}{}{line}", self.looking(&label, Look::Label))?;
        }
        Ok(())
    }

    /// What P2 saw of what it was asked; nothing, if its own counters say that it was asked nothing.
    pub(super) fn p2_saw(&mut self, text: &str, cost: &Cost) -> Outcome {
        self.seen("P2 saw", if cost.messages > 0 { text } else { "nothing: nobody asked it" })
    }

    /// What a chapter cost, as the wire and P2's own counters tell it.
    pub(super) fn cost(&mut self, cost: &Cost) -> Outcome {
        let opened = match cost.opened.is_empty() {
            true => "nothing".to_owned(),
            false => {
                let named = |(purpose, count): &(String, u64)| format!("{} ({purpose})", HumanCount(*count));
                cost.opened.iter().map(named).collect::<Vec<_>>().join(", ")
            }
        };
        let mut protocols = cost.protocols.clone();
        protocols.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
        let asked = protocols.iter().take(6).map(|(name, count)| format!("{name} {}", HumanCount(*count)));
        let more = protocols.len().saturating_sub(6);
        let more = if more > 0 { format!(", and {more} others") } else { String::new() };
        if cost.messages > 0 {
            let asked = asked.collect::<Vec<_>>().join(", ");
            self.seen("P2's books", &format!("{} messages answered: {asked}{more}", HumanCount(cost.messages)))?;
        }
        self.seen("opened", &format!("numbers that P2 opened to P1, by its own count: {opened}"))?;
        let traffic = format!("{} to P2, {} back", HumanBytes(cost.up), HumanBytes(cost.down));
        self.seen("took", &format!("{}; {traffic}", seconds(cost.time)))
    }

    fn looking(&self, text: &str, look: Look) -> String {
        match self.colours {
            true => format!("\x1b[{}m{text}\x1b[0m", look.code()),
            false => text.to_owned(),
        }
    }
}

/// For people.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// In quotes where a shell needs them.
fn shell_word(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => {
            format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$").replace('`', "\\`"))
        }
    }
}

/// Lines of at most so many letters, cut between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a-word-that-is-too-long x", 5), ["a-word-that-is-too-long", "x"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("http://127.0.0.1:7711"), "http://127.0.0.1:7711");
        assert_eq!(shell_word("SELECT \"a\" FROM t"), "\"SELECT \\\"a\\\" FROM t\"");
        assert_eq!(shell_word(""), "\"\"");
    }
}
