//! Tells the gateway what became of announced starts (definitions.md, "Push").
//!
//! The ways of this release cannot see connections, so a report holds none.

use std::time::Duration;

use spand_proto::contract::HostName;
use spand_proto::report::{PushCount, Report};
use spand_proto::units::Timestamp;
use spand_proto::v1;
use tokio::sync::watch;
use tracing::debug;

use super::connect;
use crate::config::Gateway;

/// Time between two reports, at least.
const INTERVAL: Duration = Duration::from_secs(10);

/// Reports counts as they grow.
#[derive(Debug)]
pub struct Reporter {
    gateway: Gateway,
    host_name: HostName,
    agent_started: Timestamp,
    batch: u64,
    /// What the gateway knows.
    told: PushCount,
    /// A batch without an answer: it is sent again as it was, so that the gateway can tell that it is the same.
    unanswered: Option<(Report, PushCount)>,
}

impl Reporter {
    /// A reporter of the agent that started at this moment.
    pub fn new(gateway: Gateway, host_name: HostName, agent_started: Timestamp) -> Self {
        Self { gateway, host_name, agent_started, batch: 0, told: PushCount::default(), unanswered: None }
    }

    /// Reports until the sender of the counts goes away.
    pub async fn run(mut self, mut counts: watch::Receiver<PushCount>) {
        loop {
            if self.unanswered.is_none() && counts.changed().await.is_err() {
                return;
            }
            let now = *counts.borrow_and_update();
            self.tell(now).await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn tell(&mut self, now: PushCount) {
        let (report, total) = self.unanswered.take().unwrap_or_else(|| self.next_batch(now));
        match self.send(&report).await {
            Ok(()) => self.told = total,
            Err(error) => {
                debug!(%error, batch = report.batch, "report not sent");
                self.unanswered = Some((report, total));
            }
        }
    }

    fn next_batch(&mut self, now: PushCount) -> (Report, PushCount) {
        self.batch += 1;
        let pushes = PushCount {
            received: now.received.saturating_sub(self.told.received),
            in_time: now.in_time.saturating_sub(self.told.in_time),
            late: now.late.saturating_sub(self.told.late),
            unmatched: now.unmatched.saturating_sub(self.told.unmatched),
        };
        let report = Report {
            host_name: self.host_name.clone(),
            batch: self.batch,
            agent_started: self.agent_started,
            connections: Vec::new(),
            pushes,
        };
        (report, now)
    }

    async fn send(&self, report: &Report) -> Result<(), String> {
        let timeout = Duration::from_millis(self.gateway.timeout_ms.get());
        let sent = tokio::time::timeout(timeout, async {
            let mut client = connect(&self.gateway).await.map_err(|error| error.to_string())?;
            client.report(v1::ReportRequest::from(report)).await.map_err(|status| status.message().to_owned())
        });
        sent.await.map_err(|_| "no answer in time".to_owned())?.map(|_| ())
    }
}
