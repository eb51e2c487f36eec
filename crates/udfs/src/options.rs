//! `SET veil.*`.

use datafusion::common::{config_err, extensions_options};
use datafusion::config::{ConfigExtension, ConfigOptions};
use datafusion::error::Result;

extensions_options! {
    /// Settings of encrypted queries.
    pub struct VeilOptions {
        /// Whose noise a released value carries: 'joint', of both servers, or 'single', of the engine alone.
        pub noise: String, default = "joint".to_owned()
        /// Rows of a batch of rounds; 8192 fit a ciphertext.
        pub batch_rows: usize, default = 65_536
        /// Where P2 listens; empty for the one that the program was started with.
        pub p2: String, default = String::new()
        /// PEM file of the authority that signed P2's certificate.
        pub p2_ca: String, default = String::new()
        /// PEM file of the engine's certificate.
        pub p2_cert: String, default = String::new()
        /// PEM file of the certificate's key.
        pub p2_key: String, default = String::new()
        /// Makes all noise repeatable, and so worthless: for tests only.
        pub seed: Option<u64>, default = None
    }
}

impl ConfigExtension for VeilOptions {
    const PREFIX: &'static str = "veil";
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
