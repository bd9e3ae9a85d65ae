// SPDX-License-Identifier: MIT OR Apache-2.0
// What agent and programs share, and what the programs remember of a connection. `layout.rs` holds the same shapes.

#pragma once

#include "kernel.h"
#include "start.h"
#include "train.h"

#define NAME_LENGTH 16 // TCP_CA_NAME_MAX

// Everything that holds for all connections, written by the agent at its start, and again where advice is paused or resumed.
struct settings {
	struct policy policy;
	u64 arm_seed;
	u64 ticks_per_s; // the kernel's HZ
	u32 control_limit; // a drawn number below this is in the control group
	u32 variant;	   // enum variant
	u32 write_option;  // whether windows are sent in a TCP option
	u32 initial_timeout; // whether the first timeout comes from the estimate
	// The names of our congestion controls: another agent on this machine has others.
	char on_cubic[NAME_LENGTH];
	char on_reno[NAME_LENGTH];
	char at_start[NAME_LENGTH];
	char on_bbr[NAME_LENGTH]; // empty: connections on BBR get a window alone
	u32 pauses; // pauses and their ends so far: odd while advice is paused
	u32 check;  // whether acknowledgements correct a start on CUBIC or Reno
	u64 namespace; // cookie of the one network namespace whose sockets are looked at; 0: those of all
};

// How a start reaches a socket.
enum variant {
	VARIANT_STAY = 0,     // a congestion control of ours, which starts again after idle
	VARIANT_HAND_OVER = 1, // ours for the start only, then the host's own
	VARIANT_SOCKOPS = 2,  // no congestion control of ours
};

// The bits that are matched count from the family's first: a network of one family covers none of the other. Addresses are IPv6 or
// IPv4-mapped, as sockets have them; mapped ones are AF_INET, also on a socket of AF_INET6 (keyed_by).
struct prefix {
	u32 bits;
	u32 family;
	u8 address[16];
};

#define PREFIX_BITS (32 + 128)

struct service {
	u8 address[16];
	u16 port;
	u16 unused;
};

// Segments above the default in flight in a network. Those not released expire with their half of the window.
struct budget {
	struct bpf_spin_lock lock;
	u32 now;	 // granted since `turned_ns`
	u32 before;	 // granted in the half before
	u16 losses;	 // advised first flights in a row that lost more than half, as far as they count for the whole network
	u16 losses_of_one; // those in a row of the client that lost last
	u64 turned_ns;
	u64 lost_ns;	 // when the last loss was
	u64 lost_by;	 // and which client's (client_of)
	u64 claimed_ns;	 // until then one connection may jump by Careful Resume, and no other one
	u64 no_jump_ns;	 // until then none may: one had to retreat
	u32 turns;	 // halves that have gone by
	u32 era;	 // of the network that has the place: places are given again, eras are not
};

// What becomes of connections, counted by reason.
enum count {
	COUNT_STARTED,
	COUNT_RESTARTED,
	COUNT_CONTROL,
	COUNT_NO_ESTIMATE,
	COUNT_EXPIRED,
	COUNT_REFUSED,		 // by the network's own reason, decided outside
	COUNT_NO_RTT,
	COUNT_RTT_MISMATCH,
	COUNT_RETREATED,
	COUNT_MPTCP,
	COUNT_OWN_CONGESTION_CONTROL,
	COUNT_RETRANSMITTED_SYN,
	COUNT_OTHER_CONGESTION_CONTROL, // the host's default is none that a start of ours is built on
	COUNT_NOT_SET,			// the kernel refused the change
	COUNT_NO_ROOM,
	COUNT_KEPT_WINDOW, // idle, but the host keeps windows over idle times
	COUNT_EVENT_LOST,
	COUNT_CLIPPED_PEER,
	COUNT_CLIPPED_BUDGET,
	COUNT_STATED_SIZE,
	COUNT_FIRST_FLIGHT_LOSS,
	COUNT_RECONNECTED, // a socket that was connected before
	COUNT_PAUSED,	   // advice is paused
	// Connections to a known network that are not MPTCP, whatever becomes of them.
	COUNT_SEEN_ACCEPTED,
	COUNT_SEEN_OPENED,
	COUNT_NO_OPENING,   // the shape needs what the senders under way say, and nothing is known of them
	COUNT_LOSS_OVERDUE, // the times of losses give no window
	COUNT_OTHER_NAMESPACE, // connections of other network namespaces, of which nothing else is counted
	COUNT_TOO_HIGH,	       // the acknowledgements of a start on CUBIC or Reno showed less than its share
	COUNT_TOO_LOW,	       // or more
	COUNT_BBR_SEEDED,      // starts on BBR that it goes on from (bbr.h)
	COUNT_BBR_TOO_HIGH,    // the acknowledgements of one showed less than its share
	COUNT_BBR_TOO_LOW,     // or more
	COUNT_BBR_HANDED_OVER, // connections that went on with the kernel's own BBR
	// Connections that entered a phase of Careful Resume, and why others did not jump.
	COUNT_RESUME_RECONNAISSANCE,
	COUNT_RESUME_UNVALIDATED,
	COUNT_RESUME_VALIDATING,
	COUNT_RESUME_SAFE_RETREAT,
	COUNT_RESUME_RTT_MISMATCH,
	COUNT_RESUME_IN_USE,  // did not jump: another connection has the claim, or one retreated
	COUNT_RESUME_NO_GAIN, // the jump is no larger than the window
	COUNT_OF_COUNTS,
};

