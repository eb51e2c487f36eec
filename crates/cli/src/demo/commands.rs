//! Commands of this program, run as somebody types them: what is printed is what was started.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use veil_owner::OwnerError;

use super::waiting::Waiting;
use crate::progress::is_interrupted;

type Failure = Box<dyn std::error::Error>;

/// How often a command is asked whether it has ended, and the user whether it shall.
const EVERY: Duration = Duration::from_millis(20);

/// This program, in a folder.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    folder: PathBuf,
    quiet: bool,
}

/// What a command left.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) said: String,
}

impl Program {
    pub(super) fn new(folder: &Path, quiet: bool) -> Result<Self, Failure> {
        let path = std::env::current_exe().map_err(|error| format!("this program's own file is not known: {error}"))?;
        Ok(Self { path, folder: folder.to_owned(), quiet })
    }

    /// A command that is not yet started.
    pub(super) fn command(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(self.folder.join(folder)).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end, or to Ctrl-C.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<Ran, Failure> {
        let mut command = self.command("", arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = Ended(child.map_err(|error| format!("{}: {error}", self.path.display()))?);
        let (out, said) = (heard(child.0.stdout.take()), heard(child.0.stderr.take()));
        let waiting = Waiting::new("Working", None, self.quiet);
        let status = loop {
            if let Some(status) = child.0.try_wait()? {
                break status;
            }
            if is_interrupted() {
                return Err(OwnerError::Cancelled.into());
            }
            waiting.show();
            thread::sleep(EVERY);
        };
        let text = |hearing: thread::JoinHandle<Vec<u8>>| {
            hearing.join().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        Ok(Ran { code: status.code(), out: text(out), said: text(said) })
    }
}

impl Ran {
    /// What it said, if it did what it should.
    pub(super) fn succeeded(self) -> Result<Self, Failure> {
        match self.code {
            Some(0) => Ok(self),
            _ => Err(self.said.trim_end().trim_start_matches("error: ").to_owned().into()),
        }
    }
}

/// A child that does not outlive its place in the program.
pub(super) struct Ended(pub(super) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn heard(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error is all there is.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}
