//! What a session needs to work on encrypted columns: dictionaries, public keys, and the way to P2.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::error::Result;
use tokio::sync::Mutex;
use veil_cells::KeyId;
use veil_flight_p2::{ClientConfig, ClientTls, FlightChannel};
use veil_protocols::{Channel, Session};
use veil_release::Attester;
use veil_slots::{PublicKey, Sanitizer};
use veil_udfs::{VeilContext, VeilOptions};

use crate::assess::Assessment;
use crate::error::protocol;
use crate::identifiers::Search;
use crate::k_anonymize::Anonymisation;
use crate::run_log::RunLog;

/// Shared by everything that runs in a session. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct Veil {
    context: VeilContext,
    links: Arc<Mutex<Links>>,
    searches: RunLog<Search>,
    anonymisations: RunLog<Anonymisation>,
    assessments: RunLog<Assessment>,
}

#[derive(Debug, Default)]
struct Links {
    keys: HashMap<KeyId, Sanitizer>,
    signers: HashMap<KeyId, Arc<dyn Attester>>,
    channel: Option<Arc<dyn Channel>>,
    remote: Option<ClientConfig>,
    /// By address, certificates and key set.
    connected: HashMap<(String, String, KeyId), Arc<dyn Channel>>,
}

impl Veil {
    /// With a context of its own, for tests.
    pub fn new(context: VeilContext) -> Self {
        Self { context, ..Self::default() }
    }

    /// What the functions share.
    pub fn context(&self) -> &VeilContext {
        &self.context
    }

    /// Adds the public key of a key set, under which everything is hidden on its way to P2.
    pub async fn add_key(&self, key: KeyId, public_key: PublicKey) {
        self.links.lock().await.keys.insert(key, Sanitizer::with_pool(public_key));
    }

    /// Signs manifests of releases of this key set as P1.
    pub async fn set_signer(&self, key: KeyId, signer: Arc<dyn Attester>) {
        self.links.lock().await.signers.insert(key, signer);
    }

    /// Who signs for P1.
    pub(crate) async fn signer(&self, key: KeyId) -> Result<Arc<dyn Attester>> {
        self.links.lock().await.signers.get(&key).cloned().ok_or_else(|| {
            DataFusionError::Execution(format!(
                "a release is signed by the engine, which has no key of key set {key} to sign with: start with the p1.keys that belongs to the \
                 data (--keys keys/p1.keys)"
            ))
        })
    }

    /// Asks this P2 unless `veil.p2` names another: one in the same process, or a connection that is open already.
    pub async fn set_channel(&self, channel: Arc<dyn Channel>) {
        self.links.lock().await.channel = Some(channel);
    }

    /// Asks the P2 at this address unless `veil.p2` names another. It is connected to when it is first needed.
    pub async fn set_remote(&self, config: ClientConfig) {
        self.links.lock().await.remote = Some(config);
    }

    /// The searches for identifiers that have ended, the latest last.
    pub fn searches(&self) -> Vec<Search> {
        self.searches.all()
    }

    /// The runs of k_anonymize that have ended, the latest last.
    pub fn anonymisations(&self) -> Vec<Anonymisation> {
        self.anonymisations.all()
    }

    /// The runs of risk, class_sizes, utility and sweep that have ended, the latest last.
    pub fn assessments(&self) -> Vec<Assessment> {
        self.assessments.all()
    }

    /// What somebody should know who asks for what tells the key holder more than it need know, since this was last asked. Warnings that nobody
    /// takes come with the notes.
    pub fn take_warnings(&self) -> Vec<String> {
        self.anonymisations.take_warnings()
    }

    /// What the reader of results should know, since this was last asked.
    pub fn take_notes(&self) -> Vec<String> {
        [self.searches.take_notes(), self.anonymisations.take_notes(), self.assessments.take_notes()].concat()
    }

    pub(crate) fn search_log(&self) -> &RunLog<Search> {
        &self.searches
    }

    pub(crate) fn assessment_log(&self) -> &RunLog<Assessment> {
        &self.assessments
    }

    pub(crate) fn anonymisation_log(&self) -> &RunLog<Anonymisation> {
        &self.anonymisations
    }

    /// A run against P2 for columns of this key set.
    pub async fn session(&self, key: KeyId, options: &VeilOptions) -> Result<Session> {
        let mut links = self.links.lock().await;
        let Some(sanitizer) = links.keys.get(&key).cloned() else {
            return Err(DataFusionError::Execution(format!(
                "this query needs rounds with P2 for key set {key}, and the engine has no public key of it: start with the \
                 p1.keys that belongs to the data (veil sql --keys keys/p1.keys)"
            )));
        };
        let channel = links.channel(key, options).await?;
        Ok(Session::with(channel, key, sanitizer, self.context.randomness(options)))
    }
}

impl Links {
    async fn channel(&mut self, key: KeyId, options: &VeilOptions) -> Result<Arc<dyn Channel>> {
        let config = match (options.p2.as_str(), &self.remote, &self.channel) {
            ("", None, Some(channel)) => return Ok(channel.clone()),
            ("", Some(remote), _) => remote.clone(),
            ("", None, None) => {
                return Err(DataFusionError::Execution(
                    "this query needs rounds with P2, and no P2 is known: SET veil.p2 = 'https://host:7722', or start with \
                     --p2 URL or --embedded-p2 keys/p2.keys"
                        .to_owned(),
                ));
            }
            (address, ..) => configured(address, options)?,
        };
        let name = (config.endpoint.clone(), format!("{:?}", config.tls), key);
        if let Some(channel) = self.connected.get(&name) {
            return Ok(channel.clone());
        }
        let channel: Arc<dyn Channel> = Arc::new(FlightChannel::connect(config, key).await.map_err(protocol)?);
        self.connected.insert(name, channel.clone());
        Ok(channel)
    }
}

/// The address of `veil.p2` with its certificates.
fn configured(address: &str, options: &VeilOptions) -> Result<ClientConfig> {
    let mut config = ClientConfig::new(address);
    let files = [&options.p2_ca, &options.p2_cert, &options.p2_key];
    config.tls = match files.map(|file| !file.is_empty()) {
        [false, false, false] => None,
        [true, true, true] => Some(ClientTls {
            ca: options.p2_ca.clone().into(),
            cert: options.p2_cert.clone().into(),
            key: options.p2_key.clone().into(),
        }),
        _ => {
            return Err(DataFusionError::Configuration(
                "veil.p2_ca, veil.p2_cert and veil.p2_key belong together: set all three or none".to_owned(),
            ));
        }
    };
    Ok(config)
}
