// SPDX-License-Identifier: MIT OR Apache-2.0
// What a start is decided from, and what comes of it: the limits, the network, the transfer, and the start (start.h).

#pragma once

#include "kernel.h"

// "Not set" of a limit.
#define NO_LIMIT 0xffffffffu

// What bounds every start on this host.
struct policy {
	u64 unknown_bytes; // size of a transfer that stated none; 0 counts as long
	u32 fraction_ppm;  // NO_LIMIT: none
	u32 cap;	   // segments; NO_LIMIT: none
	u32 floor_lowest;  // segments, where losses prove it; NO_LIMIT: no floor at all
	u32 rtt_low_ppm;   // smallest handshake RTT relative to the estimate's; NO_LIMIT: no check
	u32 rtt_high_ppm;
	u32 burst;    // a window up to this is not paced
	u32 budgeted; // whether a lease counts
	u32 flags;    // enum flag
};

// What a start is made of (spand_proto::start::Shape).
enum shape {
	SHAPE_PACED = 0,
	SHAPE_THRESHOLD = 1,
	SHAPE_JUMP = 2,
	SHAPE_MEASURED = 3,
	SHAPE_OWN_THRESHOLD = 4,
	SHAPE_OWN_PACED = 5,
	SHAPE_RFC9959 = 6,
};

enum flag {
	RATE_OF_SHARE = 1, // what is paced leaves at the share's rate, or faster where no loss bounds it; not at the window's
	FILLS_PIPE = 2,	   // a start is not shifted below what keeps the path busy
	NEEDS_LOSS = 4,	   // no threshold where no loss backs the share
	BUFFERED = 8,	   // the bottleneck's buffer bounds unpaced starts and the slow start after them
	CROWD = 16,	   // a share that many have is raised within what the empty path holds
};

// What losses say of a share.
enum evidence {
	PROVEN = 1, // those of enough connections allow a start below the default
	BACKED = 2, // there is one
	LOSSLESS = 4, // none is known there, sampled or not
};

#define NO_THRESHOLD 0x7fffffffu // TCP_INFINITE_SSTHRESH

// What is known of one network.
struct network {
	u64 share_half_bytes; // exact for every segment size: a share is rounded at half a segment
	u64 pipe_half_bytes;  // the part of it that keeps the path busy for an empty round trip
	u64 threshold_bytes;  // half of what was in flight at losses; 0: not known
	u64 expires_ns;	      // by CLOCK_BOOTTIME, the clock of all times here
	u32 rtt_us;	      // 0: not known
	u32 cap;	      // the administrator's own for this network; NO_LIMIT: none
	u32 evidence;	      // enum evidence
	u32 lease;	      // segments above the default; NO_LIMIT: no budget is kept
	u32 slot;	      // place in `budgets`
	u32 refusal;	      // why nothing is applied, decided outside; 0: nothing is in the way
	u32 era;	      // which of those that had the place; 0: none
	u32 shape;	      // enum shape
	u64 opening_half_bytes; // the threshold by the senders under way; 0: none is known
	u64 lost_ns;	      // the last loss of any of them; before the boot it wraps
	u64 overflow_bytes;   // where slow start overflows the bottleneck's buffer; 0: not known
	u64 bdp_bytes;	      // what the empty path holds; 0: not known
	u32 loss_us;	      // smoothed interval between their losses; 0: not known
	u32 oldest_loss_us;   // between those of the oldest
};

// One transfer that is about to start.
struct transfer {
	u64 bytes;	    // 0: not known
	u64 peer_window;    // bytes
	u32 mss;	    // bytes less options
	u32 rtt_us;	    // the connection's own; 0: not measured
	u32 initial_window; // the host's default, segments
	u32 budget_left;    // segments above the default; NO_LIMIT: no budget is kept
	u32 unpaced;	    // segments that the kernel sends before the rate holds
	u32 usual;	    // the size is that of most of the service's transfers: no start below the default rests on it
	u64 now_ns;
	u32 shape;	    // enum shape
	u32 most;	    // segments that the socket may have, whatever the network; 0: no bound of its own
};

enum refusal {
	REFUSED_NO = 0,
	REFUSED_NO_RTT = 5,
	REFUSED_RTT_MISMATCH = 6,
	REFUSED_MSS_ZERO = 7,
	REFUSED_NO_OPENING = 9,
};

// The limits in the order in which they are considered.
enum limit {
	LIMIT_NONE = 0,
	LIMIT_FRACTION = 1,
	LIMIT_CAP = 2,
	LIMIT_PEER_WINDOW = 3,
	LIMIT_BUDGET = 4,
	LIMIT_BUFFER = 5,
};

struct start {
	u64 rate; // bytes per second of payload after the burst; 0: not paced
	u32 cwnd;
	u32 ssthresh;
	u32 clipped_by; // enum limit
	u32 refusal;	// enum refusal; nothing else holds where it is set
	u32 keeps_window; // the connection's own window stays, and nothing is paced
	u32 overdue;	  // the times of losses give no window
	u32 jump;	  // what Careful Resume may jump to; else 0
	u32 unused;
};
