//! Seeds netem's random losses by netlink. Linux takes a seed since 6.6; older iproute2 has no option for it.

use std::io::IoSlice;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, sendmsg, socket};

// include/uapi/linux/rtnetlink.h and pkt_sched.h
const RTM_NEWQDISC: u16 = 36;
const REQUEST_WITH_ANSWER: u16 = 0x5;
const NLMSG_ERROR: u16 = 2;
const ROOT: u32 = u32::MAX;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_PRNG_SEED: u16 = 14;

/// Gives the netem `1:` at the root of `device`, in the calling thread's namespace, random losses by `seed`. A kernel that has no seeds
/// ignores it.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn set(device: &str, delay: Duration, limit: u32, loss: f64, seed: u64) -> Result<()> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a chance below 1")]
    let chance = (loss * f64::from(u32::MAX)) as u32;
    // Latency in ticks, limit, loss, gap, duplicates, jitter.
    let mut options: Vec<u8> = [0, limit, chance, 0, 0, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    options.extend(attribute(TCA_NETEM_LATENCY64, &i64::try_from(delay.as_nanos())?.to_ne_bytes())?);
    options.extend(attribute(TCA_NETEM_PRNG_SEED, &seed.to_ne_bytes())?);
    // Family, device, handle, parent.
    let index = if_nametoindex(device)?;
    let mut message: Vec<u8> = [0, index, 0x1_0000, ROOT, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    message.extend(attribute(TCA_KIND, b"netem\0")?);
    message.extend(attribute(TCA_OPTIONS, &options)?);
    let length = u32::try_from(message.len() + 16)?;
    let mut header = length.to_ne_bytes().to_vec();
    header.extend([RTM_NEWQDISC, REQUEST_WITH_ANSWER].iter().flat_map(|half| half.to_ne_bytes()));
    header.extend([0; 8]);

    let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).context("cannot ask the kernel")?;
    let parts = [IoSlice::new(&header), IoSlice::new(&message)];
    sendmsg::<()>(socket.as_raw_fd(), &parts, &[], MsgFlags::empty(), None).context("cannot seed netem")?;
    let mut answer = [0; 4_096];
    recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let [.., kind, kind_high] = *answer.first_chunk::<6>().context("an answer")?;
    ensure!(u16::from_ne_bytes([kind, kind_high]) == NLMSG_ERROR, "the kernel answered something else");
    let error = answer.get(16..20).and_then(|error| error.first_chunk()).copied().map_or(0, i32::from_ne_bytes);
    ensure!(error == 0, "the kernel does not seed netem: {}", Errno::from_raw(-error));
    Ok(())
}

fn attribute(kind: u16, value: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = u16::try_from(value.len() + 4)?.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Ok(bytes)
}
