//! `veil p2 status`: whether P2 is well, and what it has done.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use tokio::runtime::Runtime;
use veil_flight_p2::Connection;

use crate::Outcome;
use crate::p2_client::TlsArguments;

/// Ask a running P2 whether it is well, and what it has done
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil p2 status --url http://127.0.0.1:7722
  veil p2 status --url https://p2.example:7722 --tls-ca ca.pem --tls-cert p1.pem --tls-key p1.key")]
pub(crate) struct Arguments {
    /// Where P2 listens
    #[arg(long, value_name = "URL")]
    url: String,
    #[command(flatten)]
    tls: TlsArguments,
    /// The counters as Prometheus reads them, and nothing else
    #[arg(long)]
    prometheus: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let config = arguments.tls.client(&arguments.url);
    let (health, metrics) = Runtime::new()?.block_on(async {
        let connection = Connection::open(&config).await?;
        Ok::<_, veil_protocols::ProtocolError>((connection.health().await?, connection.metrics().await?))
    })?;
    let mut stdout = std::io::stdout().lock();
    if arguments.prometheus {
        return Ok(write!(stdout, "{metrics}")?);
    }
    writeln!(stdout, "P2 at {} is {}, for key set {}", arguments.url, health.status, health.key_id)?;
    Ok(write!(stdout, "\n{}", table(&metrics))?)
}

/// The counters, one protocol a line.
fn table(metrics: &str) -> String {
    const COLUMNS: [(&str, &str); 5] = [
        ("batches_total", "batches"),
        ("rows_total", "rows"),
        ("received_bytes_total", "bytes in"),
        ("sent_bytes_total", "bytes out"),
        ("seconds_total", "seconds"),
    ];
    let mut protocols: BTreeMap<&str, [f64; COLUMNS.len()]> = BTreeMap::new();
    for line in metrics.lines() {
        let parsed = line.strip_prefix("veil_p2_").and_then(|line| {
            let (name, rest) = line.split_once("{protocol=\"")?;
            let (protocol, value) = rest.split_once("\"} ")?;
            let column = COLUMNS.iter().position(|(known, _)| *known == name)?;
            Some((protocol, column, value.parse::<f64>().ok()?))
        });
        if let Some((protocol, column, value)) = parsed {
            protocols.entry(protocol).or_default()[column] = value;
        }
    }
    let titles = COLUMNS.iter().map(|(_, title)| format!("{title:>14}")).collect::<String>();
    let mut table = format!("{:<20}{titles}\n", "protocol");
    for (protocol, [counts @ .., seconds]) in protocols {
        let counts = counts.iter().map(|count| format!("{count:>14.0}")).collect::<String>();
        table += &format!("{protocol:<20}{counts}{seconds:>14.2}\n");
    }
    table + &opened(metrics)
}

/// What P1 was shown, by purpose, in one line.
fn opened(metrics: &str) -> String {
    let purposes = metrics.lines().filter_map(|line| {
        let (purpose, count) = line.strip_prefix("veil_p2_opened_total{purpose=\"")?.split_once("\"} ")?;
        Some(format!("{} {count}", purpose.replace('_', " ")))
    });
    format!("\nnumbers opened to P1: {}\n", purposes.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use veil_protocols::Counters;

    use super::*;

    #[test]
    fn the_table_has_every_protocol_and_its_counts() {
        let counters = Counters::default();
        counters.record("multiply", 5, 1000, 2000, std::time::Duration::from_millis(1500));
        let table = table(&counters.prometheus());
        let fields = |start: &str| -> Vec<&str> {
            table.lines().find(|line| line.starts_with(start)).map(|line| line.split_whitespace().collect()).unwrap()
        };
        assert_eq!(fields("multiply"), ["multiply", "1", "5", "1000", "2000", "1.50"]);
        assert_eq!(fields("lift "), ["lift", "0", "0", "0", "0", "0.00"]);
        let opened = "numbers opened to P1: metric 0, cluster flags 0, stop bit 0, size histogram 0, small classes 0, class check 0\n";
        assert!(table.ends_with(opened), "{table}");
    }
}
