//! What a party has done, by protocol: batches, rows, bytes, seconds. Never data.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::catalog::CATALOG;

/// Counts of one protocol.
#[derive(Debug, Default)]
struct Count {
    batches: AtomicU64,
    rows: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    nanoseconds: AtomicU64,
}

/// Counts of all protocols.
#[derive(Debug)]
pub struct Counters(Vec<(&'static str, Count)>);

impl Default for Counters {
    fn default() -> Self {
        Self(CATALOG.iter().map(|entry| (entry.name, Count::default())).collect())
    }
}

/// A snapshot of one protocol's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Batches.
    pub batches: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Nanoseconds at work.
    pub nanoseconds: u64,
}

impl Counters {
    /// Counts one batch.
    pub fn record(&self, protocol: &str, rows: usize, bytes_in: usize, bytes_out: usize, time: Duration) {
        if let Some((_, count)) = self.0.iter().find(|(name, _)| *name == protocol) {
            count.batches.fetch_add(1, Ordering::Relaxed);
            count.rows.fetch_add(rows as u64, Ordering::Relaxed);
            count.bytes_in.fetch_add(bytes_in as u64, Ordering::Relaxed);
            count.bytes_out.fetch_add(bytes_out as u64, Ordering::Relaxed);
            count.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// The counts of every protocol.
    pub fn snapshot(&self) -> impl Iterator<Item = (&'static str, Counted)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.0.iter().map(move |(name, count)| {
            let counted = Counted {
                batches: read(&count.batches),
                rows: read(&count.rows),
                bytes_in: read(&count.bytes_in),
                bytes_out: read(&count.bytes_out),
                nanoseconds: read(&count.nanoseconds),
            };
            (*name, counted)
        })
    }

    /// In the text format of Prometheus.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, help: &str, value: fn(&Counted) -> f64| {
            let _ = writeln!(text, "# HELP veil_p2_{name} {help}\n# TYPE veil_p2_{name} counter");
            for (protocol, counted) in self.snapshot() {
                let _ = writeln!(text, "veil_p2_{name}{{protocol=\"{protocol}\"}} {}", value(&counted));
            }
        };
        family("batches_total", "Batches answered.", |counted| counted.batches as f64);
        family("rows_total", "Rows answered, of up to 8192 numbers each.", |counted| counted.rows as f64);
        family("received_bytes_total", "Bytes of queries.", |counted| counted.bytes_in as f64);
        family("sent_bytes_total", "Bytes of answers.", |counted| counted.bytes_out as f64);
        family("seconds_total", "Seconds at work.", |counted| counted.nanoseconds as f64 / 1e9);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_print() {
        let counters = Counters::default();
        counters.record("multiply", 2, 100, 200, Duration::from_millis(1500));
        counters.record("multiply", 1, 50, 100, Duration::from_millis(500));
        counters.record("no such protocol", 1, 1, 1, Duration::ZERO);
        let text = counters.prometheus();
        assert!(text.contains("veil_p2_batches_total{protocol=\"multiply\"} 2\n"), "{text}");
        assert!(text.contains("veil_p2_received_bytes_total{protocol=\"multiply\"} 150\n"), "{text}");
        assert!(text.contains("veil_p2_seconds_total{protocol=\"multiply\"} 2\n"), "{text}");
        assert!(text.contains("veil_p2_rows_total{protocol=\"lift\"} 0\n"), "{text}");
    }
}
