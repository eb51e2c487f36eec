//! What a chapter cost: the time, the bytes that passed between the servers, and what P2 counted itself.

use std::collections::BTreeMap;
use std::time::Duration;

/// P2's counters at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Books {
    batches: BTreeMap<String, u64>,
    opened: BTreeMap<String, u64>,
}

/// What happened between two moments.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    pub(super) time: Duration,
    pub(super) up: u64,
    pub(super) down: u64,
    pub(super) messages: u64,
    pub(super) protocols: Vec<(String, u64)>,
    /// Numbers that P2 opened to P1, by purpose.
    pub(super) opened: Vec<(String, u64)>,
}

impl Books {
    /// From the text that Prometheus reads.
    pub(super) fn parse(metrics: &str) -> Self {
        let labelled = |family: &str, label: &str| {
            let start = format!("{family}{{{label}=\"");
            let entry = |line: &str| {
                let (name, count) = line.strip_prefix(&start)?.split_once("\"} ")?;
                Some((name.replace('_', " "), count.parse::<f64>().ok()? as u64))
            };
            metrics.lines().filter_map(entry).collect()
        };
        Self {
            batches: labelled("veil_p2_batches_total", "protocol"),
            opened: labelled("veil_p2_opened_total", "purpose"),
        }
    }

    /// What was added since.
    pub(super) fn since(&self, before: &Self, time: Duration, up: u64, down: u64) -> Cost {
        let added = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| -> Vec<(String, u64)> {
            let grown = |(name, count): (&String, &u64)| {
                (name.clone(), count.saturating_sub(then.get(name).copied().unwrap_or(0)))
            };
            now.iter().map(grown).filter(|(_, count)| *count > 0).collect()
        };
        let protocols = added(&self.batches, &before.batches);
        let messages = protocols.iter().map(|(_, count)| count).sum();
        Cost { time, up, down, messages, protocols, opened: added(&self.opened, &before.opened) }
    }
}

#[cfg(test)]
mod tests {
    use veil_protocols::Counters;

    use super::*;

    #[test]
    fn costs_are_differences() {
        let counters = Counters::default();
        counters.record("multiply", 2, 100, 200, Duration::from_millis(1500));
        let before = Books::parse(&counters.prometheus());
        counters.record("multiply", 2, 100, 200, Duration::from_millis(1500));
        counters.record("count_classes", 1, 1, 1, Duration::ZERO);
        let opened = counters.prometheus().replace("{purpose=\"stop_bit\"} 0", "{purpose=\"stop_bit\"} 3");
        let cost = Books::parse(&opened).since(&before, Duration::from_secs(2), 5, 7);
        assert_eq!(cost.protocols, [("count classes".to_owned(), 1), ("multiply".to_owned(), 1)]);
        assert_eq!(cost.opened, [("stop bit".to_owned(), 3)]);
        assert_eq!((cost.messages, cost.up, cost.down), (2, 5, 7));
    }
}
