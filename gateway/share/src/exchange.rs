//! What carries messages between gateways, behind one trait: an engine such as NATS, or the memory of one process in tests.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spand_cells::GatewayId;
use tokio::sync::{mpsc, watch};

/// What a message is about, which decides how it travels.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Topic {
    /// Cells of closed buckets, and advice that is held back: kept for the length of a window, so that who was away gets them later.
    Closed,
    /// Cells of open buckets: who is away misses them, and gets the closed ones.
    Open,
    /// Who a gateway is and how it is, again every few seconds; and which hosts are subscribed at it.
    Member,
    /// For one gateway alone: what others saw of its hosts. Lost where it is away.
    Host,
    /// For one gateway alone: cells of closed buckets that it asked for.
    Again,
}

impl Topic {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it is kept for those that are away.
    pub fn is_kept(self) -> bool {
        self == Self::Closed
    }

    /// Whether messages about it are cells for the most part.
    pub fn has_cells(self) -> bool {
        matches!(self, Self::Closed | Self::Open | Self::Again)
    }
}

/// A message on its way out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outgoing {
    /// What it is about.
    pub topic: Topic,
    /// For whom it is; `None`: for all. One gateway for [`Topic::Host`] and [`Topic::Again`].
    pub to: Option<GatewayId>,
    /// At most [`MESSAGE_BYTES`].
    pub payload: Vec<u8>,
}

impl Outgoing {
    /// For all.
    pub fn to_all(topic: Topic, payload: Vec<u8>) -> Self {
        Self { topic, to: None, payload }
    }
}

/// A message of another gateway.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Incoming {
    /// Which gateway it is of, as the exchange knows it: by the subject that only that gateway may write to.
    pub gateway: GatewayId,
    /// What it is about.
    pub topic: Topic,
    /// What was sent.
    pub payload: Vec<u8>,
}

/// Largest message.
pub const MESSAGE_BYTES: usize = 64 * 1_024;

/// Whether messages get through, as the exchange knows it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum LinkState {
    /// Not connected yet.
    #[default]
    Connecting,
    /// They do.
    Up,
    /// They do, but nothing is kept for those that are away, for this reason, a sentence.
    Degraded(String),
    /// They do not, for this reason, a sentence.
    Down(String),
}

impl LinkState {
    /// Whether messages get through to those that are here.
    pub fn carries(&self) -> bool {
        matches!(self, Self::Up | Self::Degraded(_))
    }
}

/// The stream with the closed cells of one site's gateways, as the exchange last found it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SiteStream {
    /// The site whose gateways write to it. It is a copy where that is another site than this gateway's.
    pub site: String,
    /// Its state, or why that is not known.
    pub found: Result<StreamState, StreamFault>,
}

/// The state of a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamState {
    /// Replicas that are up and have every message.
    pub current: usize,
    /// Replicas in all.
    pub replicas: usize,
    /// How far a copy is behind; `None` of the site's own stream.
    pub copy: Option<MirrorLag>,
}

/// How far a copy is behind its source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MirrorLag {
    /// Messages of the source that it does not have.
    pub messages: u64,
    /// Time since the source's servers last answered it, or since its newest message; `None` before the first.
    pub heard: Option<Duration>,
}

/// Why the state of a stream is not known.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StreamFault {
    /// Gateways of the site are heard, and there is no stream with their cells.
    Missing,
    /// No server answers, or the user may not ask.
    NoAnswer,
}

impl StreamFault {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The ends of the channels that an exchange works with. Both are bounded: what does not fit is dropped where it is produced, and
/// counted there; nobody waits for an exchange.
#[derive(Debug)]
pub struct Link {
    /// Messages to send, in order. At its end the exchange ends.
    pub outgoing: mpsc::Receiver<Outgoing>,
    /// What comes of others with cells, for which engines may have no room for long. The exchange waits where the channel is full, and may
    /// lose what it cannot hold meanwhile.
    pub cells: mpsc::Sender<Incoming>,
    /// All else that comes, waited for likewise, and what is about members of the own number too: another gateway may have it.
    pub incoming: mpsc::Sender<Incoming>,
    /// How it is. When messages get through again, those of before may be lost: what matters is sent again by the reader of this. What is
    /// kept may come twice.
    pub state: watch::Sender<LinkState>,
    /// The streams that a gateway reads when it starts, by site; empty while the link is down.
    pub streams: Arc<Mutex<Vec<SiteStream>>>,
}

/// Carries messages between the gateways of a cluster.
pub trait Exchange: Send + 'static {
    /// Carries until `link.outgoing` ends. Never ends before: after a failure it shows that by the state and tries again with backoff.
    fn run(self: Box<Self>, link: Link) -> impl Future<Output = ()> + Send
    where
        Self: Sized;
}
