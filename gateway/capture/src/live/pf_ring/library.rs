//! The vendor's library: loaded while running, so that nothing is linked to it and a host without it loses only this
//! backend.
//!
//! Names, types and return values are those of `pfring.h` and `linux/pf_ring.h` (PF_RING 8.9). A library of another major
//! version is refused before it is given a structure, and what it fills has room behind it for fields that a later one of the
//! same major version may add. Its zero-copy reads are the only ones used: with a buffer of the caller's the library's `pcap:`
//! module copies the packet and then answers that there was none.
//!
//! Packets lie in memory that kernel or adapter may write again at any time. Nothing borrows it: it is copied, each byte read
//! once, and only the copy is looked at.

#![expect(unsafe_code, reason = "a C library is called")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ops::Range;
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use nix::errno::Errno;

/// `pfring_open()` flags.
pub(super) const PROMISC: u32 = 1 << 3;
/// Stamp packets also where zero copy would leave that out.
pub(super) const TIMESTAMP: u32 = 1 << 4;
/// Do not take packets apart.
pub(super) const DO_NOT_PARSE: u32 = 1 << 9;
/// Hand over many packets at a time, which few adapters can.
pub(super) const CHUNK_MODE: u32 = 1 << 11;

/// The version whose structures are known (`RING_VERSION_NUM` shifted by two bytes).
const MAJOR_VERSION: u32 = 8;

/// What is not offered (`PF_RING_ERROR_NOT_SUPPORTED`).
pub(super) const NOT_SUPPORTED: c_int = -7;

/// `struct pfring_pkthdr` of a 64-bit machine, as far as it is read. The first three fields are libpcap's header.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct PacketHeader {
    ts: libc::timeval,
    caplen: u32,
    len: u32,
    timestamp_ns: u64,
    unread: [u8; 177],
}

/// `pfring_stat`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Statistics {
    /// Packets read.
    pub(super) recv: u64,
    /// Packets dropped because the ring was full.
    pub(super) drop: u64,
    shunt: u64,
}

/// `pfring_chunk_info`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct ChunkInfo {
    length: u32,
    kind: c_uint,
}

/// A structure that the library fills, and room for what it may write behind it.
#[repr(C)]
struct Filled<T> {
    value: T,
    room: [u8; 512],
}

impl<T> Filled<T> {
    fn new(value: T) -> Self {
        Self { value, room: [0; 512] }
    }

    /// Where the library may write.
    fn place(&mut self) -> *mut T {
        (&raw mut *self).cast()
    }
}

const _: () = {
    assert!(offset_of!(Filled<PacketHeader>, value) == 0 && offset_of!(Filled<PacketHeader>, room) == 209);
    assert!(size_of::<PacketHeader>() == 209, "struct pfring_pkthdr");
    assert!(offset_of!(PacketHeader, caplen) == 16 && offset_of!(PacketHeader, timestamp_ns) == 24);
    assert!(size_of::<Statistics>() == 24, "pfring_stat");
    assert!(size_of::<ChunkInfo>() == 8, "pfring_chunk_info");
};

type Ring = *mut c_void;

/// The functions that are used; the library stays loaded as long as they are there.
#[derive(Debug)]
pub(super) struct Library {
    open: unsafe extern "C" fn(*const c_char, u32, u32) -> Ring,
    close: unsafe extern "C" fn(Ring),
    enable_ring: unsafe extern "C" fn(Ring) -> c_int,
    set_cluster: unsafe extern "C" fn(Ring, c_uint, c_uint) -> c_int,
    set_bpf_filter: unsafe extern "C" fn(Ring, *const c_char) -> c_int,
    set_application_name: unsafe extern "C" fn(Ring, *mut c_char) -> c_int,
    recv: unsafe extern "C" fn(Ring, *mut *mut u8, c_uint, *mut PacketHeader, u8) -> c_int,
    recv_chunk: unsafe extern "C" fn(Ring, *mut *mut c_void, *mut ChunkInfo, u8) -> c_int,
    poll: unsafe extern "C" fn(Ring, c_uint) -> c_int,
    stats: unsafe extern "C" fn(Ring, *mut Statistics) -> c_int,
    version: unsafe extern "C" fn(*mut u32),
    _loaded: libloading::Library,
}

