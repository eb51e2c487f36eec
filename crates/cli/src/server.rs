//! What the servers among the commands share: a log on standard error, and a way to stop.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Structured lines on standard error: those of a crate of veil, and what libraries warn about.
pub(crate) fn log(target: &str, verbose: bool, json: bool, quiet: bool) {
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let filter = match quiet {
        true => Targets::new(),
        false => Targets::new().with_default(LevelFilter::WARN).with_target(target, level),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match json {
        true => lines.json().flatten_event(true).boxed(),
        false => lines.compact().with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
    };
    // There is one already if the program runs twice in a process, as it does not.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}

/// The first Ctrl-C or SIGTERM; the second ends the program at once.
#[cfg(unix)]
pub(crate) fn shutdown_signal() -> std::io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (asked, asking) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut asked = Some(asked);
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            match asked.take() {
                Some(asked) => drop(asked.send(())),
                None => std::process::exit(1),
            }
        }
    });
    Ok(async move { drop(asking.await) })
}

/// The first Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn shutdown_signal() -> std::io::Result<impl Future<Output = ()> + Send> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}
