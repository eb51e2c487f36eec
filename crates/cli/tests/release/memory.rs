//! What stands in the memory of P1 and P2 after a release, read as their parent may.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::{ANON, CANARY_WAGE, OWN, Place, REGION, people};

const CHUNK: usize = 1 << 20;
const PAGE: usize = 4096;

/// The bytes that a process has written, chunk by chunk, each with the beginning of the next. How many there are.
fn memory(process: u32, mut look: impl FnMut(&[u8])) -> usize {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = File::open(format!("/proc/{process}/mem"));
    let memory = memory.unwrap_or_else(|error| {
        panic!("the kernel does not let a parent read the memory of its child ({error}): set kernel.yama.ptrace_scope to 0 or 1")
    });
    let mut buffer = vec![0; CHUNK + PAGE];
    let mut sum = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        // What nobody can write is the program itself.
        if !rights.starts_with("rw") {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|end| u64::from_str_radix(end, 16).unwrap());
        for at in (from..to).step_by(CHUNK) {
            let length = (to - at).min(buffer.len() as u64) as usize;
            let part = &mut buffer[..length];
            // A thread may have ended, and its stack with it.
            if memory.read_exact_at(part, at).is_err() {
                continue;
            }
            // Much was never written, or is zero again.
            let mut pages = part.chunks(PAGE).map(|page| page != &[0; PAGE][..page.len()]).enumerate().peekable();
            while let Some((first, written)) = pages.next() {
                if !written {
                    continue;
                }
                let mut end = first + 1;
                while pages.next_if(|(_, written)| *written).is_some() {
                    end += 1;
                }
                let run = &part[first * PAGE..(end * PAGE).min(length)];
                sum += run.len();
                look(run);
            }
        }
    }
    sum
}

/// Which of these stand in the memory of a process. A plain loop: tests are not optimised, and there are hundreds of megabytes.
fn found_in(process: u32, wanted: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let begin = |what: &[u8]| usize::from(what[0]) | usize::from(what[1]) << 8;
    let mut begins = vec![false; 1 << 16];
    wanted.iter().for_each(|what| begins[begin(what)] = true);
    let mut all: Vec<Vec<u8>> = Vec::new();
    let sum = memory(process, |bytes| {
        let (mut pair, mut at) = (usize::from(bytes[0]) << 8, 1);
        while at < bytes.len() {
            pair = pair >> 8 | usize::from(bytes[at]) << 8;
            if begins[pair] {
                let here = wanted.iter().filter(|what| bytes[at - 1..].starts_with(what));
                let new: Vec<_> = here.filter(|what| !all.contains(what)).cloned().collect();
                all.extend(new);
            }
            at += 1;
        }
    });
    assert!(sum > 1 << 20, "{sum} bytes are no process");
    all
}

/// Wages as text, as numbers, and shifted as cells have them.
fn wages() -> Vec<Vec<u8>> {
    let forms =
        |wage: i64| [wage.to_string().into_bytes(), wage.to_le_bytes().to_vec(), (wage << 16).to_le_bytes().to_vec()];
    (0..24).flat_map(|row| forms(CANARY_WAGE + row)).collect()
}

/// Plain columns go from cells, anonymised ones through slots; both end in classes, seals, noise and papers. Nothing of it is a clear value, in any of
/// the forms that values have. What each server may know is found.
#[test]
fn no_clear_value_is_in_the_memory_of_a_server() {
    let place = Place::new(&OWN.replacen("\"region\"", "\"region\", \"KNOWNTOP2ONLY\"", 1));
    place.write("init.sql", ANON);
    let p2 = place.p2("127.0.0.1:0", &[]);
    let p1 = place.p1(&p2.url, &["--init", "init.sql"]);
    let from = ["fetch", "--from", &p1.url, "--key", "alice/recipient.key", "--owner", "keys/owner.pub"];
    for (sql, file) in [("SELECT * FROM anon", "anon.csv"), ("SELECT name, wage, region FROM people", "plain.csv")] {
        place.succeed(&[&from[..], &["--sql", sql, "-o", file]].concat());
        let csv = place.read(file);
        assert!(csv.contains("CANARYNAME7") && csv.contains(&(CANARY_WAGE + 7).to_string()), "{csv}");
    }
    // A text as it is, and its first lane in either byte order. P2 may know labels of categories, and one begins like the names.
    let names = |first_lane: &[u8]| vec![b"CANARYNAME".to_vec(), b"YRANAC".to_vec(), first_lane.to_vec()];
    let (region, column) = (REGION.as_bytes().to_vec(), b"KNOWNTOP2ONLY".to_vec());
    let p1_found = found_in(p1.child.id(), &[names(b"CANARY"), wages(), vec![region.clone()]].concat());
    assert_eq!(p1_found, std::slice::from_ref(&region), "P1 has its clear column and nothing else");
    let p2_found = found_in(p2.child.id(), &[names(b"CANARY\0\0"), wages(), vec![region, column.clone()]].concat());
    assert_eq!(p2_found, [column], "P2 has its policy and nothing else");

    // The same search finds all of them in a process that has them: this one.
    let clear = (people(), (0..24).map(|row| CANARY_WAGE + row).collect::<Vec<i64>>());
    let wanted: Vec<Vec<u8>> = vec![b"CANARYNAME7".to_vec(), REGION.as_bytes().to_vec(), wages().swap_remove(4)];
    let here = found_in(std::process::id(), &wanted);
    assert!(wanted.iter().all(|what| here.contains(what)), "{here:?}");
    drop(clear);
}
