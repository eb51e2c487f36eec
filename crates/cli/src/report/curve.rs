//! The curves of a sweep: risk against what was lost in numbers, and against what was lost in categories.

use super::findings::{Findings, SweepPoint};
use super::losses::DRAWN;

/// A k in percent: loss, highest and average risk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) label: String,
    pub(super) loss: f64,
    pub(super) highest: f64,
    pub(super) average: f64,
}

/// The points of the sweep and what their loss is.
#[derive(Debug)]
pub(super) struct Curve {
    /// Of its chart.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// In the order of their losses.
    pub(super) points: Vec<Point>,
    /// The table that the report is about, if its loss was measured alike.
    pub(super) this: Option<Point>,
    pub(super) axis: &'static str,
}

/// Losses of a whole table that a curve can be drawn by, and their names. Numbers and categories lose different things, which no sum makes one.
const NUMBERS: [(&str, &str); 1] = [("information_loss", "information lost in numbers")];
const CATEGORIES: [(&str, &str); 3] = [
    ("generalised_loss", "loss of categories: leaves under headings"),
    ("precision_loss", "loss of categories: steps up the hierarchy"),
    ("entropy_loss", "loss of categories: bits"),
];

/// A curve for numbers and one for categories, each by the first loss that is known.
pub(super) fn curves(findings: &Findings) -> Vec<Curve> {
    let numbers = curve(findings, "sweep", "Risk and loss of numbers for each k", &NUMBERS);
    let categories = curve(findings, "sweep-categories", "Risk and loss of categories for each k", &CATEGORIES);
    numbers.into_iter().chain(categories).collect()
}

/// A k that lacks a measure has no point; a curve without points is none.
fn curve(
    findings: &Findings,
    id: &'static str,
    title: &'static str,
    measures: &[(&'static str, &'static str)],
) -> Option<Curve> {
    measures.iter().find_map(|(measure, axis)| {
        let scale = DRAWN.iter().find(|(name, ..)| name == measure).map(|(_, scale, _)| *scale)?;
        let point = |of: &SweepPoint| {
            Some(Point {
                label: format!("k = {}", of.k),
                loss: scale * of.value(measure)?,
                highest: 100.0 * of.value("prosecutor_max")?,
                average: 100.0 * of.value("prosecutor_average")?,
            })
        };
        let mut points: Vec<Point> = findings.sweep.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.loss.total_cmp(&other.loss));
        let this = || {
            Some(Point {
                label: "this table".to_owned(),
                loss: scale * findings.loss_of(measure)?,
                highest: 100.0 * findings.risk_of("prosecutor_max").after?,
                average: 100.0 * findings.risk_of("prosecutor_average").after?,
            })
        };
        (!points.is_empty()).then(|| Curve { id, title, points, this: this(), axis })
    })
}

#[cfg(test)]
mod tests {
    use super::super::example::findings;
    use super::*;

    fn without(findings: &mut Findings, at: usize, measure: &str) {
        for (name, value) in &mut findings.sweep[at].measures {
            if name == measure {
                *value = None;
            }
        }
    }

    fn labels(curve: &Curve) -> Vec<&str> {
        curve.points.iter().map(|point| point.label.as_str()).collect()
    }

    #[test]
    fn losses_of_categories_have_a_curve_of_their_own() {
        let curves = curves(&findings());
        let told: Vec<(&str, &str)> = curves.iter().map(|curve| (curve.id, curve.axis)).collect();
        assert_eq!(
            told,
            [
                ("sweep", "information lost in numbers"),
                ("sweep-categories", "loss of categories: leaves under headings")
            ]
        );
        assert_eq!(curves[1].points[4].loss, 15.0);
        assert_eq!(curves[1].this.as_ref().unwrap().loss, 25.0);
    }

    #[test]
    fn a_k_that_lacks_a_measure_leaves_the_others() {
        let mut findings = findings();
        without(&mut findings, 1, "information_loss");
        without(&mut findings, 2, "prosecutor_max");
        let curves = curves(&findings);
        assert_eq!(labels(&curves[0]), ["k = 2", "k = 25", "k = 50"]);
        assert_eq!(labels(&curves[1]), ["k = 2", "k = 5", "k = 25", "k = 50"]);
        (0..5).for_each(|at| without(&mut findings, at, "generalised_loss"));
        assert_eq!(super::curves(&findings).len(), 1);
    }
}
