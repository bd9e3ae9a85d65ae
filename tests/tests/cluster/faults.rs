//! Servers that die or stop.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream;
use nix::sys::resource::{UsageWho, getrusage};
use spand_share::exchange::{LinkState, Outgoing, Topic};
use spand_share::nats::NatsConfig;
use spand_tests::cluster::Servers;
use spand_tests::patience::{PATIENCE, awaited};
use tokio::time::{Instant, interval, sleep, timeout};

use crate::member::{Member, config};

/// How often one is written to the stream.
const EVERY: Duration = Duration::from_millis(20);
/// How long before the stream's leader dies, and after.
const BEFORE: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(12);
/// More messages than a stream has that begins again.
const MANY: u32 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_lost_or_is_sent_again_comes_when_the_leader_is_killed() {
    let Some(mut servers) = Servers::start(3, "").unwrap() else { return };
    let of = |gateway| NatsConfig { replicas: 3, ..config(servers.urls(), gateway) };
    let (writer, mut reader) = (Member::up(of(1)).await, Member::up(of(2)).await);

    let started = Instant::now();
    let cpu = processor_seconds();
    let written = tokio::spawn(write(writer));
    let heard = tokio::spawn(async move {
        let (mut heard, mut last, mut gap) = (BTreeSet::new(), Instant::now(), Duration::ZERO);
        while let Ok(Some(message)) = timeout(PATIENCE, reader.inbox.recv()).await {
            if message.payload == b"end" {
                break;
            }
            let number: u32 = String::from_utf8(message.payload).unwrap().parse().unwrap();
            if heard.insert(number) {
                gap = gap.max(last.elapsed());
                last = Instant::now();
            }
        }
        (heard, gap)
    });
    sleep(BEFORE).await;
    let leader = leader(&servers).await;
    servers.named(&leader).expect("a server of ours").kill().unwrap();

    let (written, states) = written.await.unwrap();
    let (heard, gap) = heard.await.unwrap();
    let cpu = (processor_seconds() - cpu) / started.elapsed().as_secs_f64();
    println!(
        "{written} messages written, every {} ms; leader {leader} killed: longest time without a new one {:.1} s; \
         states of the writer: {states:?}; both clients and the test: {:.1} % of a core",
        EVERY.as_millis(),
        gap.as_secs_f64(),
        100.0 * cpu
    );
    let missing: Vec<u32> = (0..written).filter(|number| !heard.contains(number)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
}

/// Writes as the user of an exchange does: numbers in turn, and all of them again whenever it comes up again. How many, and the states.
async fn write(mut member: Member) -> (u32, Vec<LinkState>) {
    let (end, mut every) = (Instant::now() + BEFORE + AFTER, interval(EVERY));
    let (mut written, mut states) = (0, vec![member.state.borrow_and_update().clone()]);
    let closed = |payload: String| Outgoing::to_all(Topic::Closed, payload.into_bytes());
    loop {
        tokio::select! {
            _ = every.tick() => {
                if Instant::now() > end && *states.last().expect("the first") == LinkState::Up {
                    break;
                }
                // Where there is no room it is dropped, and comes when it is up again.
                let _full = member.out.try_send(closed(written.to_string()));
                written += 1;
            }
            _ = member.state.changed() => {
                let state = member.state.borrow_and_update().clone();
                if state == LinkState::Up {
                    for number in 0..written {
                        member.out.send(closed(number.to_string())).await.expect("the exchange runs");
                    }
                }
                states.push(state);
            }
        }
    }
    // As when it is asked for: who was away while nothing was kept did not hear that.
    for number in 0..written {
        member.out.send(closed(number.to_string())).await.expect("the exchange runs");
    }
    member.out.send(closed("end".to_owned())).await.expect("the exchange runs");
    // Sent before this goes.
    sleep(Duration::from_secs(1)).await;
    (written, states)
}

/// The server that leads the stream.
async fn leader(servers: &Servers) -> String {
    let client = async_nats::connect(&servers.urls()[0]).await.expect("a client");
    let stream = jetstream::new(client).get_stream("spand-test-here").await.expect("the stream");
    stream.cached_info().cluster.clone().and_then(|cluster| cluster.leader).expect("a leader")
}

/// Of this process.
fn processor_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("what this process used");
    [usage.user_time(), usage.system_time()].iter().map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_without_a_word_is_noticed() {
    let Some(mut servers) = Servers::start(1, "").unwrap() else { return };
    let mut member = Member::up(config(servers.urls(), 1)).await;
    let mut other = Member::up(config(servers.urls(), 2)).await;
    let stopped = Instant::now();
    servers.all()[0].pause().unwrap();
    // Nothing is sent meanwhile: only silence tells.
    let sentence = member.sentence().await;
    println!("paused; noticed after {:.1} s: {sentence}", stopped.elapsed().as_secs_f64());
    servers.all()[0].resume().unwrap();
    member.wait_up().await;
    other.wait_up().await;
    member.send(Topic::Closed, "after").await;
    other.expect(1, Topic::Closed, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_stream_cannot_keep_reaches_those_who_are_there() {
    let Some(mut servers) = Servers::start(3, "").unwrap() else { return };
    let of = |gateway| NatsConfig { replicas: 3, ..config(servers.urls(), gateway) };
    let (mut writer, mut reader) = (Member::up(of(1)).await, Member::up(of(2)).await);
    writer.send(Topic::Closed, "kept").await;
    reader.expect(1, Topic::Closed, "kept").await;
    // The one that is left can elect no leader.
    for number in [0, 1] {
        servers.all()[number].kill().unwrap();
    }
    let killed = Instant::now();
    // Until both are at the server that is left, what is not kept is lost: each sends again until it is heard.
    let mut number = 0;
    let heard = loop {
        number += 1;
        let _full = writer.out.try_send(Outgoing::to_all(Topic::Closed, number.to_string().into_bytes()));
        if let Ok(Some(message)) = timeout(Duration::from_millis(200), reader.inbox.recv()).await {
            break message;
        }
        assert!(
            killed.elapsed() < PATIENCE,
            "nothing comes: {:?} {:?}",
            *writer.state.borrow(),
            *reader.state.borrow()
        );
    };
    println!("{number} messages, {:.1} s until one came", killed.elapsed().as_secs_f64());
    assert_eq!((heard.gateway.0, heard.topic), (1, Topic::Closed));
    let degraded = writer.state.wait_for(|state| matches!(state, LinkState::Degraded(_)));
    awaited("degraded", degraded).await.expect("the exchange runs");
    for number in [0, 1] {
        servers.start_one(number).unwrap();
    }
    writer.wait_up().await;
    reader.wait_up().await;
    writer.send(Topic::Closed, "again").await;
    loop {
        if reader.next().await == (1, Topic::Closed, "again".to_owned()) {
            break;
        }
    }
}

/// Many messages to a stream that acknowledges none reach who is here, and hold up nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_acknowledges_nothing_holds_up_no_other_message() {
    let Some(mut servers) = Servers::start(3, "").unwrap() else { return };
    // Both at the server that stays, so that no connection is lost; it waits for the others.
    let of = |gateway| NatsConfig { replicas: 3, ..config(servers.urls().split_off(2), gateway) };
    let (writer, mut reader) = (Member::up(of(1)).await, Member::up(of(2)).await);
    for number in [0, 1] {
        servers.all()[number].pause().unwrap();
    }
    let mut state = writer.state.clone();
    let seen = tokio::spawn(async move {
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(LinkState::Degraded(_))) {
            state.changed().await.expect("the exchange runs");
            seen.push(state.borrow_and_update().clone());
        }
        seen
    });
    for number in 0..2 * MANY {
        writer.send(Topic::Closed, &number.to_string()).await;
    }
    writer.send(Topic::Open, "other").await;
    let (mut closed, mut other) = (BTreeSet::new(), false);
    while !other || closed.len() < usize::try_from(2 * MANY).unwrap() {
        match reader.next().await {
            (1, Topic::Open, payload) if payload == "other" => other = true,
            (1, Topic::Closed, payload) => drop(closed.insert(payload)),
            other => panic!("{other:?}"),
        }
    }
    let seen = awaited("degraded", seen).await.expect("a state");
    assert!(matches!(seen.as_slice(), [LinkState::Degraded(_)]), "the connection stands: {seen:?}");
}

/// The stream of servers that all died is there again under its name and age, and counts its messages from one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_after_all_servers_died_is_read() {
    let Some(mut servers) = Servers::start(3, "").unwrap() else { return };
    let of = |gateway| NatsConfig { replicas: 3, ..config(servers.urls(), gateway) };
    let (mut writer, mut reader) = (Member::up(of(1)).await, Member::up(of(2)).await);
    for number in 0..MANY {
        writer.send(Topic::Closed, &number.to_string()).await;
        reader.expect(1, Topic::Closed, &number.to_string()).await;
    }
    for server in servers.all() {
        server.kill().unwrap();
    }
    writer.sentence().await;
    reader.sentence().await;
    for number in 0..3 {
        servers.start_one(number).unwrap();
    }
    writer.wait_up().await;
    writer.send(Topic::Closed, "few").await;
    reader.wait_up().await;
    reader.expect(1, Topic::Closed, "few").await;
}
