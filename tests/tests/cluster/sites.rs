//! The files of `packaging/nats`, with ports and paths of this machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use async_nats::jetstream;
use rcgen::ExtendedKeyUsagePurpose;
use spand_share::exchange::{LinkState, Topic};
use spand_tests::access::{Authority, Wanted};
use spand_tests::cluster::{Ports, Servers};
use spand_tests::patience::awaited;
use tokio::time::{sleep, timeout};

use crate::member::Member;
use crate::packaged::{Known, packaged, replace, with_passwords};

/// The packaged configuration of one of three servers, with the files it names in `folder`.
fn on_this_machine(number: usize, folder: &Path, ports: &Ports) -> String {
    let mut text = packaged("server.conf");
    text = replace(&text, "server_name: nats-1", &format!("server_name: nats-{}", number + 1));
    text = replace(&text, "0.0.0.0:4222", &format!("127.0.0.1:{}", ports.clients[number]));
    text = replace(&text, "0.0.0.0:6222", &format!("127.0.0.1:{}", ports.routes[number]));
    text = replace(
        &text,
        "advertise: \"nats-1.example.net:6222\"",
        &format!("advertise: \"127.0.0.1:{}\"", ports.routes[number]),
    );
    for (other, port) in ports.routes.iter().enumerate() {
        text = replace(&text, &format!("nats-{}.example.net:6222", other + 1), &format!("127.0.0.1:{port}"));
    }
    text = replace(&text, "/etc/nats/", &format!("{}/", folder.display()));
    replace(&text, "/var/lib/nats", &folder.join(format!("store{number}")).display().to_string())
}

fn known(servers: &Servers) -> Known {
    let urls = servers.urls().iter().map(|url| url.replace("nats://", "tls://")).collect();
    Known { urls, folder: servers.folder().to_owned(), site: "main" }
}

