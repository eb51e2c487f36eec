//! Text in lanes: UTF-8, six bytes a lane, padded with the byte 0xFF, which UTF-8 never uses, so that every text comes back as it
//! was and its length stays hidden.

use crate::TEXT_BYTES_PER_LANE;

const PADDING: u8 = 0xff;

/// Appends the lanes of a text; false, and nothing, if it is too long for them.
pub fn push_text(text: &str, lanes: u8, messages: &mut Vec<i64>) -> bool {
    if text.len() > usize::from(lanes) * TEXT_BYTES_PER_LANE {
        return false;
    }
    let mut parts = text.as_bytes().chunks(TEXT_BYTES_PER_LANE);
    messages.extend((0..lanes).map(|_| {
        let mut bytes = [PADDING, PADDING, PADDING, PADDING, PADDING, PADDING, 0, 0];
        let part = parts.next().unwrap_or_default();
        bytes[..part.len()].copy_from_slice(part);
        i64::from_le_bytes(bytes)
    }));
    true
}

/// The text in the lanes, if they hold one.
pub fn text_of_lanes(lanes: &[i64]) -> Option<String> {
    let mut bytes: Vec<u8> = Vec::with_capacity(lanes.len() * TEXT_BYTES_PER_LANE);
    lanes.iter().for_each(|lane| bytes.extend_from_slice(&lane.to_le_bytes()[..TEXT_BYTES_PER_LANE]));
    let length = bytes.iter().rposition(|byte| *byte != PADDING).map_or(0, |last| last + 1);
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_hide_their_length() {
        for text in ["", "a", "sixsix", "sevense", "Zo\u{eb} \u{1f600}!"] {
            let mut lanes = Vec::new();
            assert!(push_text(text, 3, &mut lanes));
            assert_eq!((lanes.len(), text_of_lanes(&lanes).as_deref()), (3, Some(text)));
        }
        let mut lanes = Vec::new();
        assert!(!push_text("thirteen bytes", 2, &mut lanes));
        assert!(lanes.is_empty());
        assert_eq!(text_of_lanes(&[0x80]), None);
    }
}
