//! The prompt.

use std::path::PathBuf;

use rustyline::config::Config;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Editor};

use super::commands::{Next, table_schemas};
use super::completion::Names;
use super::runner::Runner;
use super::statements::Splitter;
use crate::Outcome;
use crate::progress::say;

const PROMPT: &str = "veil> ";
const CONTINUED: &str = "   -> ";

/// Reads and runs until the user leaves.
pub(crate) async fn run(runner: &mut Runner) -> Outcome {
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(10_000)?.build();
    let mut editor = Editor::<Names, FileHistory>::with_config(config)?;
    let history = history_file();
    if let Some(file) = &history {
        // The first time there is none.
        let _ = editor.load_history(file);
    }
    if !runner.quiet {
        say(&banner(runner).await);
    }
    let mut splitter = Splitter::new(runner.dialect());
    let mut typed = String::new();
    editor.set_helper(Some(Names::of(&runner.engine).await));
    loop {
        match editor.readline(if splitter.is_waiting() { CONTINUED } else { PROMPT }) {
            Ok(line) => {
                typed.push_str(&line);
                let pieces = splitter.push(&line);
                if splitter.is_waiting() {
                    typed.push('\n');
                    if pieces.is_empty() {
                        continue;
                    }
                } else {
                    editor.add_history_entry(typed.trim())?;
                    typed.clear();
                    if let Some(file) = &history {
                        let _ = editor.append_history(file);
                    }
                }
                for piece in pieces {
                    match runner.run(&piece).await {
                        Ok(Next::Stay) => {}
                        Ok(Next::Leave) => return Ok(()),
                        Err(sentence) => {
                            say(&format!("error: {sentence}"));
                            break;
                        }
                    }
                }
                // Statements make and drop tables.
                editor.set_helper(Some(Names::of(&runner.engine).await));
            }
            // Ctrl-C drops what is typed.
            Err(ReadlineError::Interrupted) => {
                splitter.forget();
                typed.clear();
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// `$VEIL_HISTORY`, or a file in the user's home; none if the variable is empty.
fn history_file() -> Option<PathBuf> {
    match std::env::var_os("VEIL_HISTORY") {
        Some(file) if file.is_empty() => None,
        Some(file) => Some(file.into()),
        None => std::env::home_dir().map(|home| home.join(".veil_history")),
    }
}

async fn banner(runner: &Runner) -> String {
    let tables: Vec<String> =
        table_schemas(&runner.engine.context).await.into_iter().map(|(name, _)| name.to_string()).collect();
    let tables = if tables.is_empty() { "none yet".to_owned() } else { tables.join(", ") };
    let key_set = runner.engine.key_set.map_or_else(|| "no keys".to_owned(), |key| format!("key set {key}"));
    format!(
        "veil {}: {key_set}, {}; tables: {tables}\n\\? lists commands, \\f functions, \\q leaves",
        env!("CARGO_PKG_VERSION"),
        runner.engine.p2
    )
}