impl Library {
    /// Loads the library, finds its functions and asks for its version.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        let library = Self::find(path).map_err(|error| error.to_string())?;
        let version = library.version();
        let [major, minor, patch] = [version >> 16, version >> 8 & 0xff, version & 0xff];
        if major != MAJOR_VERSION {
            return Err(format!("it is PF_RING {major}.{minor}.{patch}; versions {MAJOR_VERSION}.x are supported"));
        }
        Ok(library)
    }

    fn find(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: its initialisers run. The operator names the library; the default name is the vendor's.
        let loaded = unsafe { libloading::Library::new(path) }?;
        // SAFETY: the types are those of the vendor's header.
        unsafe {
            Ok(Self {
                open: *loaded.get(b"pfring_open\0")?,
                close: *loaded.get(b"pfring_close\0")?,
                enable_ring: *loaded.get(b"pfring_enable_ring\0")?,
                set_cluster: *loaded.get(b"pfring_set_cluster\0")?,
                set_bpf_filter: *loaded.get(b"pfring_set_bpf_filter\0")?,
                set_application_name: *loaded.get(b"pfring_set_application_name\0")?,
                recv: *loaded.get(b"pfring_recv\0")?,
                recv_chunk: *loaded.get(b"pfring_recv_chunk\0")?,
                poll: *loaded.get(b"pfring_poll\0")?,
                stats: *loaded.get(b"pfring_stats\0")?,
                version: *loaded.get(b"pfring_version_noring\0")?,
                _loaded: loaded,
            })
        }
    }

    /// The version that the library was built as: 8.9.1 is 0x080901.
    fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the pointer is to a variable of the type asked for, in every version that has the function.
        unsafe { (self.version)(&raw mut version) };
        version
    }
}

/// Copies memory that others may write at the same time, each byte read once: a torn packet at worst, and never one that
/// changes after it was looked at.
///
/// # Safety
///
/// From `from` on `length` bytes must be readable.
#[expect(clippy::cast_ptr_alignment, reason = "words are read where they are aligned")]
unsafe fn copy_shared(from: *const u8, length: usize, into: &mut Vec<u8>) {
    const WORD: usize = size_of::<u64>();
    into.clear();
    into.reserve(length);
    let words_at = from.align_offset(WORD).min(length);
    let bytes_at = words_at + (length - words_at) / WORD * WORD;
    let byte = |at: usize| {
        // SAFETY: `at` is below `length`.
        unsafe { from.add(at).read_volatile() }
    };
    into.extend((0..words_at).map(byte));
    for at in (words_at..bytes_at).step_by(WORD) {
        // SAFETY: a whole word lies before `bytes_at`, which is at most `length`, and it is aligned.
        let word = unsafe { from.add(at).cast::<u64>().read_volatile() };
        into.extend_from_slice(&word.to_ne_bytes());
    }
    into.extend((bytes_at..length).map(byte));
}

/// A device opened by the library. It is used by one thread at a time (`&mut`), which is what the library asks for without
/// its re-entrant mode.
#[derive(Debug)]
pub(super) struct Device {
    ring: NonNull<c_void>,
    /// The chunk last received: where it lies, and how long it is.
    chunk: Option<(NonNull<u8>, usize)>,
    library: Library,
}

// SAFETY: the library binds nothing to the thread that opened a device.
unsafe impl Send for Device {}

/// A packet's numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Received {
    /// Nanoseconds since 1970, 0 where the library gives no time.
    pub(super) time_ns: u64,
    /// Length on the wire.
    pub(super) wire_len: u32,
}

impl Device {
    /// Opens a device. Without one: what `errno` says, and the library back.
    pub(super) fn open(library: Library, name: &CStr, caplen: u32, flags: u32) -> Result<Self, (Errno, Library)> {
        Errno::clear();
        // SAFETY: the name ends with a zero and is copied.
        let ring = unsafe { (library.open)(name.as_ptr(), caplen, flags) };
        let error = Errno::last();
        match NonNull::new(ring) {
            Some(ring) => Ok(Self { ring, chunk: None, library }),
            None => Err((error, library)),
        }
    }

    /// Closes the device and gives the library back, to open it otherwise.
    pub(super) fn close(self) -> Library {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: an open device, closed once: `this` is not dropped.
        unsafe { (this.library.close)(this.ring.as_ptr()) };
        // SAFETY: `this` is neither used nor dropped after it.
        unsafe { std::ptr::read(&raw const this.library) }
    }

    /// Begins to receive.
    pub(super) fn enable(&mut self) -> c_int {
        // SAFETY: an open device.
        unsafe { (self.library.enable_ring)(self.ring.as_ptr()) }
    }

    /// Shares the packets with the other members of a cluster; `kind` is a `cluster_type`.
    pub(super) fn set_cluster(&mut self, id: u16, kind: c_uint) -> c_int {
        // SAFETY: an open device; the rest are numbers.
        unsafe { (self.library.set_cluster)(self.ring.as_ptr(), id.into(), kind) }
    }

