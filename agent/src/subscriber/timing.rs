//! Times that are no matter of configuration.

use std::time::Duration;

/// How soon a dead gateway is noticed, and how hosts spread out. Tests take shorter ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    /// Silence on an open stream after which the gateway is asked for a sign of life (HTTP/2 PING).
    pub ping_after: Duration,
    /// How long it may take to give one.
    pub ping_timeout: Duration,
    /// Hosts that lost a gateway together come to another one within this time, but never later than `gateway.retry_max_ms`.
    pub spread: Duration,
    /// Mean time between two looks at a gateway that is preferred to the one in use.
    pub look: Duration,
    /// How long such a one has to have been up before this host returns to it, and how much longer at most.
    pub up: [Duration; 2],
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ping_after: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            spread: Duration::from_secs(2),
            look: Duration::from_secs(10),
            up: [Duration::from_secs(120); 2],
        }
    }
}
