//! The attacker's process.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use spand_proto::v1;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Attack, HOSTILE, HOSTS, NAMES, Target};

/// How much nicer than the gateway it is: about a tenth of its part of a processor where both want one.
const NICER: i32 = 10;
/// Connections on which it works side by side.
const CONNECTIONS: usize = 4;
/// Calls that go on side by side on each.
const CALLS: usize = 4;
/// Connections that each of them holds where it only holds them: more than one peer may have.
const HELD: usize = 32;
/// Connections on which lists are asked for: as many as one peer may have.
const LISTING: usize = 64;

/// Attacks until it is killed.
pub(super) fn run(attack: Attack, target: &Target) -> Result<()> {
    // SAFETY: it changes how this process is scheduled, and touches no memory.
    unsafe { libc::nice(NICER) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..if attack == Attack::Lists { LISTING } else { CONNECTIONS } {
            let target = target.clone();
            tasks.spawn(async move {
                loop {
                    // Where it was refused it tries again.
                    drop(once(attack, &target).await);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        tasks.join_all().await;
    });
    Ok(())
}

async fn once(attack: Attack, target: &Target) -> Result<()> {
    match attack {
        Attack::SubscribeReset | Attack::Reports => calls(attack, target).await,
        Attack::HalfHeads => hold(target, target.http, b"GET /v1/networks HTTP/1.1\r\nHo").await,
        Attack::SilentTls => hold(target, target.grpc, b"").await,
        Attack::SlowReaders => {
            let asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50);
            hold(target, target.http, &asked).await
        }
        Attack::Lists => list(target).await,
    }
}

/// Calls side by side on one connection, until it is closed.
async fn calls(attack: Attack, target: &Target) -> Result<()> {
    let client = target.client(NAMES[2], Some(HOSTILE)).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let mut client = client.clone();
        // Each is another agent of the host, so that no batch was taken before.
        let agent = rand::random();
        tasks.spawn(async move {
            for batch in 1.. {
                let ended = match attack {
                    Attack::Reports => client.report(report(agent, batch)).await.err(),
                    _ => match client.subscribe(wish()).await {
                        // Dropped with what it received: the stream is reset.
                        Ok(stream) => stream.into_inner().message().await.err(),
                        Err(status) => Some(status),
                    },
                };
                if ended.is_some_and(|status| status.code() != tonic::Code::ResourceExhausted) {
                    return;
                }
            }
        });
    }
    tasks.join_all().await;
    Ok(())
}

fn wish() -> v1::SubscribeRequest {
    let addresses = vec![HOSTS[2].to_owned()];
    v1::SubscribeRequest {
        contract_version: 1,
        host_name: NAMES[2].to_owned(),
        addresses,
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    }
}

fn report(agent: u64, batch: u64) -> v1::ReportRequest {
    let connection = |n: u32| v1::ConnectionReport {
        host_address: HOSTS[2].to_owned(),
        host_port: 443,
        remote_address: format!("100.{}.{}.7", n >> 8, n & 0xff),
        remote_port: 50_000,
        acknowledged_bytes: 30_000,
        first_flight_loss: Some(true),
        arm: v1::Arm::Advised.into(),
        advised_segments: Some(14),
        ..v1::ConnectionReport::default()
    };
    v1::ReportRequest {
        contract_version: 1,
        host_name: NAMES[2].to_owned(),
        batch,
        agent_started_unix_ns: agent,
        connections: (0..1_024).map(connection).collect(),
        ..v1::ReportRequest::default()
    }
}

/// Opens connections, writes the same on each, and holds the newest without reading.
async fn hold(target: &Target, to: SocketAddr, words: &[u8]) -> Result<()> {
    let mut held: VecDeque<TcpStream> = VecDeque::new();
    loop {
        let mut tcp = target.connect(to, HOSTILE, Some(4_096)).await?;
        // One that was closed meanwhile is held all the same.
        drop(tcp.write_all(words).await);
        held.push_back(tcp);
        if held.len() > HELD {
            held.pop_front();
        }
    }
}

/// Asks and reads on one connection, until it is closed.
async fn list(target: &Target) -> Result<()> {
    let mut tcp = target.connect(target.http, HOSTILE, None).await?;
    let asked = b"GET /v1/networks?sort=wc&order=desc&limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4);
    let (mut read, mut write) = tcp.split();
    let ask = async { while write.write_all(&asked).await.is_ok() {} };
    let answers = async {
        let mut some = vec![0; 1 << 16];
        while read.read(&mut some).await.is_ok_and(|count| count > 0) {}
    };
    tokio::select! {
        () = ask => {}
        () = answers => {}
    }
    Ok(())
}

// What was seen, as lines of a table.

/// What honest ones saw in one turn, or in several.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// From the connection to the end of the snapshot.
    pub snapshots: Vec<Duration>,
    /// From the packet to the agent, of each start.
    pub pushes: Vec<Duration>,
    /// Times that health was asked for.
    pub asked: u32,
    /// Times that it was answered.
    pub answered: u32,
    /// The longest that it took.
    pub slowest: Duration,
}

