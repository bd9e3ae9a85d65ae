//! Two sites of three servers each, made of `packaging/nats` and of the commands in `docs/operate/share.md`, with certificates that have names alone.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Info;
use clap::Parser;
use spand_share::exchange::{LinkState, StreamFault, StreamState, Topic};
use spand_tests::cluster::{Ports, Servers};
use spand_tests::patience::awaited;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::member::Member;
use crate::packaged::{Known, packaged, replace, with_passwords};

const SITES: [&str; 2] = ["main", "b"];
const EACH: usize = 3;

/// `spand-gateway cert`.
#[derive(Parser)]
struct Cert {
    #[command(subcommand)]
    command: spand_gateway::cert::Command,
}

fn cert(arguments: &[&str]) {
    let arguments = ["cert"].iter().chain(arguments);
    spand_gateway::cert::run(&Cert::try_parse_from(arguments).expect("arguments").command).expect("certificates");
}

/// The line between the sites: a way to each server of the first.
struct Line {
    ways: Vec<std::net::TcpListener>,
    is_whole: watch::Sender<bool>,
}

impl Line {
    fn new() -> Self {
        let way = || std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        Self { ways: (0..EACH).map(|_| way()).collect(), is_whole: watch::Sender::new(true) }
    }

    fn port(&self, way: usize) -> u16 {
        self.ways[way].local_addr().expect("a port").port()
    }

    /// Carries what comes to these ports. Where it is cut, nothing comes and no end is heard.
    fn carry(&self, to: &[u16]) {
        for (way, port) in self.ways.iter().zip(to) {
            let way = way.try_clone().expect("a listener");
            way.set_nonblocking(true).expect("a listener");
            let (way, is_whole) = (TcpListener::from_std(way).expect("a listener"), self.is_whole.subscribe());
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
            tokio::spawn(async move {
                while let Ok((mut near, _)) = way.accept().await {
                    let mut is_whole = is_whole.clone();
                    tokio::spawn(async move {
                        if !is(&is_whole) {
                            return;
                        }
                        let Ok(mut far) = TcpStream::connect(to).await else { return };
                        tokio::select! {
                            _ = copy_bidirectional(&mut near, &mut far) => {}
                            () = becomes(&mut is_whole, false) => {}
                        }
                        becomes(&mut is_whole, true).await;
                    });
                }
            });
        }
    }

    fn set_whole(&self, is_whole: bool) {
        self.is_whole.send_replace(is_whole);
    }
}

fn is(whole: &watch::Receiver<bool>) -> bool {
    *whole.borrow()
}

async fn becomes(whole: &mut watch::Receiver<bool>, wanted: bool) {
    // At the test's end nobody sends any more.
    whole.wait_for(|is| *is == wanted).await.map(drop).ok();
}

/// The commands of the page that make the files of site `b` of the packaged ones, run in `folder`.
fn run_the_page(folder: &Path) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate/share.md");
    let page = fs::read_to_string(page).expect("the page");
    let commands: Vec<&str> = page.lines().map(str::trim).filter(|line| line.starts_with("sed -i ")).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let done = Command::new("sh").args(["-ec", command]).current_dir(folder).status().expect("a shell");
        assert!(done.success(), "{command}");
    }
}

/// The files of a site as an operator has them before names, ports and passwords are written into them.
fn write_files(folder: &Path, site: &str) {
    fs::create_dir(folder).expect("a folder");
    for name in ["server.conf", "users.conf", "stream.json"] {
        fs::write(folder.join(name), packaged(name)).expect("a file");
    }
    if site == "b" {
        run_the_page(folder);
    }
    let users = with_passwords(&read(folder, "users.conf"));
    fs::write(folder.join("users.conf"), users).expect("a file");
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).expect("a file of the site")
}