    /// Filters packets by an expression in the language of pcap-filter(7).
    pub(super) fn set_filter(&mut self, expression: &CStr) -> c_int {
        // SAFETY: an open device; the expression ends with a zero and is compiled at once.
        unsafe { (self.library.set_bpf_filter)(self.ring.as_ptr(), expression.as_ptr()) }
    }

    /// The name under which the kernel module lists the ring. Not every module has one.
    pub(super) fn name_application(&mut self) {
        let mut name = *b"spand\0";
        // SAFETY: an open device; the name ends with a zero and is copied.
        unsafe { (self.library.set_application_name)(self.ring.as_ptr(), name.as_mut_ptr().cast()) };
    }

    /// Receives a packet into `into`, at most `limit` bytes of it. Its bytes are copied: the library has given the slot back
    /// by then, and the kernel may fill it again. `Err` is what the library answered where that is not a packet.
    pub(super) fn receive(&mut self, into: &mut Vec<u8>, limit: usize, wait: bool) -> Result<Received, c_int> {
        let mut data: *mut u8 = null_mut();
        let mut header = Filled::new(PacketHeader {
            ts: libc::timeval { tv_sec: 0, tv_usec: 0 },
            caplen: 0,
            len: 0,
            timestamp_ns: 0,
            unread: [0; 177],
        });
        // SAFETY: an open device; the pointers are to variables of the types asked for, `data` is set to the packet's
        // place because no length is given.
        let answer =
            unsafe { (self.library.recv)(self.ring.as_ptr(), &raw mut data, 0, header.place(), u8::from(wait)) };
        let header = header.value;
        if answer <= 0 || data.is_null() {
            return Err(answer.min(0));
        }
        let length = usize::try_from(header.caplen).unwrap_or(usize::MAX).min(limit);
        // SAFETY: the library says that `caplen` bytes lie there, until the next call.
        unsafe { copy_shared(data, length, into) };
        let ts = header.ts;
        let seconds = u64::try_from(ts.tv_sec).unwrap_or(0);
        let micros = u64::try_from(ts.tv_usec).unwrap_or(0);
        let time_ns = match header.timestamp_ns {
            0 => seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000)),
            nanos => nanos,
        };
        Ok(Received { time_ns, wire_len: header.len })
    }

    /// Receives a chunk of packets, which replaces the one before. `Ok` is its kind (`pfring_chunk_type`), `Err` what the
    /// library answered where that is not a chunk.
    pub(super) fn receive_chunk(&mut self) -> Result<c_uint, c_int> {
        self.chunk = None;
        let mut place: *mut c_void = null_mut();
        let mut info = Filled::new(ChunkInfo::default());
        // SAFETY: an open device; the pointers are to variables of the types asked for.
        let answer = unsafe { (self.library.recv_chunk)(self.ring.as_ptr(), &raw mut place, info.place(), 0) };
        let info = info.value;
        match NonNull::new(place.cast::<u8>()) {
            Some(place) if answer > 0 => {
                self.chunk = Some((place, usize::try_from(info.length).unwrap_or(usize::MAX)));
                Ok(info.kind)
            }
            _ => Err(answer.min(0)),
        }
    }

    /// Length of the chunk last received.
    pub(super) fn chunk_len(&self) -> usize {
        self.chunk.map_or(0, |(_, length)| length)
    }

    /// Copies a part of the chunk last received; false where it is not all in there.
    pub(super) fn copy_of_chunk(&self, part: Range<usize>, into: &mut Vec<u8>) -> bool {
        let Some((place, length)) = self.chunk else { return false };
        if part.start > part.end || part.end > length {
            return false;
        }
        // SAFETY: the library says that `length` bytes lie there, until the next chunk is asked for or the device is closed;
        // both take `self` mutably.
        unsafe { copy_shared(place.as_ptr().add(part.start), part.len(), into) };
        true
    }

    /// Waits for packets. The `pcap:` module counts `duration` in seconds, the others in milliseconds.
    pub(super) fn poll(&mut self, duration: u32) -> c_int {
        // SAFETY: an open device.
        unsafe { (self.library.poll)(self.ring.as_ptr(), duration) }
    }

    /// Counters since the device was opened. Not every module counts.
    pub(super) fn statistics(&self) -> Option<Statistics> {
        let mut read = Filled::new(Statistics::default());
        // SAFETY: an open device, and a variable of the type asked for.
        let answer = unsafe { (self.library.stats)(self.ring.as_ptr(), read.place()) };
        (answer == 0).then_some(read.value)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: an open device, closed once; nothing borrows from it any more.
        unsafe { (self.library.close)(self.ring.as_ptr()) };
    }
}