/// What the gateway counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Requests answered, refusals among them.
    pub requests: u64,
    /// What was refused, and connections that lost their place.
    pub refused: u64,
}

/// One attack.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub attack: Attack,
    /// Without it, in turns before each of its own.
    pub undisturbed: Look,
    /// Beside it.
    pub disturbed: Look,
    /// What came of it, honest ones' requests among it.
    pub came: Counts,
}

impl Look {
    pub(super) fn add(&mut self, other: Self) {
        self.snapshots.extend(other.snapshots);
        self.pushes.extend(other.pushes);
        self.asked += other.asked;
        self.answered += other.answered;
        self.slowest = self.slowest.max(other.slowest);
    }

    /// The longest time to a snapshot.
    pub fn snapshot(&self) -> Duration {
        self.snapshots.iter().copied().max().unwrap_or_default()
    }

    /// What N of a thousand pushes took no longer than.
    pub fn push(&self, per_mille: usize) -> Duration {
        let mut pushes = self.pushes.clone();
        pushes.sort_unstable();
        let at = (pushes.len() * per_mille / 1_000).min(pushes.len().saturating_sub(1));
        pushes.get(at).copied().unwrap_or_default()
    }
}

impl Counts {
    pub(super) fn add(&mut self, before: &Self, after: &Self) {
        self.connections += after.connections.saturating_sub(before.connections);
        self.requests += after.requests.saturating_sub(before.requests);
        self.refused += after.refused.saturating_sub(before.refused);
    }
}

impl Row {
    /// The heads of all columns.
    pub const HEAD: &str = "| attack | connections | requests | refused | snapshot (ms): undisturbed, beside it | push p50 (ms) | push p99 (ms) | \
                            p99 ratio | pushes | health answered | slowest (ms): undisturbed, beside it |\n\
                            | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

    pub(super) fn new(attack: Attack) -> Self {
        Self { attack, undisturbed: Look::default(), disturbed: Look::default(), came: Counts::default() }
    }

    /// How many times longer the slowest hundredth of pushes took beside the attack.
    pub fn ratio(&self) -> f64 {
        self.disturbed.push(990).as_secs_f64() / self.undisturbed.push(990).as_secs_f64()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attack, undisturbed, disturbed, came } = self;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "| {} | {} | {} | {} | {:.0}, {:.0} | {:.2}, {:.2} | {:.2}, {:.2} | {:.2} | {}, {} | {} of {} | {:.0}, {:.0} |",
            attack.words(),
            came.connections,
            came.requests,
            came.refused,
            ms(undisturbed.snapshot()),
            ms(disturbed.snapshot()),
            ms(undisturbed.push(500)),
            ms(disturbed.push(500)),
            ms(undisturbed.push(990)),
            ms(disturbed.push(990)),
            self.ratio(),
            undisturbed.pushes.len(),
            disturbed.pushes.len(),
            disturbed.answered,
            disturbed.asked,
            ms(undisturbed.slowest),
            ms(disturbed.slowest),
        )
    }
}