/// The configuration of a server, with ports and paths of this machine.
fn on_this_machine(number: usize, folder: &Path, ports: &Ports, line: &Line) -> String {
    let (site, place) = (SITES[number / EACH], number % EACH);
    let own = folder.join(site);
    if place == 0 {
        write_files(&own, site);
    }
    let routes = &ports.routes[number - place..][..EACH];
    let mut text = read(&own, "server.conf");
    text = replace(&text, "server_name: nats-1", &format!("server_name: nats-{}", number + 1));
    text = replace(&text, "0.0.0.0:4222", &format!("127.0.0.1:{}", ports.clients[number]));
    text = replace(&text, "0.0.0.0:6222", &format!("127.0.0.1:{}", routes[place]));
    text = replace(
        &text,
        "advertise: \"nats-1.example.net:6222\"",
        &format!("advertise: \"localhost:{}\"", routes[place]),
    );
    for (other, port) in routes.iter().enumerate() {
        text = replace(&text, &format!("nats-{}.example.net:6222", other + 1), &format!("localhost:{port}"));
    }
    text = replace(&text, "/var/lib/nats", &folder.join(format!("store{number}")).display().to_string());
    text = replace(&text, "include \"users.conf\"", &format!("include \"{site}/users.conf\""));
    let leaf = packaged(&format!("leaf-{site}.conf"));
    let leaf = if site == "main" {
        let leaf = replace(&leaf, "$LEAF_PASSWORD", "\"word-leaf\"");
        replace(&leaf, "0.0.0.0:7422", &format!("127.0.0.1:{}", ports.leaves[number]))
    } else {
        (0..EACH).fold(replace(&leaf, "PASSWORD", "word-leaf"), |leaf, way| {
            replace(&leaf, &format!("nats-{}.example.net:7422", way + 1), &format!("localhost:{}", line.port(way)))
        })
    };
    replace(&(text + &leaf), "/etc/nats/", &format!("{}/etc{number}/", folder.display()))
}

/// Both sites, with certificates of `spand-gateway cert`.
fn two_sites(line: &Line) -> Option<(Servers, [Known; 2])> {
    let leaves = Mutex::new(Vec::new());
    let servers = Servers::with_texts(SITES.len() * EACH, |number, folder, ports| {
        ports.leaves[..EACH].clone_into(&mut leaves.lock().expect("it works"));
        on_this_machine(number, folder, ports, line)
    });
    let servers = servers.expect("files")?;
    line.carry(&leaves.into_inner().expect("it works"));
    let ca = servers.folder().join("ca");
    let ca = ca.to_str().expect("text");
    cert(&["init", "--dir", ca]);
    for number in 0..SITES.len() * EACH {
        let name = format!("nats-{}.example.net", number + 1);
        let out = servers.folder().join(format!("etc{number}"));
        // The name by which this machine is reached here is `localhost`; there is no address in it.
        let more =
            ["--server", "--client", "--address", "localhost", "--dir", ca, "--out", out.to_str().expect("text")];
        cert(&[&["issue", &name][..], &more].concat());
        for end in ["pem", "key"] {
            fs::rename(out.join(format!("{name}.{end}")), out.join(format!("server.{end}"))).expect("a certificate");
        }
        fs::copy(Path::new(ca).join("ca.pem"), out.join("ca.pem")).expect("the authority");
    }
    let urls: Vec<String> =
        servers.urls().iter().map(|url| url.replace("nats://127.0.0.1", "tls://localhost")).collect();
    let known = [0, 1].map(|site| Known {
        urls: urls[site * EACH..][..EACH].to_vec(),
        folder: servers.folder().join("etc0"),
        site: SITES[site],
    });
    Some((servers, known))
}

/// Lines of the servers' logs about handshakes that failed.
fn failed_handshakes(servers: &Servers) -> Vec<String> {
    let logs = (0..SITES.len() * EACH).map(|number| read(servers.folder(), &format!("n{number}.log")));
    let lines: Vec<String> = logs.flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.into_iter().filter(|line| line.to_lowercase().contains("handshake error")).collect()
}

/// Writes the users of a site again and has its servers read them.
fn change_users(servers: &mut Servers, site: usize, change: impl FnOnce(&str) -> String) {
    let folder = servers.folder().join(SITES[site]);
    fs::write(folder.join("users.conf"), change(&read(&folder, "users.conf"))).expect("a file");
    for server in &servers.all()[site * EACH..][..EACH] {
        server.reload().expect("a signal");
    }
}

