//! What is sent is heard, by everybody else and once.

use std::time::Duration;

use spand_share::exchange::Topic;
use spand_share::nats::NatsConfig;
use spand_tests::cluster::Servers;

use crate::member::{Member, config};

const A_WHILE: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_hear_each_other_and_who_comes_late_hears_what_is_kept() {
    let Some(servers) = Servers::start(1, "").unwrap() else { return };
    let mut one = Member::up(config(servers.urls(), 1)).await;
    let mut other = Member::up(config(servers.urls(), 2)).await;
    for topic in [Topic::Open, Topic::Member, Topic::Closed] {
        one.send(topic, topic.name()).await;
        other.expect(1, topic, topic.name()).await;
        other.send(topic, topic.name()).await;
        one.expect(2, topic, topic.name()).await;
    }
    let mut late = Member::up(config(servers.urls(), 3)).await;
    for gateway in [1, 2] {
        late.expect(gateway, Topic::Closed, "closed").await;
    }
    for member in [&mut one, &mut other, &mut late] {
        member.nothing(A_WHILE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_of_another_site_are_heard_and_those_of_another_cluster_are_not() {
    let Some(servers) = Servers::start(1, "").unwrap() else { return };
    let named = |cluster: &str, site: &str, gateway| {
        let (cluster, site) = (cluster.to_owned(), site.to_owned());
        NatsConfig { cluster, site, ..config(servers.urls(), gateway) }
    };
    // The stream of the third begins as those of the cluster `test` do.
    let there = Member::up(named("test", "there", 1)).await;
    let stranger = Member::up(named("test-x", "there", 2)).await;
    let mut here = Member::up(named("test", "here", 3)).await;
    for topic in [Topic::Closed, Topic::Open, Topic::Member] {
        stranger.send(topic, "of a stranger").await;
        there.send(topic, topic.name()).await;
        here.expect(1, topic, topic.name()).await;
    }
    here.nothing(A_WHILE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_down_while_the_server_is_away_and_up_when_it_comes() {
    let Some(mut servers) = Servers::configure(1, "jetstream { store_dir: \"@STORE@\" }").unwrap() else { return };
    let mut member = Member::join(config(servers.urls(), 1));
    let sentence = member.sentence().await;
    assert!(sentence.starts_with("no NATS server listens at 127.0.0.1:"), "{sentence}");
    servers.start_one(0).unwrap();
    member.wait_up().await;

    // All that a stream in memory held is gone with its server: numbers begin again.
    let mut other = Member::up(config(servers.urls(), 2)).await;
    for number in 0..5 {
        member.send(Topic::Closed, &format!("before {number}")).await;
        other.expect(1, Topic::Closed, &format!("before {number}")).await;
    }
    servers.all()[0].kill().unwrap();
    let sentence = member.sentence().await;
    assert!(sentence.contains("127.0.0.1:"), "{sentence}");
    servers.start_one(0).unwrap();
    member.wait_up().await;
    member.send(Topic::Closed, "after").await;
    other.expect(1, Topic::Closed, "after").await;
}
