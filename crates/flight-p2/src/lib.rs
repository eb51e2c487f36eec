//! P2 as an Arrow Flight service, and P1's way to it.
//!
//! A round is one `DoExchange`: batches go up, one answer comes down for each, in order. Which protocol is in the descriptor
//! (`veil`, name, version), the [`Header`](veil_protocols::Header) of a batch is its `app_metadata`, and a batch is exactly one
//! message, whatever its size.
//!
//! ```text
//!   P1                                                                      P2
//!   Session -> FlightChannel -> exchange == DoExchange over mutual TLS ==> P2Service -> Responder
//!                   |  resends what is unanswered                            |  bounded work, no state between batches
//!                   link: connects, agrees on terms, connects again          server: listens, stops without losing a round
//! ```
//!
//! ```text
//!  service       DoExchange and DoAction over a Responder          client        FlightChannel
//!  questions     what a stream asks, message by message            exchange      one round, through lost connections
//!  server        listening and stopping                            link          the connection that rounds share
//!  tls           certificates, from PEM files                      connection    one connection and its calls
//!  terms         what both sides must agree on                     backoff       how long to wait before the next try
//!  status        errors as gRPC codes and back                     wire          frames as Flight messages, and damaged ones
//! ```
//! The crate knows no secret key: the service takes a [`Responder`](veil_protocols::Responder), and P1 uses the client.

mod backoff;
mod client;
mod connection;
mod exchange;
mod link;
mod questions;
mod server;
mod service;
mod status;
mod terms;
mod tls;
mod wire;

pub use client::FlightChannel;
pub use connection::{ClientConfig, Connection, Health};
pub use server::{BoundServer, P2Server, ServerConfig, ServerError, flight_server};
pub use service::P2Service;
pub use status::{error_of, is_refused_certificate, reason, status_of};
pub use terms::Terms;
pub use tls::{ClientTls, HANDSHAKE_TIMEOUT, ServerTls, TlsError, authority, identity, install_crypto};