/// The lines of a user in `users.conf`.
fn lines_of(users: &str, gateway: u16) -> String {
    let begin = users.find(&format!("    {{\n      user: gateway-{gateway}\n")).expect("the user");
    let lines = &users[begin..];
    lines[..lines.find("\n    }\n").expect("its end") + "\n    }\n".len()].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sites_know_what_the_other_saw_and_each_goes_on_without_it() {
    let begin = Instant::now();
    let line = Line::new();
    let Some((mut servers, [main, b])) = two_sites(&line) else { return };
    for number in 0..SITES.len() * EACH {
        servers.start_one(number).unwrap();
    }
    let stream = |site: &str| read(&servers.folder().join(site), "stream.json");
    let admin_of_main = main.make_stream(&stream("main")).await;
    b.make_stream(&stream("b")).await;
    // The copy at site `main` comes later.
    let admin = b.make_stream(&packaged("copy-of-main.json")).await;
    let at_start = failed_handshakes(&servers);
    println!("{:?}: both sites stand; failed handshakes so far: {at_start:?}", begin.elapsed());

    let mut one = Member::up(main.gateway(1, 1)).await;
    let mut two = Member::up(b.gateway(2, 2)).await;
    let first_look = Instant::now();
    hear_each_other(&mut one, &mut two).await;
    println!("{:?}: gateways of both sites hear each other", begin.elapsed());

    // The copy has it before the line is cut.
    one.send(Topic::Closed, "before").await;
    two.until(1, Topic::Closed, "before").await;
    copied(&admin, "main", &admin_of_main).await;
    line.set_whole(false);
    // Longer than servers take to notice.
    let silent = Duration::from_secs(10);
    let age = async { while silent_for(&admin).await <= Some(silent) {} };
    awaited("the silence", age).await;

    // A gateway joins with a user on all three servers, and has of the copy what site `main` kept.
    change_users(&mut servers, 1, |users| {
        let second = lines_of(users, 2);
        let third = second.replace("gateway-2", "gateway-3").replace("word-2", "word-3").replace(".2\"", ".3\"");
        let third = third.replace("-2.", "-3.");
        replace(users, &second, &format!("{second}{third}"))
    });
    let mut late = Member::up(b.gateway(3, 3)).await;
    late.until(1, Topic::Closed, "before").await;
    assert_eq!(late.kept("b").await, StreamState { current: 3, replicas: 3, copy: None });
    let copy = late.kept("main").await;
    let lag = copy.copy.expect("a copy's lag");
    assert_eq!((copy.current, copy.replicas, lag.messages), (3, 3, 0));
    assert!(lag.heard.is_some_and(|heard| heard > silent), "{lag:?}");
    two.send(Topic::Closed, "alone").await;
    late.until(2, Topic::Closed, "alone").await;
    println!("{:?}: a gateway joined while site main was away", begin.elapsed());

    // The line is whole again.
    one.send(Topic::Closed, "meanwhile").await;
    line.set_whole(true);
    let healed = Instant::now();
    reach(&one, Topic::Open, &mut two).await;
    println!("{:?}: heard again {:?} after the line was whole", begin.elapsed(), healed.elapsed());
    a_stolen_user_is_removed(&mut servers, &b, &admin, two, &mut late).await;
    println!("{:?}: a stolen user was removed", begin.elapsed());

    // That a copy is missing is reported once gateways of its site are heard.
    let missing = async {
        while one.reported("b") != Some(Err(StreamFault::Missing)) {
            late.send(Topic::Member, "here").await;
            sleep(Duration::from_secs(1)).await;
        }
    };
    awaited("the missing copy is reported", missing).await;
    println!("{:?}: the missing copy was reported, {:?} after the first look", begin.elapsed(), first_look.elapsed());
    main.make_stream(&packaged("copy-of-b.json")).await;
    copied(&admin_of_main, "b", &admin).await;
    Member::up(main.gateway(1, 1)).await.until(2, Topic::Closed, "left 199").await;
    copied(&admin, "main", &admin_of_main).await;
    println!("{:?}: what was kept while the line was cut is copied", begin.elapsed());
    Member::up(b.gateway(3, 3)).await.until(1, Topic::Closed, "meanwhile").await;

    // All servers of a site begin again, with lower numbers than the copy has: it is to be made again.
    (0..EACH).for_each(|number| servers.all()[number].kill().unwrap());
    one.sentence().await;
    (0..EACH).for_each(|number| servers.start_one(number).unwrap());
    one.wait_up().await;
    one.send(Topic::Closed, "again").await;
    reach(&one, Topic::Open, &mut late).await;
    println!("{:?}: site main is back", begin.elapsed());
    admin.delete_stream("spand-main-main").await.unwrap();
    b.make_stream(&packaged("copy-of-main.json")).await;
    copied(&admin, "main", &admin_of_main).await;
    Member::up(b.gateway(3, 3)).await.until(1, Topic::Closed, "again").await;

    let failed = failed_handshakes(&servers);
    println!(
        "{:?}: failed handshakes: {} at the start, {} since",
        begin.elapsed(),
        at_start.len(),
        failed.len() - at_start.len()
    );
    assert_eq!(failed, at_start);
}

/// Every topic for all, both ways.
async fn hear_each_other(one: &mut Member, two: &mut Member) {
    for topic in [Topic::Closed, Topic::Open, Topic::Member] {
        reach(one, topic, two).await;
        reach(two, topic, one).await;
    }
}

/// Sends until the other one hears it: interest crosses a new link within a moment.
async fn reach(from: &Member, topic: Topic, to: &mut Member) {
    let payload = format!("{topic:?} {:?}", Instant::now());
    let heard = async {
        loop {
            from.send(topic, &payload).await;
            let until = Instant::now() + Duration::from_millis(200);
            while let Ok(message) = tokio::time::timeout_at(until, to.next()).await {
                if (message.1, &message.2) == (topic, &payload) {
                    return;
                }
            }
        }
    };
    awaited("the other site", heard).await;
}

/// The stream of a site, or its copy; after a moment.
async fn stream_of(admin: &Context, site: &str) -> Option<Info> {
    sleep(Duration::from_millis(100)).await;
    admin.get_stream(format!("spand-main-{site}")).await.ok().map(|stream| stream.cached_info().clone())
}

/// Since when the copy of site `main` heard nothing of it.
async fn silent_for(admin: &Context) -> Option<Duration> {
    stream_of(admin, "main").await?.mirror?.active
}

/// Waits until the copy of a site's stream has what the stream has now.
async fn copied(admin: &Context, site: &str, of: &Context) {
    let so = async {
        let last = loop {
            if let Some(stream) = stream_of(of, site).await {
                break stream.state.last_sequence;
            }
        };
        assert!(last > 0);
        while stream_of(admin, site).await.is_none_or(|copy| copy.state.last_sequence < last) {}
    };
    awaited("the copy", so).await;
}

/// Who has the password of gateway 2 is disconnected, cannot come back, and what it left hinders nobody who starts.
async fn a_stolen_user_is_removed(
    servers: &mut Servers,
    b: &Known,
    admin: &Context,
    mut two: Member,
    late: &mut Member,
) {
    let (ended, mut is_ended) = watch::channel(false);
    let options = b.client("gateway-2", "word-2").custom_inbox_prefix("_INBOX.spand-main-2");
    let options = options.max_reconnects(1).event_callback(move |event| {
        if matches!(event, async_nats::Event::Disconnected | async_nats::Event::Closed) {
            ended.send_replace(true);
        }
        std::future::ready(())
    });
    let thief = options.connect(&b.urls[0]).await.expect("the packaged user");
    for part in 0..200 {
        thief.publish("spand.main.b.closed.2", format!("left {part}").into()).await.expect("it works");
        thief.publish("$JS.API.CONSUMER.CREATE.spand-main-b", "{}".into()).await.expect("it works");
    }
    late.until(2, Topic::Closed, "left 199").await;
    change_users(servers, 1, |users| replace(users, &lines_of(users, 2), ""));
    // Or nobody is left to tell it: its connection is over.
    drop(awaited("the thief is disconnected", is_ended.wait_for(|is_ended| *is_ended)).await);
    let sentence = two.sentence().await;
    let refused = awaited("an answer", b.client("gateway-2", "word-2").connect(&b.urls[1])).await;
    assert!(refused.is_err());
    let mut retired = two.state.clone();
    let is_refused =
        |state: &LinkState| matches!(state, LinkState::Down(why) if why.contains("refuses user `gateway-2`"));
    awaited("it cannot come back", retired.wait_for(is_refused)).await.expect("it works");
    println!("first {sentence}");
    let stream = admin.get_stream("spand-main-b").await.expect("it works");
    assert_eq!(stream.cached_info().state.consumer_count, 0);
    let begin = Instant::now();
    let mut next = Member::up(b.gateway(3, 3)).await;
    next.until(2, Topic::Closed, "left 199").await;
    println!("a gateway that starts was up and had read all after {:?}", begin.elapsed());
}
