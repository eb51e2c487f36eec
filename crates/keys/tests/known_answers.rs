//! The formats, pinned: what this program encrypts from fixed randomness, and what it must be able to decrypt for ever.
//!
//! `VEIL_BLESS=1 cargo test -p veil-keys --test known_answers` writes the file anew, for a new format version only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use rand::{CryptoRng, RngCore};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use veil_cells::{Cell, CellArray, CellArrayBuilder, CellType, ColumnConstants, DenseSum};
use veil_keys::{KeyFile, OwnerKeys, decrypt_column, encrypt_column, encrypt_constants};

/// SplitMix64: the same bytes on every machine and in every version of every library.
struct FixedRng(u64);

impl RngCore for FixedRng {
    fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

impl CryptoRng for FixedRng {}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn cell_type(keys: &OwnerKeys, extra: &str) -> CellType {
    let json = format!(
        r#"{{"version":2,"key":"{}","column":"{}",{extra}}}"#,
        keys.key_id(),
        keys.column_id("patients", "value")
    );
    serde_json::from_str(&json).unwrap()
}

/// Everything that the vectors pin, computed anew.
fn answers() -> Value {
    let keys = OwnerKeys::generate(&mut FixedRng(2026));
    let mut rng = FixedRng(4711);
    let tagger = keys.tag().column("patients", "value");
    let columns = [
        ("integer", r#""kind":"integer","width":8,"lanes":1"#, vec![0, 1, -1, 127, -128]),
        (
            "tagged",
            r#""kind":"integer","width":8,"lanes":1,"tag":true"#,
            vec![39, tagger.tag(&39i64.to_le_bytes()) as i64],
        ),
        ("hidden nulls", r#""kind":"decimal","width":24,"scale":2,"lanes":1,"nulls":"hidden""#, vec![-5, 0, 0, 1]),
        ("text", r#""kind":"text","width":48,"lanes":2"#, vec![-1, 0, -(1 << 47), (1 << 47) - 1]),
    ];
    let columns = columns.map(|(name, extra, messages)| {
        let cell_type = cell_type(&keys, extra);
        let cells = encrypt_column(&keys, &cell_type, &messages, None, &mut rng).unwrap();
        let cells: Vec<String> = cells.iter().map(|cell| hex(cell.unwrap())).collect();
        json!({ "name": name, "type": cell_type, "messages": messages, "cells": cells })
    });

    let numbers = cell_type(&keys, r#""kind":"integer","width":12,"lanes":1"#);
    let cells = encrypt_column(&keys, &numbers, &[1000, -3], None, &mut rng).unwrap();
    let (mut sum, other) = (Cell::from_bytes(cells.value(0)).unwrap(), Cell::from_bytes(cells.value(1)).unwrap());
    sum.scale(-7).unwrap();
    sum.add(&other).unwrap();
    sum.add_constant(11).unwrap();
    let many = encrypt_column(&keys, &numbers, &(0..100).collect::<Vec<_>>(), None, &mut rng).unwrap();
    let mut dense = DenseSum::new();
    many.iter().for_each(|cell| dense.add(&Cell::from_bytes(cell.unwrap()).unwrap()).unwrap());
    let dense = dense.finish().unwrap().unwrap();
    assert!(dense.dense_mask(0).is_some());
    let column = keys.column_id("patients", "value");
    json!({
        "column id": column,
        "columns": columns,
        "affine": { "type": numbers, "cell": hex(&sum.to_bytes()), "message": -7 * 1000 - 3 + 11 },
        "dense, SHA-256": hex(&Sha256::digest(dense.to_bytes())),
        "constants": encrypt_constants(&keys, &numbers, -20, 120).unwrap().to_metadata(),
        "sealed": hex(&keys.seal().seal(keys.key_id(), column, b"{\"labels\":[\"no\",\"yes\"]}").unwrap()),
        "tags": { "text Anna": tagger.tag(b"Anna"), "NULL": tagger.null_tag() },
    })
}

/// The key files that the vectors pin, made anew.
fn key_answers() -> Value {
    let keys = OwnerKeys::generate(&mut FixedRng(2026));
    json!({
        "owner.keys, SHA-256": hex(&Sha256::digest(keys.to_bytes())),
        "p1.keys, SHA-256": hex(&Sha256::digest(keys.p1().to_bytes())),
        "p2.keys, SHA-256": hex(&Sha256::digest(keys.p2().to_bytes())),
        "owner.pub": keys.public().to_string(),
        "a signature": keys.signing().sign("veil test v1", b"message"),
        "prf": hex(&*keys.p2().prf("label", b"data")),
    })
}

fn vectors(name: &str, answers: fn() -> Value) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    if std::env::var_os("VEIL_BLESS").is_some() {
        fs::write(&path, serde_json::to_string_pretty(&answers()).unwrap() + "\n").unwrap();
        fs::write(path.with_file_name("owner-v2.keys"), OwnerKeys::generate(&mut FixedRng(2026)).to_bytes()).unwrap();
    }
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn cell_vectors() -> Value {
    vectors("cells-v2.json", answers)
}

/// What was written before cells told of whose rows they are. Only read.
fn older_cell_vectors() -> Value {
    serde_json::from_str(include_str!("vectors/cells-v1.json")).unwrap()
}

/// A key file as an owner has it.
fn load(bytes: &[u8]) -> Result<OwnerKeys, veil_keys::KeyError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("owner.keys");
    fs::write(&path, bytes).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    OwnerKeys::load(&path)
}

#[test]
fn what_is_written_has_not_changed() {
    for (expected, found) in [(cell_vectors(), answers()), (vectors("keys-v2.json", key_answers), key_answers())] {
        for (name, expected) in expected.as_object().unwrap() {
            assert_eq!(&found[name], expected, "{name}");
        }
        assert_eq!(found.as_object().unwrap().len(), expected.as_object().unwrap().len());
    }
}

/// Reads the committed bytes alone: what owners keep in their archives.
#[test]
fn what_was_written_can_be_read() {
    [cell_vectors(), older_cell_vectors()].into_iter().for_each(read_vectors);
}

fn read_vectors(vectors: Value) {
    let keys = load(include_bytes!("vectors/owner-v2.keys")).unwrap();

    let decrypt = |cell_type: &CellType, cells: &[Vec<u8>]| {
        let mut builder = CellArrayBuilder::with_capacity(cells.len(), 64);
        cells.iter().for_each(|cell| builder.push_bytes(cell).unwrap());
        let column = builder.finish().unwrap();
        decrypt_column(keys.cell(), keys.key_id(), cell_type, CellArray::Binary(&column)).unwrap().messages
    };
    for column in vectors["columns"].as_array().unwrap() {
        let cell_type: CellType = serde_json::from_value(column["type"].clone()).unwrap();
        let cells: Vec<Vec<u8>> = column["cells"].as_array().unwrap().iter().map(unhex).collect();
        let messages: Vec<i64> = serde_json::from_value(column["messages"].clone()).unwrap();
        let lanes = cell_type.cell_lanes();
        let without_tags =
            messages.chunks(lanes.total()).flat_map(|row| &row[..lanes.total() - usize::from(lanes.tag)]);
        assert_eq!(decrypt(&cell_type, &cells), without_tags.copied().collect::<Vec<_>>(), "{}", column["name"]);
    }
    let affine = &vectors["affine"];
    let numbers: CellType = serde_json::from_value(affine["type"].clone()).unwrap();
    assert_eq!(decrypt(&numbers, &[unhex(&affine["cell"])]), [affine["message"].as_i64().unwrap()]);

    let constants = ColumnConstants::from_metadata(vectors["constants"].as_str().unwrap()).unwrap();
    let constants = [constants.lower, constants.upper, constants.reciprocal].map(|cell| cell.to_bytes());
    assert_eq!(decrypt(&numbers, &constants), [-20, 120, (1 << 40) / 140]);

    let column = serde_json::from_value(vectors["column id"].clone()).unwrap();
    let note = keys.seal().open(keys.key_id(), column, &unhex(&vectors["sealed"])).unwrap();
    assert_eq!(note.as_slice(), b"{\"labels\":[\"no\",\"yes\"]}");
}

/// An owner's cells lead to their rows, and those of before say that nobody knows.
#[test]
fn cells_tell_their_rows_since_version_two() {
    let provenance = |vectors: &Value, row: usize| {
        let cell = Cell::from_bytes(&unhex(&vectors["columns"][0]["cells"][row])).unwrap();
        cell.provenance().map(|rows| rows.anchors().iter().map(|anchor| anchor.row).collect::<Vec<_>>())
    };
    let (new, old) = (cell_vectors(), older_cell_vectors());
    assert_eq!([0, 3].map(|row| provenance(&new, row)), [Some(vec![0]), Some(vec![3])]);
    assert_eq!([0, 3].map(|row| provenance(&old, row)), [None, None]);
}

/// The first version had no keys to sign with: what cannot be used is refused, and says why.
#[test]
fn key_files_of_the_first_version_are_refused() {
    let error = load(include_bytes!("vectors/owner-v1.keys")).unwrap_err().to_string();
    assert!(error.ends_with(
        "owner.keys has format version 1, from before keys could sign; run `veil keygen` again and encrypt the data with \
         the new keys"
    ), "{error}");
}

/// Every single-byte corruption of a stored column is an error, never a panic and never another value.
#[test]
fn corrupted_columns_do_not_decrypt() {
    let mut rng = FixedRng(7);
    let keys = OwnerKeys::generate(&mut rng);
    let numbers = cell_type(&keys, r#""kind":"integer","width":12,"lanes":1,"tag":true"#);
    let cells = encrypt_column(&keys, &numbers, &[5, 6], None, &mut rng).unwrap();
    let mut dense = DenseSum::new();
    let many = encrypt_column(&keys, &numbers, &[1; 100], None, &mut rng).unwrap();
    many.iter().for_each(|cell| dense.add(&Cell::from_bytes(cell.unwrap()).unwrap()).unwrap());
    let dense = dense.finish().unwrap().unwrap().to_bytes();
    let places = (0..cells.value(0).len())
        .map(|at| (cells.value(0), at))
        .chain((0..dense.len()).step_by(97).map(|at| (&dense[..], at)));
    for (cell, at) in places {
        for bit in 0..8 {
            let mut damaged = cell.to_vec();
            damaged[at] ^= 1 << bit;
            let mut builder = CellArrayBuilder::with_capacity(1, 64);
            builder.push_bytes(&damaged).unwrap();
            let column = builder.finish().unwrap();
            let decrypted = decrypt_column(keys.cell(), keys.key_id(), &numbers, CellArray::Binary(&column));
            assert!(decrypted.is_err(), "byte {at}, bit {bit}");
        }
    }
}
