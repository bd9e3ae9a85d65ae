//! The agent's programs beside another's on the same sockets: what the other asked for goes on.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use spand_agent::Clock;
use spand_agent::apply::bpf::BpfApplier;
use spand_agent::apply::{Applier, Decided, Desired, DesiredStarts, Inputs, Skipped, StartReason};
use spand_agent::config::{ApplyMethod, Config, Variant};
use spand_needs::{Need, needs};
use spand_proto::start::{Mode, Shape};
use spand_proto::units::{Micros, Segments};
use spand_tests::lab::namespace::{Cgroup, Namespace};
use spand_tests::patience::PATIENCE;

static OTHER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/other.bpf.o"));

const SEGMENT_BYTES: usize = 1_448;
/// Kinds of callbacks in the other's table.
const ROUND_TRIPS: u32 = 0;
const ENDS: u32 = 1;

#[test]
fn callbacks_that_another_program_asked_for_go_on_after_the_first_flight_and_the_report() {
    if !needs(Need::Root) {
        return;
    }
    let host = Namespace::create("beside").unwrap();
    let cgroup = Cgroup::make("beside").unwrap();
    host.ip(&[
        "link set lo mtu 1500",
        "route replace local 127.0.0.1 dev lo table local src 127.1.0.1",
        "route replace local 127.0.0.0/8 dev lo table local src 127.0.0.1 congctl cubic",
    ])
    .unwrap();
    host.enter(|| {
        let other = ObjectBuilder::default().open_memory(OTHER)?.load()?;
        let group = std::fs::File::open(cgroup.folder())?;
        let program = other.progs_mut().find(|program| program.name() == "beside").unwrap();
        let _attached = program.attach_cgroup(group.as_raw_fd())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let applier = advised(&cgroup).await;
            let address = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8_000));
            let listener = cgroup.enter(|| Ok(TcpListener::bind(address)?)).unwrap();
            let mut client = TcpStream::connect(address).unwrap();
            let mut server = listener.accept().unwrap().0;
            assert_eq!(applier.counts().get("started"), Some(&1), "{:?}", applier.counts());
            // More than the first flight holds.
            transfer(&mut server, &mut client, 80 * SEGMENT_BYTES);
            let after_the_flight = came(&other, ROUND_TRIPS);
            assert!(after_the_flight > 0);
            transfer(&mut server, &mut client, 80 * SEGMENT_BYTES);
            assert!(came(&other, ROUND_TRIPS) > after_the_flight, "of round trips after the flight");
            drop(server);
            drop(client);
            let patience = Instant::now() + PATIENCE;
            while came(&other, ENDS) == 0 && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(100));
            }
            assert_eq!(came(&other, ENDS), 1, "of the end, after the connection was reported");
        });
        Ok(())
    })
    .unwrap();
}

/// An agent that starts connections to the clients by socket options, which see acknowledgements by callbacks.
async fn advised(cgroup: &Cgroup) -> BpfApplier {
    let mut config = Config { apply: ApplyMethod::Bpf, mode: Mode::Paper, ..Config::default() };
    "beside".clone_into(&mut config.bpf.name);
    config.bpf.variant = Variant::Sockops;
    config.bpf.control_fraction = 0.0;
    cgroup.folder().clone_into(&mut config.bpf.cgroup);
    let clock = Clock::start();
    let mut applier = BpfApplier::start(&config, &config.policy(), clock).unwrap();
    let now = clock.now();
    let half_bytes = 2 * 40 * SEGMENT_BYTES as u64;
    let inputs = Inputs {
        share_half_bytes: half_bytes,
        pipe_half_bytes: half_bytes,
        bdp_bytes: 0,
        threshold_bytes: 0,
        rtt: Some(Micros(1_000)),
        proven: false,
        backed: true,
        lossless: false,
        cap: None,
        lease: None,
        shape: Shape::Paced,
        opening_half_bytes: 0,
        losses: None,
        overflow_bytes: 0,
    };
    let reason = StartReason { mode: Mode::Paper, share: Segments(40), clipped_by: None };
    let expires = now.after(Micros::from_secs(600));
    let wanted = Desired { window: Segments(40), reason, expires, announced: None, inputs };
    let desired = DesiredStarts::from([("127.1.0.0/24".parse().unwrap(), wanted)]);
    applier.reconcile(&Decided { desired: &desired, skipped: &Skipped::new(), touched: None }, now).await;
    applier
}

fn came(other: &Object, kind: u32) -> u64 {
    let table = other.maps().find(|map| map.name() == "came").unwrap();
    let number = table.lookup(&kind.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    u64::from_ne_bytes(number.try_into().unwrap())
}

/// Sends so much and waits until the other end has read it, and a little for the last acknowledgement.
fn transfer(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    let mut read = vec![0; bytes];
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![7; bytes]).unwrap());
        to.read_exact(&mut read).unwrap();
    });
    std::thread::sleep(Duration::from_millis(50));
}