/// The three servers of a site as they are packaged.
fn site() -> Result<Option<Servers>> {
    let Some(mut servers) = Servers::with_texts(3, on_this_machine)? else { return Ok(None) };
    let authority = Authority::new("site")?;
    let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let wanted = Wanted { names: &["127.0.0.1"], usages: &usages, ..Wanted::default() };
    let (certificate, key): (PathBuf, PathBuf) = authority.make_wanted(&wanted)?.write(servers.folder(), "made")?;
    fs::rename(certificate, servers.folder().join("server.pem"))?;
    fs::rename(key, servers.folder().join("server.key"))?;
    fs::write(servers.folder().join("ca.pem"), authority.certificate())?;
    fs::write(servers.folder().join("users.conf"), with_passwords(&packaged("users.conf")))?;
    for number in 0..3 {
        servers.start_one(number)?;
    }
    Ok(Some(servers))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_packaged_site_carries_cells_for_its_users_and_no_one_else() {
    let Some(mut servers) = site().unwrap() else { return };
    let known = known(&servers);
    let mut early = Member::join(known.gateway(1, 1));
    let needs = "there is no NATS stream spand-main-main, and the user may not make it";
    let is_named = early.state.wait_for(|state| matches!(state, LinkState::Down(why) if why.contains(needs)));
    awaited("the missing stream is named", is_named).await.expect("the exchange runs");
    drop(early);
    known.make_stream(&packaged("stream.json")).await;
    let one = Member::up(known.gateway(1, 1)).await;
    let mut two = Member::up(known.gateway(2, 2)).await;
    for topic in [Topic::Closed, Topic::Open, Topic::Member] {
        one.send(topic, topic.name()).await;
        loop {
            let (from, of, payload) = two.next().await;
            if of == topic {
                assert_eq!((from, payload.as_str()), (1, topic.name()));
                break;
            }
        }
    }
    // Who writes under another's number is named, and nothing of it arrives.
    let mut wrong = Member::join(known.gateway(1, 2));
    let sentence = wrong.sentence().await;
    let rights = ["may not publish to spand.main.main.", "may not subscribe to spand.main.*.host-1.*"];
    assert!(rights.iter().any(|right| sentence.contains(right)), "{sentence}");
    assert!(!matches!(*wrong.state.borrow(), LinkState::Up));
    // Two of three are a majority.
    servers.all()[0].kill().unwrap();
    let mut one = one;
    one.wait_up().await;
    two.wait_up().await;
    let arrives = async {
        loop {
            one.send(Topic::Closed, "after").await;
            if let Ok((_, _, payload)) = timeout(Duration::from_millis(200), two.next()).await
                && payload == "after"
            {
                return;
            }
        }
    };
    awaited("two of three servers carry on", arrives).await;
}

/// What one has who has the password of gateway 2: what it tries is refused, or harms nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_password_reaches_nothing_of_another_gateway() {
    let Some(servers) = site().unwrap() else { return };
    let known = known(&servers);
    let admin = known.make_stream(&packaged("stream.json")).await;
    let mut one = Member::up(known.gateway(1, 1)).await;
    let refused = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&refused);
    let options = known.client("gateway-2", "word-2").custom_inbox_prefix("_INBOX.spand-main-2");
    let options = options.event_callback(move |event| {
        if let async_nats::Event::ServerError(error) = event {
            seen.lock().unwrap().insert(error.to_string().to_lowercase());
        }
        std::future::ready(())
    });
    let thief = options.connect(&servers.urls()[0]).await.expect("the packaged user");
    let listens =
        ["_INBOX.>", "_INBOX.spand-main-1.>", "spand.main.*.host-1.*", "spand.main.*.again-1.*", "spand.main.>", ">"];
    for subject in listens {
        drop(thief.subscribe(subject).await.unwrap());
    }
    let stream = "spand-main-main";
    let writes = [
        "spand.main.main.closed.1".to_owned(),
        "spand.main.main.host-1.1".to_owned(),
        format!("$JS.API.CONSUMER.CREATE.{stream}"),
        format!("$JS.API.CONSUMER.CREATE.{stream}.x.spand.main.main.closed.2"),
        format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.x"),
        format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.x"),
        format!("$JS.API.CONSUMER.DELETE.{stream}.x"),
        format!("$JS.API.STREAM.CREATE.{stream}"),
        format!("$JS.API.STREAM.UPDATE.{stream}"),
        format!("$JS.API.STREAM.PURGE.{stream}"),
        format!("$JS.API.STREAM.DELETE.{stream}"),
        format!("$JS.API.STREAM.MSG.DELETE.{stream}"),
    ];
    for subject in &writes {
        thief.publish(subject.clone(), "{}".into()).await.unwrap();
    }
    let all = async {
        let is_refused = |subject: &str| {
            let subject = format!("\"{}\"", subject.to_lowercase());
            refused
                .lock()
                .unwrap()
                .iter()
                .any(|error| error.contains("permissions violation") && error.contains(&subject))
        };
        while !listens.iter().copied().chain(writes.iter().map(String::as_str)).all(is_refused) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    awaited("all of it is refused", all).await;

    // The servers answer whatever subject is named, here one of a gateway that the thief is not: with headers, so that nobody takes it.
    let kept = jetstream::new(thief.clone())
        .publish("spand.main.main.closed.2", "forged".into())
        .await
        .unwrap()
        .await
        .unwrap();
    one.expect(2, Topic::Closed, "forged").await;
    let ask = serde_json::json!({ "seq": kept.sequence }).to_string();
    let asked = format!("$JS.API.DIRECT.GET.{stream}");
    for topic in ["closed", "open", "member", "host-1", "again-1"] {
        thief
            .publish_with_reply(asked.clone(), format!("spand.main.main.{topic}.3"), ask.clone().into())
            .await
            .unwrap();
    }
    // And answers that are none of a stored message.
    thief.publish_with_reply("$JS.API.STREAM.NAMES", "spand.main.main.closed.2", "".into()).await.unwrap();
    thief.publish("spand.main.main.open.2", "end".into()).await.unwrap();
    loop {
        let (from, topic, payload) = one.next().await;
        assert_eq!(from, 2, "{topic:?} {payload}");
        if payload == "end" {
            break;
        }
        assert!(payload.starts_with('{'), "{payload}");
    }
    let consumers = admin.get_stream(stream).await.unwrap().cached_info().state.consumer_count;
    assert_eq!(consumers, 0);
    // Who comes now reads and hears as before.
    drop(one);
    Member::up(known.gateway(1, 1)).await.expect(2, Topic::Closed, "forged").await;
}
