//! The names of what is in NATS: subjects and streams.

use spand_cells::{GatewayId, MOST_GATEWAYS};
use strum::VariantArray;

use crate::exchange::Topic;

/// First token of every subject, and of every stream's name.
const ROOT: &str = "spand";

/// The names that one gateway uses.
#[derive(Clone, Debug)]
pub(super) struct Subjects {
    cluster: String,
    site: String,
    gateway: GatewayId,
}

impl Subjects {
    pub(super) fn new(cluster: &str, site: &str, gateway: GatewayId) -> Self {
        Self { cluster: cluster.to_owned(), site: site.to_owned(), gateway }
    }

    /// Where this gateway writes what is about `topic`.
    pub(super) fn own(&self, topic: Topic) -> String {
        self.own_to(topic, None)
    }

    /// The same, for one gateway alone.
    pub(super) fn own_to(&self, topic: Topic, to: Option<GatewayId>) -> String {
        let Self { cluster, site, gateway } = self;
        format!("{ROOT}.{cluster}.{site}.{}.{}", token(topic, to), gateway.0)
    }

    /// What all gateways of all sites write for this one alone.
    pub(super) fn inboxes(&self) -> [String; 2] {
        [Topic::Host, Topic::Again]
            .map(|topic| format!("{ROOT}.{}.*.{}.*", self.cluster, token(topic, Some(self.gateway))))
    }

    /// Where servers answer this gateway: no other one's user may listen there.
    pub(super) fn answers(&self) -> String {
        format!("_INBOX.{ROOT}-{}-{}", self.cluster, self.gateway.0)
    }

    /// All that this gateway writes to, as a right of its user.
    pub(super) fn own_right(&self) -> String {
        format!("{ROOT}.{}.{}.*.{}", self.cluster, self.site, self.gateway.0)
    }

    /// What all gateways of all sites write about `topic`.
    pub(super) fn everybody(&self, topic: Topic) -> String {
        format!("{ROOT}.{}.*.{}.*", self.cluster, topic.name())
    }

    /// What the site's stream keeps.
    pub(super) fn kept(&self) -> String {
        format!("{ROOT}.{}.{}.{}.*", self.cluster, self.site, Topic::Closed.name())
    }

    /// The site's stream.
    pub(super) fn stream(&self) -> String {
        self.stream_of(&self.site)
    }

    /// That of another site, or its copy.
    pub(super) fn stream_of(&self, site: &str) -> String {
        format!("{}{site}", self.stream_prefix())
    }

    /// How the names of all sites' streams begin. A cluster's name may begin so, too: who reads a stream filters by subject.
    pub(super) fn stream_prefix(&self) -> String {
        format!("{ROOT}-{}-", self.cluster)
    }

    /// Whether a server's sentence is about the stream of another site.
    pub(super) fn is_of_copy(&self, message: &str) -> bool {
        let named = message.split('"').nth(1).and_then(|subject| subject.rsplit('.').next());
        named.is_some_and(|stream| stream.starts_with(&self.stream_prefix()) && stream != self.stream())
    }

    /// The site of a subject.
    pub(super) fn site_of(subject: &str) -> Option<&str> {
        subject.split('.').nth(2)
    }

    /// This gateway's site.
    pub(super) fn site(&self) -> &str {
        &self.site
    }

    /// Who wrote to a subject, and about what. `None` where no gateway of this cluster writes there.
    pub(super) fn author(&self, subject: &str) -> Option<(GatewayId, Topic)> {
        let mut tokens = subject.split('.');
        let (root, cluster, _site) = (tokens.next()?, tokens.next()?, tokens.next()?);
        let (topic, gateway, end) = (tokens.next()?, tokens.next()?, tokens.next());
        if root != ROOT || cluster != self.cluster || end.is_some() {
            return None;
        }
        let known = Topic::VARIANTS.iter().copied().find(|known| known.name() == topic);
        let addressed = || [Topic::Host, Topic::Again].into_iter().find(|of| topic == token(*of, Some(self.gateway)));
        let topic = known.or_else(addressed)?;
        let number: u16 = gateway.parse().ok().filter(|number| (1..=MOST_GATEWAYS).contains(number))?;
        // A right is given for one spelling of a number.
        (number.to_string() == gateway).then_some((GatewayId(number), topic))
    }

    /// Whether it is this gateway.
    pub(super) fn is_own(&self, gateway: GatewayId) -> bool {
        self.gateway == gateway
    }
}

/// What is between site and gateway: the topic, and for whom it is where that is one gateway.
fn token(topic: Topic, to: Option<GatewayId>) -> String {
    match to {
        Some(GatewayId(to)) => format!("{}-{to}", topic.name()),
        None => topic.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_author_is_in_the_subject_and_in_one_spelling_only() {
        let subjects = Subjects::new("c", "here", GatewayId(7));
        for topic in Topic::VARIANTS {
            assert_eq!(subjects.author(&subjects.own(*topic)), Some((GatewayId(7), *topic)));
        }
        let other = Subjects::new("c", "there", GatewayId(8));
        assert_eq!(subjects.author(&other.own_to(Topic::Host, Some(GatewayId(7)))), Some((GatewayId(8), Topic::Host)));
        assert_eq!(subjects.author(&other.own_to(Topic::Host, Some(GatewayId(9)))), None);
        assert_eq!(subjects.inboxes(), ["spand.c.*.host-7.*", "spand.c.*.again-7.*"]);
        assert_eq!(subjects.author("spand.c.there.open.64"), Some((GatewayId(64), Topic::Open)));
        for foreign in [
            "spand.d.here.open.7",
            "other.c.here.open.7",
            "spand.c.here.opened.7",
            "spand.c.here.open.65",
            "spand.c.here.open.0",
            "spand.c.here.open.65536",
            "spand.c.here.open.07",
            "spand.c.here.open.+7",
            "spand.c.here.open.-1",
            "spand.c.here.open.",
            "spand.c.here.open",
            "spand.c.here.open.7.x",
            "",
        ] {
            assert_eq!(subjects.author(foreign), None, "{foreign}");
        }
    }
    #[test]
    fn a_right_to_a_copy_is_not_one_to_the_own_stream() {
        let subjects = Subjects::new("c", "here", GatewayId(7));
        let of = |subject: &str| subjects.is_of_copy(&format!("Permissions Violation for Publish to \"{subject}\""));
        assert!(of("$JS.API.STREAM.INFO.spand-c-there") && of("$JS.API.DIRECT.GET.spand-c-there"));
        assert!(!of("$JS.API.STREAM.INFO.spand-c-here") && !of("$JS.API.DIRECT.GET.spand-c-here"));
        assert!(!of("spand.c.here.closed.7") && !of("_INBOX.spand-c-7.x") && !subjects.is_of_copy("Stale Connection"));
    }
}
