//! Lists whose items go through a round together, and come back list by list.

use crate::ProtocolError;

/// How long lists were before their items were put together: nobody else has to know, and cut by it.
#[must_use]
pub(crate) struct Lengths(Vec<usize>);

/// The items of all lists, one behind the other, on their way through a round.
pub(crate) fn together<I>(lists: impl IntoIterator<Item = Vec<I>>) -> (Vec<I>, Lengths) {
    let (mut all, mut lengths) = (Vec::new(), Vec::new());
    for list in lists {
        lengths.push(list.len());
        all.extend(list);
    }
    (all, Lengths(lengths))
}

impl Lengths {
    /// What became of the items, in lists as long as they were.
    pub(crate) fn apart<O>(self, made: Vec<O>) -> Result<Vec<Vec<O>>, ProtocolError> {
        let (found, expected) = (made.len(), self.0.iter().sum::<usize>());
        if found != expected {
            return Err(ProtocolError::Malformed(format!("{found} results of {expected} questions")));
        }
        let mut made = made.into_iter();
        Ok(self.0.into_iter().map(|length| made.by_ref().take(length).collect()).collect())
    }

    /// The same of a known number of lists.
    pub(crate) fn each<O, const LISTS: usize>(self, made: Vec<O>) -> Result<[Vec<O>; LISTS], ProtocolError> {
        self.apart(made)?.try_into().map_err(|_| ProtocolError::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_as_long_as_they_went_in() {
        let (all, lengths) = together([vec![1, 2, 3], Vec::new(), vec![4], vec![5, 6]]);
        let doubled = lengths.apart(all.iter().map(|item| 2 * item).collect()).unwrap();
        assert_eq!(doubled, [vec![2, 4, 6], Vec::new(), vec![8], vec![10, 12]]);
        let (all, lengths) = together([vec![1], vec![2, 3]]);
        let [a, b] = lengths.each(all).unwrap();
        assert_eq!((a, b), (vec![1], vec![2, 3]));
        for wrong in [Vec::new(), vec![1, 2, 3]] {
            let (_, lengths) = together([vec![1], vec![2]]);
            let text = format!("malformed message: {} results of 2 questions", wrong.len());
            assert_eq!(lengths.apart(wrong).unwrap_err().to_string(), text);
        }
        let (all, lengths) = together([vec![1], vec![2]]);
        assert!(lengths.each::<i32, 3>(all).is_err());
    }
}
