//! An exchange in the memory of one process, for tests and experiments: every message reaches every other member at once, and kept
//! ones reach those that join or come back later.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use spand_cells::GatewayId;
use tokio::sync::{Notify, watch};

use super::exchange::{Exchange, Incoming, Link, LinkState, Outgoing, Topic};

/// Kept messages. At the limit the oldest goes.
const KEPT: usize = 65_536;

/// What the members of one cluster have in common; clones share it.
#[derive(Clone, Debug)]
pub struct MemoryHub {
    shared: Arc<Hub>,
}

#[derive(Debug)]
struct Hub {
    log: Mutex<Log>,
    arrived: Notify,
    is_up: watch::Sender<bool>,
}

/// Messages, each with its number.
#[derive(Debug, Default)]
struct Log {
    first: u64,
    messages: VecDeque<(Option<GatewayId>, Incoming)>,
}

impl MemoryHub {
    /// With no members yet.
    pub fn new() -> Self {
        let (is_up, _) = watch::channel(true);
        Self { shared: Arc::new(Hub { log: Mutex::default(), arrived: Notify::new(), is_up }) }
    }

    /// A member's end.
    pub fn member(&self, gateway: GatewayId) -> MemoryExchange {
        MemoryExchange { hub: self.clone(), gateway }
    }

    /// Sends a message to all in the name of a member, whatever that is.
    pub fn say(&self, gateway: GatewayId, topic: Topic, payload: Vec<u8>) {
        self.shared.log.lock().add(None, Incoming { gateway, topic, payload });
        self.shared.arrived.notify_waiters();
    }

    /// Takes it away from everybody, or brings it back.
    pub fn set_up(&self, is_up: bool) {
        self.shared.is_up.send_replace(is_up);
    }
}

impl Default for MemoryHub {
    fn default() -> Self {
        Self::new()
    }
}

/// The end of one member.
#[derive(Clone, Debug)]
pub struct MemoryExchange {
    hub: MemoryHub,
    gateway: GatewayId,
}

impl Exchange for MemoryExchange {
    async fn run(self: Box<Self>, mut link: Link) {
        let hub = &*self.hub.shared;
        let (mut is_up, mut next) = (hub.is_up.subscribe(), None);
        let mut cells = VecDeque::new();
        loop {
            if !*is_up.borrow_and_update() {
                link.state.send_replace(LinkState::Down("the exchange was taken away".to_owned()));
                tokio::select! {
                    changed = is_up.changed() => if changed.is_err() { return },
                    // What is sent meanwhile is lost, as with any exchange.
                    sent = link.outgoing.recv() => if sent.is_none() { return },
                }
                continue;
            }
            if *link.state.borrow() != LinkState::Up {
                link.state.send_replace(LinkState::Up);
            }
            let arrived = hub.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let messages = hub.log.lock().since(&mut next, self.gateway);
            for message in messages {
                if message.topic.has_cells() {
                    cells.push_back(message);
                } else if link.incoming.send(message).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                room = link.cells.reserve(), if !cells.is_empty() => {
                    let (Ok(room), Some(message)) = (room, cells.pop_front()) else { return };
                    room.send(message);
                }
                changed = is_up.changed() => if changed.is_err() { return },
                () = arrived => {}
                sent = link.outgoing.recv() => match sent {
                    Some(Outgoing { topic, to, payload }) => {
                        hub.log.lock().add(to, Incoming { gateway: self.gateway, topic, payload });
                        hub.arrived.notify_waiters();
                    }
                    None => return,
                },
            }
        }
    }
}

impl Log {
    fn add(&mut self, to: Option<GatewayId>, message: Incoming) {
        if self.messages.len() >= KEPT {
            self.messages.pop_front();
            self.first += 1;
        }
        self.messages.push_back((to, message));
    }

    /// Those from number `next` on, or the kept ones for who is new; of a member's own number, only those about who has it.
    fn since(&self, next: &mut Option<u64>, own: GatewayId) -> Vec<Incoming> {
        let from = next.replace(self.first + self.messages.len() as u64);
        let skipped = usize::try_from(from.unwrap_or_default().saturating_sub(self.first)).unwrap_or(usize::MAX);
        let messages = self
            .messages
            .iter()
            .skip(skipped)
            .filter(|(to, _)| to.is_none_or(|to| to == own))
            .map(|(_, message)| message)
            .filter(|message| message.gateway != own || message.topic == Topic::Member);
        messages.filter(|message| from.is_some() || message.topic.is_kept()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    struct Member {
        out: mpsc::Sender<Outgoing>,
        inbox: mpsc::Receiver<Incoming>,
        state: watch::Receiver<LinkState>,
    }

    fn join(hub: &MemoryHub, gateway: u16) -> Member {
        let ((out, outgoing), (incoming, inbox)) = (mpsc::channel(64), mpsc::channel(64));
        let (state, seen) = watch::channel(LinkState::default());
        let exchange = Box::new(hub.member(GatewayId(gateway)));
        tokio::spawn(exchange.run(Link {
            outgoing,
            cells: incoming.clone(),
            incoming,
            state,
            streams: Arc::default(),
        }));
        Member { out, inbox, state: seen }
    }

    async fn send(member: &Member, topic: Topic, byte: u8) {
        member.out.send(Outgoing::to_all(topic, vec![byte])).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn members_hear_each_other_and_who_comes_later_hears_what_is_kept() {
        let hub = MemoryHub::new();
        let (mut one, mut other) = (join(&hub, 1), join(&hub, 2));
        one.state.wait_for(|state| *state == LinkState::Up).await.unwrap();
        other.state.wait_for(|state| *state == LinkState::Up).await.unwrap();
        send(&one, Topic::Open, 1).await;
        send(&one, Topic::Closed, 2).await;
        for byte in [1, 2] {
            let message = other.inbox.recv().await.unwrap();
            assert_eq!((message.gateway, message.payload), (GatewayId(1), vec![byte]));
        }
        let mut late = join(&hub, 3);
        assert_eq!(late.inbox.recv().await.unwrap().payload, [2]);
        assert!(one.inbox.try_recv().is_err(), "nobody hears itself");

        hub.set_up(false);
        one.state.wait_for(|state| matches!(state, LinkState::Down(_))).await.unwrap();
        send(&one, Topic::Closed, 3).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        hub.set_up(true);
        one.state.wait_for(|state| *state == LinkState::Up).await.unwrap();
        send(&one, Topic::Closed, 4).await;
        assert_eq!(other.inbox.recv().await.unwrap().payload, [4], "what was sent meanwhile is lost");
    }
}
