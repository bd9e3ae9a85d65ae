//! Hosts of the stage: they subscribe as agents do, and report made-up transfers.

use anyhow::Result;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::{
    AgentDescription, Arm, ConnectionReport, Mode, PauseState, PushCount, RefusalReason, ReportRequest,
    SubscribeRequest, Way,
};
use tokio::task::JoinHandle;

use super::others::address;
use crate::lab::topology::{SERVER_V4, SERVER_V6};

/// Name, addresses, mode and way of each.
fn hosts() -> [(&'static str, Vec<String>, Mode, Way); 4] {
    [
        ("web-1", vec![SERVER_V4.to_string(), SERVER_V6.to_string()], Mode::Careful, Way::Bpf),
        ("web-2", vec!["10.0.0.2".to_owned()], Mode::Careful, Way::Bpf),
        ("mail-1", vec!["10.0.0.25".to_owned()], Mode::Careful, Way::Route),
        ("proxy-1", vec!["10.0.0.80".to_owned()], Mode::Observe, Way::DryRun),
    ]
}

/// Subscribes all of them; each task ends with its stream.
pub(super) async fn subscribe(grpc: &str) -> Result<Vec<JoinHandle<()>>> {
    let mut tasks = Vec::new();
    for (name, addresses, mode, way) in hosts() {
        let mut client = SpandClient::connect(grpc.to_owned()).await?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let pause = PauseState { paused: name == "mail-1", remaining_ms: None };
        let request = SubscribeRequest {
            contract_version: 1,
            host_name: name.to_owned(),
            addresses,
            agent: Some(AgentDescription { version, mode: mode.into(), way: way.into(), pause: Some(pause) }),
            cluster: String::new(),
            networks: Vec::new(),
        };
        let mut updates = client.subscribe(request).await?.into_inner();
        tasks.push(tokio::spawn(async move { while let Ok(Some(_)) = updates.message().await {} }));
    }
    Ok(tasks)
}

/// Both hosts that see their transfers report some of every size.
pub(super) async fn report(grpc: &str, batch: u64) -> Result<()> {
    let mut client = SpandClient::connect(grpc.to_owned()).await?;
    for (name, _, _, way) in hosts() {
        let connections = if way == Way::Bpf { transfers(batch) } else { Vec::new() };
        let pushes = Some(PushCount { received: 20, in_time: 18, late: 1, unmatched: 0 });
        let request = ReportRequest {
            contract_version: 1,
            host_name: name.to_owned(),
            batch,
            agent_started_unix_ns: 1,
            connections,
            pushes,
            pause: None,
        };
        client.report(request).await?;
    }
    Ok(())
}

/// Advised transfers take three quarters of the time, but for the smallest; made up, to be drawn.
fn transfers(batch: u64) -> Vec<ConnectionReport> {
    let mut transfers = Vec::new();
    for (class, bytes) in [8_000, 25_000, 80_000, 250_000, 900_000, 8_000_000, 30_000_000].into_iter().enumerate() {
        for number in 0..20_u64 {
            let advised = number % 4 != 0;
            let spread = 60 + (number * 37 + batch * 11 + class as u64 * 5) % 50;
            let plain = (40_000 + bytes / 8) * spread / 80;
            let transfer = ConnectionReport {
                host_address: SERVER_V4.to_string(),
                host_port: 443,
                remote_address: address(usize::try_from(number).unwrap_or_default()).to_string(),
                remote_port: 40_000 + u32::try_from(class).unwrap_or_default(),
                duration_us: Some(if advised && class > 0 { plain * 3 / 4 } else { plain }),
                end_window_bytes: Some(30_000),
                mss_bytes: Some(1_448),
                acknowledged_bytes: bytes,
                retransmitted_segments: u32::from(number % 7 == 0),
                arm: if advised { Arm::Advised } else { Arm::Control }.into(),
                ..ConnectionReport::default()
            };
            transfers.push(match number % 10 {
                1 => ConnectionReport { refusal: RefusalReason::RttMismatch.into(), ..transfer },
                2 if number > 10 => ConnectionReport { refusal: RefusalReason::NoEstimate.into(), ..transfer },
                _ if advised => {
                    ConnectionReport { advised_segments: Some(24), first_flight_loss: Some(false), ..transfer }
                }
                _ => transfer,
            });
        }
    }
    transfers
}

/// Advised first flights to one network that all lost: its advice is taken back.
pub(super) async fn lose(grpc: &str, network: usize) -> Result<()> {
    let mut client = SpandClient::connect(grpc.to_owned()).await?;
    let lost = |port| ConnectionReport {
        host_address: "10.0.0.2".to_owned(),
        host_port: 443,
        remote_address: address(network).to_string(),
        remote_port: port,
        acknowledged_bytes: 20_000,
        arm: Arm::Advised.into(),
        advised_segments: Some(24),
        first_flight_loss: Some(true),
        ..ConnectionReport::default()
    };
    let request = ReportRequest {
        contract_version: 1,
        host_name: "web-3".to_owned(),
        batch: 1,
        agent_started_unix_ns: 1,
        connections: (1..=8).map(lost).collect(),
        pushes: None,
        pause: None,
    };
    client.report(request).await?;
    Ok(())
}
