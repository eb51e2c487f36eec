//! Dictionaries of replacements: a text file, one entry a line, padded with copies so that its size stays hidden.

use std::fs;

use rand::CryptoRng;
use rand::seq::{IndexedRandom, SliceRandom};

use crate::OwnerError;
use crate::codec::TextCodec;
use crate::declaration::{DictionaryDeclaration, MAX_TEXT};

/// Reads, pads and encodes a dictionary: its lanes, and the messages of all entries in random order.
pub(crate) fn encode_dictionary(
    declaration: &DictionaryDeclaration,
    rng: &mut impl CryptoRng,
) -> Result<(u8, Vec<i64>), OwnerError> {
    let file = &declaration.file;
    let wrong = |what: String| OwnerError::Attachment { file: file.clone(), what };
    let text = fs::read_to_string(file).map_err(OwnerError::io(file))?;
    let mut entries: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let Some(longest) = entries.iter().map(|entry| entry.len()).max() else {
        return Err(wrong("the dictionary is empty; write one entry a line".to_owned()));
    };
    if longest > MAX_TEXT {
        return Err(wrong(format!("an entry has {longest} bytes, and {MAX_TEXT} fit")));
    }
    let true_count = entries.len();
    if declaration.pad_to != 0 && true_count > declaration.pad_to {
        return Err(wrong(format!("it has {true_count} entries, more than pad_to = {}", declaration.pad_to)));
    }
    while entries.len() < declaration.pad_to {
        let copy = entries[..true_count].choose(rng).copied().unwrap_or_default();
        entries.push(copy);
    }
    entries.shuffle(rng);
    let codec = TextCodec::new(declaration.max_length.unwrap_or(longest));
    let mut messages = Vec::new();
    for entry in entries {
        codec.encode(entry, &mut messages).map_err(|why| wrong(format!("`{entry}` {why}")))?;
    }
    Ok((codec.lanes(), messages))
}
