//! What a party has done, by protocol: batches, rows, bytes, seconds. Never data.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::catalog::CATALOG;
use crate::open::Purpose;

/// Counts of one protocol.
#[derive(Debug, Default)]
struct Count {
    batches: AtomicU64,
    rows: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    nanoseconds: AtomicU64,
}

/// Counts of all protocols, and of what was opened to P1.
#[derive(Debug)]
pub struct Counters {
    protocols: Vec<(&'static str, Count)>,
    opened: [AtomicU64; Purpose::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            protocols: CATALOG.iter().map(|entry| (entry.name, Count::default())).collect(),
            opened: Default::default(),
        }
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
        if let Some((_, count)) = self.protocols.iter().find(|(name, _)| *name == protocol) {
            count.batches.fetch_add(1, Ordering::Relaxed);
            count.rows.fetch_add(rows as u64, Ordering::Relaxed);
            count.bytes_in.fetch_add(bytes_in as u64, Ordering::Relaxed);
            count.bytes_out.fetch_add(bytes_out as u64, Ordering::Relaxed);
            count.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Counts numbers that P1 was shown.
    pub fn record_opened(&self, purpose: Purpose, count: u32) {
        if let Some((_, counter)) = Purpose::ALL.iter().zip(&self.opened).find(|(known, _)| **known == purpose) {
            counter.fetch_add(count.into(), Ordering::Relaxed);
        }
    }

    /// How many numbers P1 was shown, by purpose.
    pub fn opened(&self) -> impl Iterator<Item = (Purpose, u64)> {
        Purpose::ALL.into_iter().zip(self.opened.iter().map(|counter| counter.load(Ordering::Relaxed)))
    }

    /// The counts of every protocol.
    pub fn snapshot(&self) -> impl Iterator<Item = (&'static str, Counted)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.protocols.iter().map(move |(name, count)| {
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
        text += "# HELP veil_p2_opened_total Numbers shown to P1.\n# TYPE veil_p2_opened_total counter\n";
        for (purpose, count) in self.opened() {
            let _ = writeln!(text, "veil_p2_opened_total{{purpose=\"{}\"}} {count}", purpose.name());
        }
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
        counters.record_opened(Purpose::StopBit, 3);
        let text = counters.prometheus();
        assert!(text.contains("veil_p2_opened_total{purpose=\"stop_bit\"} 3\n"), "{text}");
        assert!(text.contains("veil_p2_opened_total{purpose=\"metric\"} 0\n"), "{text}");
        assert!(text.contains("veil_p2_batches_total{protocol=\"multiply\"} 2\n"), "{text}");
        assert!(text.contains("veil_p2_received_bytes_total{protocol=\"multiply\"} 150\n"), "{text}");
        assert!(text.contains("veil_p2_seconds_total{protocol=\"multiply\"} 2\n"), "{text}");
        assert!(text.contains("veil_p2_rows_total{protocol=\"lift\"} 0\n"), "{text}");
    }
}
