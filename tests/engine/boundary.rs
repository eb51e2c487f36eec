//! The engine's side cannot name a secret key: no crate that runs in P1 depends on the crate that holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What P1 links. `veil-keys` must not be reachable from any of these.
const ENGINE: [&str; 10] = [
    "veilfusion",
    "veil-cells",
    "veil-privacy",
    "veil-slots",
    "veil-protocols",
    "veil-flight-p2",
    "veil-flight-sql",
    "veil-udfs",
    "veil-planner",
    "veil-release",
];

#[test]
fn no_engine_crate_reaches_the_keys() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let dependencies: BTreeMap<String, Vec<String>> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let needed = package["dependencies"].as_array().unwrap().iter();
            let needed =
                needed.filter(|dependency| dependency["kind"].is_null()).map(|dependency| text(&dependency["name"]));
            (text(&package["name"]), needed.collect())
        })
        .collect();
    assert!(dependencies.contains_key("veil-keys"));
    for start in ENGINE {
        assert!(dependencies.contains_key(start), "there is no crate {start}");
        let mut reached = BTreeSet::new();
        let mut next = vec![start.to_owned()];
        while let Some(name) = next.pop() {
            if reached.insert(name.clone()) {
                next.extend(dependencies.get(&name).into_iter().flatten().cloned());
            }
        }
        assert!(!reached.contains("veil-keys"), "{start} reaches veil-keys");
    }
}