enum arm { ARM_NONE = 0, ARM_ADVISED = 1, ARM_CONTROL = 2 };

enum phase {
	PHASE_PLAIN = 0,   // nothing of ours will happen to it
	PHASE_WAITING = 1, // the first data has not left
	PHASE_FLIGHT = 2,  // no flight as large as what was granted was acknowledged
	PHASE_OPEN = 3,
};

// Whether a connection measures its own threshold (measure.h).
enum measures { MEASURES_NOT = 0, MEASURES_FIRST = 1, MEASURES_ON = 2 };

// Whether half of the first threshold is then sent paced.
enum half { HALF_NOT = 0, HALF_WAITING = 1, HALF_PACED = 2 };

// What may still correct a start (check.h).
enum checked { CHECKED_NOT = 0, CHECKED_BY_TRAIN = 1, CHECKED_BY_QUEUE = 2 };

// The phases of Careful Resume (careful.h): spand_proto::resume::Phase, but for normal congestion control, which all others have as well.
enum careful_phase {
	CAREFUL_NORMAL = 0,
	CAREFUL_RECONNAISSANCE = 1,
	CAREFUL_UNVALIDATED = 2,
	CAREFUL_VALIDATING = 3,
	CAREFUL_SAFE_RETREAT = 4,
};

// One connection's use of what is saved of its network.
struct careful {
	u32 initial_window;
	u32 boundary;  // the sequence that the phase waits for
	u32 pipe_size; // the flight before the jump, and what was acknowledged since
	u32 window;    // of the jump, of the retreat, or at the end of the unvalidated data
	u32 entered_us; // when it jumped
	u32 rtt_us;	// and the round trip then
	u32 saved_rtt_us;
	u8 phase;    // enum careful_phase
	u8 ended_in; // the last one but normal congestion control
	u8 unused[2];
};

// A group of closely spaced acknowledgements, and what the ones before it came to. Times are microseconds.
struct measured {
	u32 began;     // the first of the group
	u32 last;      // the newest
	u32 segments;  // acknowledged after the first
	u32 estimated; // the last one that ended with an estimation
	u32 minimum;   // the smallest estimation; 0: none yet
};

// A connection to a network with an estimate.
struct connection {
	u64 flight_ns;	   // when the flight began
	u64 flight_rtt_ns; // the round trip it was planned with
	u64 rate;	   // of the newest start, where no segment is exempt; 0: not paced
	u64 stated_bytes;  // the size that its start was planned for, until it is spent
	u64 claimed_ns;	   // the end of its claim to jump (budget.h); 0: it has none
	u32 flight_start;  // sequence; reset if nothing was in flight
	u32 flight_bytes;  // granted
	u32 arrived_bytes; // most of a flight that was acknowledged since
	u32 extra;   // segments above the default, still held from the budget
	u32 turn;    // the half of the budget that they were taken in
	u32 slot;    // of the budget that they were taken from
	u32 era;     // and whose it was then
	u32 initial_window;
	u32 first_granted; // segments of the first start; 0: started as plain TCP
	u32 first_end;	   // sequence after the first flight
	u32 first_sent;	   // bytes of it that had left at the last loss that was counted
	u32 first_lost;	   // bytes of it that were lost
	u32 first_lost_end; // sequence after those
	u8 arm;
	u8 phase;
	u8 refusal;	// enum refusal, or the network's own
	u8 first_loss;	// a segment of the first flight was sent again
	u8 compared;	// whether it is reported at its end
	u8 reported;
	u8 paced; // by a start, and not before it
	u8 cut;	  // the kernel took a loss for congestion: the window is no longer a start's
	u8 drained; // all that was written of the flight has arrived
	u8 asks_rtt; // the flag for round trips is ours
	u8 measures; // enum measures
	u8 half;     // enum half
	u8 checked;  // enum checked
	u8 measured_pipe; // whether the train has raised the threshold
	u8 unused[2];
	u32 pauses; // `pauses` of the settings when it was established
	u32 growth; // its rule of slow start (growth.h); 0: the kernel's own, or not any more
	u32 grown; // the window that it made, in segments
	u32 fraction; // and the part of a segment that belongs to it, in 2^-20
	struct measured measured;
	struct train train; // of the first flight
	u32 round_end; // sequence after the round that is checked, which is the first flight to begin with
	u32 round_bytes;
	u32 queued_us; // the least round trip of its last quarter
	u32 set_ssthresh; // the threshold that we set last
	struct careful careful;
	u32 delivered; // `delivered` of the socket at its last acknowledgement
	u32 threshold; // the threshold before the jump
};

