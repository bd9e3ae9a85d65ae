//! What goes wrong with NATS, each in one sentence with the way out.

use std::error::Error;
use std::io;

use async_nats::{ConnectError, ConnectErrorKind};
use rustls::{AlertDescription, CertificateError, Error as Rustls};

use strum::VariantArray;

use super::config::{CONNECT_WITHIN, NatsConfig};
use super::subjects::Subjects;
use crate::exchange::Topic;

/// Why messages do not get through.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Fault {
    /// For people.
    pub(super) sentence: String,
    /// Nobody was there to refuse anything: another server's word is worth more.
    pub(super) is_absence: bool,
}

impl Fault {
    /// Something that somebody has to change.
    pub(super) fn of(why: impl Into<String>) -> Self {
        Self { sentence: why.into(), is_absence: false }
    }

    /// Somebody who does not answer.
    pub(super) fn absence(why: impl Into<String>) -> Self {
        Self { sentence: why.into(), is_absence: true }
    }

    /// No connection to `server`.
    pub(super) fn of_connection(config: &NatsConfig, server: &str, error: &ConnectError) -> Self {
        if let Some(tls) = found::<Rustls>(error) {
            return Self::of(of_tls(config, server, tls));
        }
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                Self::of(config.login.as_ref().map_or_else(
                    || format!("NATS server {server} asks for a login, and there is none: name a user and the file of its password"),
                    |login| format!("NATS server {server} refuses {}: make both the same", login.shown()),
                ))
            }
            ConnectErrorKind::TimedOut => {
                let within = CONNECT_WITHIN.as_secs();
                Self::absence(format!("NATS server {server} does not answer within {within} s: is it up, and nothing in between?"))
            }
            ConnectErrorKind::Dns => Self::absence(format!("the name of NATS server {server} leads to no address: {error}")),
            _ => Self::absence(match found::<io::Error>(error) {
                Some(io) if io.kind() == io::ErrorKind::ConnectionRefused => {
                    format!("no NATS server listens at {server}: {io}")
                }
                _ => format!("no connection to NATS server {server}: {error}"),
            }),
        }
    }

    /// What a server sent about a right, as in `Permissions Violation for Publish to "x.y"`. `None` where it speaks of something else.
    pub(super) fn of_right(subjects: &Subjects, how_to_make_stream: &str, message: &str) -> Option<Self> {
        let message_lower = message.to_ascii_lowercase();
        let (_, what) = message_lower.split_once("permissions violation for ")?;
        let is_publish = what.starts_with("publish");
        let subject = message.split('"').nth(1).unwrap_or("?");
        let stream = subjects.stream();
        Some(Self::of(if subject == format!("$JS.API.STREAM.CREATE.{stream}") {
            format!(
                "there is no NATS stream {stream}, and the user may not make it: \
                 allow it to publish to {subject}, or make the stream once by `{how_to_make_stream}`"
            )
        } else if is_publish && Topic::VARIANTS.iter().any(|topic| subjects.own(*topic) == subject) {
            let right = subjects.own_right();
            format!(
                "the NATS user may not publish to {subject}: allow it to publish to {right}, and no other gateway's user"
            )
        } else {
            let verb = if is_publish { "publish" } else { "subscribe" };
            format!("the NATS user may not {verb} to {subject}: allow {}", lasting_right(subject))
        }))
    }
}

/// The right that covers a subject whose last parts are other ones each time.
fn lasting_right(subject: &str) -> String {
    let mut tokens = subject.split('.');
    match (tokens.next(), tokens.next()) {
        (Some("_INBOX"), Some(of)) => format!("_INBOX.{of}.>"),
        _ => subject.to_owned(),
    }
}

fn of_tls(config: &NatsConfig, server: &str, error: &Rustls) -> String {
    let ca = config.tls.as_ref().map(|tls| tls.ca.display().to_string()).unwrap_or_default();
    match error {
        Rustls::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!(
                    "the certificate of NATS server {server} is of no authority in {ca}: put the one that issued it there"
                )
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("the certificate of NATS server {server} has expired: renew it there, or set the clock here")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("the certificate of NATS server {server} does not hold yet: set the clocks")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!(
                    "the certificate of NATS server {server} names another host: use a name that it has, or renew it with this one"
                )
            }
            why => format!("the certificate of NATS server {server} cannot be taken: {why}"),
        },
        Rustls::AlertReceived(alert) => of_alert(config, server, *alert),
        Rustls::InvalidMessage(_) => format!("NATS server {server} does not speak TLS: give it a `tls {{ }}` block"),
        why => format!("TLS with NATS server {server} fails: {why}"),
    }
}

/// What the server says of our certificate.
fn of_alert(config: &NatsConfig, server: &str, alert: AlertDescription) -> String {
    match config.tls.as_ref().and_then(|tls| tls.identity.as_ref()) {
        None => format!(
            "NATS server {server} asks for a client's certificate, and there is none to show ({alert:?}): name one with its key"
        ),
        Some(identity) => {
            let certificate = identity.certificate.display();
            format!(
                "NATS server {server} refuses the certificate in {certificate} ({alert:?}): is it of the authority that the server knows?"
            )
        }
    }
}

/// The first error of a type among an error and its causes, those inside [`io::Error`] too.
fn found<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inside.map(|inside| inside as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}

#[cfg(test)]
mod tests {
    use spand_cells::GatewayId;

    use super::*;

    #[test]
    fn a_right_is_named_as_it_is_to_be_given() {
        let subjects = Subjects::new("c", "s", GatewayId(1));
        let of_right = |what: &str| Fault::of_right(&subjects, "make it", what).map(|fault| fault.sentence);
        for (what, right) in [
            ("Permissions Violation for Publish to \"spand.c.s.closed.1\"", "allow it to publish to spand.c.s.*.1,"),
            ("Permissions Violation for Publish to \"$JS.API.STREAM.CREATE.spand-c-s\"", "by `make it`"),
            (
                "Permissions Violation for Publish to \"$JS.API.DIRECT.GET.spand-c-s\"",
                "allow $JS.API.DIRECT.GET.spand-c-s",
            ),
            (
                "Permissions Violation for Subscription to \"_INBOX.spand-c-1.xyz.*\"",
                "may not subscribe to _INBOX.spand-c-1.xyz.*: allow _INBOX.spand-c-1.>",
            ),
        ] {
            let sentence = of_right(what).expect(what);
            assert!(sentence.contains(right), "{sentence}");
        }
        assert_eq!(of_right("Stale Connection"), None);
    }
}
