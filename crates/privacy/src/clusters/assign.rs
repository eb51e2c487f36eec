//! The nearest centre of every row (the paper's ComputeMinIndex).

use super::Points;

/// The nearest of these points, by their numbers; ties go to the one that is named first. `None` if there are none.
pub(super) fn nearest<'a>(
    points: &Points,
    to: &[i64],
    among: impl Iterator<Item = (usize, &'a [i64])>,
) -> Option<usize> {
    // `min_by_key` keeps the first of equals.
    among
        .map(|(number, point)| (points.distance(to, point), number))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, number)| number)
}

/// For every row the number of its nearest centre; ties go to the lowest. Centres lie row by row, as points do; without any,
/// all rows go to number 0.
pub fn assign(points: &Points, centres: &[i64]) -> Vec<usize> {
    let centres = || centres.chunks_exact(points.columns()).enumerate();
    (0..points.rows()).map(|row| nearest(points, points.row(row), centres()).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_go_to_the_lowest_centre() {
        let points = Points::new(vec![0, 5, 10, 5, 6], vec![1]).unwrap();
        assert_eq!(assign(&points, &[10, 0]), [1, 0, 0, 0, 0]);
        assert_eq!(assign(&points, &[0, 10]), [0, 0, 1, 0, 1]);
        // Equal centres: the second one gets nothing.
        assert_eq!(assign(&points, &[5, 5, 0]), [2, 0, 0, 0, 0]);
    }

    #[test]
    fn weights_decide() {
        let centres = [0, 3, 4, 0];
        let near = |weights| assign(&Points::new(vec![0, 0], weights).unwrap(), &centres);
        assert_eq!((near(vec![1, 1]), near(vec![1, 2])), (vec![0], vec![1]));
    }

    proptest! {
        #[test]
        fn no_centre_is_nearer_and_none_before_it_as_near(
            values in proptest::collection::vec(-6i64..7, 2..60), centres in proptest::collection::vec(-6i64..7, 2..24), weight in 1u32..4,
        ) {
            let whole = |mut values: Vec<i64>| { values.truncate(values.len() / 2 * 2); values };
            let (points, centres) = (Points::new(whole(values), vec![1, weight]).unwrap(), whole(centres));
            for (row, chosen) in assign(&points, &centres).into_iter().enumerate() {
                let squared = |centre: usize| {
                    let (x, y) = (points.row(row)[0] - centres[2 * centre], points.row(row)[1] - centres[2 * centre + 1]);
                    x * x + i64::from(weight) * y * y
                };
                for other in 0..centres.len() / 2 {
                    prop_assert!(squared(chosen) < squared(other) || squared(chosen) == squared(other) && chosen <= other);
                }
            }
        }
    }
}
