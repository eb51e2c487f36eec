//! `SET veil.*`.

use std::any::Any;

use datafusion::common::config_err;
use datafusion::config::{ConfigEntry, ConfigExtension, ConfigField, ConfigOptions, ExtensionOptions};
use datafusion::error::Result;

/// Settings of encrypted queries.
#[derive(Clone, Debug)]
pub struct VeilOptions {
    /// Whose noise a released value carries: 'joint', of both servers, or 'single', of the engine alone.
    pub noise: String,
    /// Rows of a batch of rounds; 8192 fit a ciphertext.
    pub batch_rows: usize,
    /// Where P2 listens; empty for the one that the program was started with.
    pub p2: String,
    /// PEM file of the authority that signed P2's certificate.
    pub p2_ca: String,
    /// PEM file of the engine's certificate.
    pub p2_cert: String,
    /// PEM file of the certificate's key.
    pub p2_key: String,
    /// Makes all noise repeatable, and so worthless: for tests only.
    pub seed: Option<u64>,
}

impl Default for VeilOptions {
    fn default() -> Self {
        Self {
            noise: "joint".to_owned(),
            batch_rows: 65_536,
            p2: String::new(),
            p2_ca: String::new(),
            p2_cert: String::new(),
            p2_key: String::new(),
            seed: None,
        }
    }
}

impl ConfigExtension for VeilOptions {
    const PREFIX: &'static str = "veil";
}

impl ExtensionOptions for VeilOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "noise" => {
                let wanted = Self { noise: value.to_owned(), ..self.clone() };
                wanted.noise_mode()?;
                self.noise = wanted.noise;
            }
            "batch_rows" => self.batch_rows.set(key, value)?,
            "p2" => value.clone_into(&mut self.p2),
            "p2_ca" => value.clone_into(&mut self.p2_ca),
            "p2_cert" => value.clone_into(&mut self.p2_cert),
            "p2_key" => value.clone_into(&mut self.p2_key),
            "seed" if value.is_empty() => self.seed = None,
            "seed" => self.seed.set(key, value)?,
            _ => return config_err!("there is no setting veil.{key}: SHOW ALL lists those that there are"),
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |key: &str, value: String, description| ConfigEntry {
            key: format!("{}.{key}", Self::PREFIX),
            value: (!value.is_empty()).then_some(value),
            description,
        };
        vec![
            entry("noise", self.noise.clone(), "whose noise a released value carries: 'joint' or 'single'"),
            entry("batch_rows", self.batch_rows.to_string(), "rows of a batch of rounds; 8192 fit a ciphertext"),
            entry("p2", self.p2.clone(), "where P2 listens; empty for the one given at the start"),
            entry("p2_ca", self.p2_ca.clone(), "PEM file of the authority that signed P2's certificate"),
            entry("p2_cert", self.p2_cert.clone(), "PEM file of the engine's certificate"),
            entry("p2_key", self.p2_key.clone(), "PEM file of the certificate's key"),
            entry(
                "seed",
                self.seed.map_or_else(String::new, |seed| seed.to_string()),
                "repeatable noise: for tests only",
            ),
        ]
    }
}

/// Whose noise a released value carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseMode {
    /// Both servers': the release adds P2's.
    Joint,
    /// The engine's alone.
    Single,
}

impl VeilOptions {
    /// The settings of a session; the defaults if it has none.
    pub fn of(options: &ConfigOptions) -> Self {
        options.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Whose noise is wanted.
    pub fn noise_mode(&self) -> Result<NoiseMode> {
        match self.noise.to_ascii_lowercase().as_str() {
            "joint" => Ok(NoiseMode::Joint),
            "single" => Ok(NoiseMode::Single),
            other => config_err!("veil.noise is '{other}': SET veil.noise = 'joint' or 'single'"),
        }
    }
}