// A size that an application stated, for the next transfer.
struct stated {
	u64 bytes;
};

enum event_kind { EVENT_ENDED = 1, EVENT_FIRST_FLIGHT_LOSS = 2 };

// The agent's event.
struct event {
	u64 busy_us;
	u64 bytes;
	u32 kind;
	u32 cwnd;
	u32 mss;
	u32 srtt_us;
	u32 rtt_min_us;
	u32 retransmitted;
	u32 granted;
	u32 first_sent; // segments of the first flight, where some were lost
	u32 first_lost; // and those
	u16 local_port;
	u16 remote_port;
	u8 arm;
	u8 refusal;
	u8 first_loss;
	u8 window_limited;
	u8 paused; // it met a pause, and is not part of the comparison
	u8 careful; // the phase in which Careful Resume ended; 0: it was not in use
	u8 unused[2];
	u8 local[16];
	u8 remote[16];
};

struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[1];
	u32 *key;
	struct settings *value;
} settings SEC(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_LPM_TRIE];
	int (*max_entries)[65536];
	int (*map_flags)[BPF_F_NO_PREALLOC];
	struct prefix *key;
	struct network *value;
} networks SEC(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[65536];
	u32 *key;
	struct budget *value;
} budgets SEC(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*max_entries)[4096];
	struct service *key;
	u64 *value;
} services SEC(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_SK_STORAGE];
	int (*map_flags)[BPF_F_NO_PREALLOC];
	int *key;
	struct connection *value;
} connections SEC(".maps");

// Cloned, so that what is stated on a listening socket holds for the connections that it accepts.
struct {
	int (*type)[BPF_MAP_TYPE_SK_STORAGE];
	int (*map_flags)[BPF_F_NO_PREALLOC | BPF_F_CLONE];
	int *key;
	struct stated *value;
} sizes SEC(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_PERCPU_ARRAY];
	int (*max_entries)[COUNT_OF_COUNTS];
	u32 *key;
	u64 *value;
} counts SEC(".maps");

// Waking a reader costs more than all else that is done for a connection. The agent looks a few times a second by itself, and
// is woken where it would come too late: for a loss, or because this much waits.
#define EVENTS_BYTES (1 << 20)
#define EVENTS_TO_WAKE (EVENTS_BYTES / 4)

struct {
	int (*type)[BPF_MAP_TYPE_RINGBUF];
	int (*max_entries)[EVENTS_BYTES];
} events SEC(".maps");

INLINE void count(u32 what)
{
	u64 *number = bpf_map_lookup_elem(&counts, &what);
	if (number)
		// One at a time on each CPU, but a softirq may come between reading and writing.
		__sync_fetch_and_add(number, 1);
}

// A whole address as the table of networks is asked for it.
INLINE void keyed_by(struct prefix *prefix)
{
	u32 words[3];
	__builtin_memcpy(words, prefix->address, sizeof(words));
	int mapped = !words[0] && !words[1] && words[2] == __builtin_bswap32(0xffff);
	prefix->bits = PREFIX_BITS;
	prefix->family = mapped ? AF_INET : AF_INET6;
}

INLINE struct settings *all_settings(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&settings, &zero);
}

// Whether the socket of this context is in a network namespace that is left alone: the same address may be another machine there, behind
// another path.
INLINE int is_foreign(void *context, const struct settings *settings)
{
	return settings->namespace && bpf_get_netns_cookie(context) != settings->namespace;
}

// What stands for a network whose advice is paused in the place of a refusal. `refusal.rs` has the same number.
#define REFUSED_PAUSED 103

// Whether no start may be on advice now.
INLINE int is_paused(const struct settings *settings, const struct network *network)
{
	return settings->pauses & 1 || network->refusal == REFUSED_PAUSED;
}
