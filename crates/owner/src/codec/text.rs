//! Text, of a declared length.

use veil_cells::{CellError, TEXT_BYTES_PER_LANE, push_text, text_of_lanes};

/// Between texts and lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextCodec {
    lanes: u8,
    max_length: usize,
}

impl TextCodec {
    /// For texts of at most so many bytes; the declaration has checked that they fit.
    pub(crate) fn new(max_length: usize) -> Self {
        Self { lanes: max_length.div_ceil(TEXT_BYTES_PER_LANE) as u8, max_length }
    }

    /// For an encrypted column.
    pub(crate) fn of_lanes(lanes: u8) -> Self {
        Self { lanes, max_length: usize::from(lanes) * TEXT_BYTES_PER_LANE }
    }

    pub(crate) fn lanes(self) -> u8 {
        self.lanes
    }

    /// Appends the lanes; the error completes the sentence "`value` ...".
    pub(crate) fn encode(self, text: &str, messages: &mut Vec<i64>) -> Result<(), String> {
        if text.len() > self.max_length {
            return Err(format!(
                "has {} bytes and max_length is {}; shorten it or raise `max_length`",
                text.len(),
                self.max_length
            ));
        }
        push_text(text, self.lanes, messages);
        Ok(())
    }

    pub(crate) fn decode(self, lanes: &[i64]) -> Result<String, CellError> {
        text_of_lanes(lanes).ok_or_else(|| super::no_value(veil_cells::Kind::Text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        let codec = TextCodec::new(24);
        assert_eq!(codec.lanes(), 4);
        for text in ["", "a", "sixsix", "sevenxx", "Zoë Müller-Lüden", "nul\0\0", "🦀🦀🦀🦀🦀🦀"] {
            let mut lanes = Vec::new();
            codec.encode(text, &mut lanes).unwrap();
            // What a lane keeps of a message.
            let lanes: Vec<i64> = lanes.iter().map(|lane| lane << 16 >> 16).collect();
            assert_eq!(lanes.len(), 4);
            assert_eq!(codec.decode(&lanes).unwrap(), text);
        }
    }

    #[test]
    fn too_long_is_refused_in_bytes() {
        let error = TextCodec::new(8).encode("Müllers!!", &mut Vec::new()).unwrap_err();
        assert!(error.starts_with("has 10 bytes and max_length is 8"), "{error}");
    }

    #[test]
    fn lanes_that_are_no_text_are_refused() {
        assert!(TextCodec::of_lanes(1).decode(&[0xc3]).is_err());
    }
}
