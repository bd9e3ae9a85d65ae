// SPDX-License-Identifier: MIT OR Apache-2.0
// The start function of the contract (spand_proto::start) for Linux senders, in integers: estimate, transfer and limits to
// window, threshold and rate, or a refusal. A test runs it in the kernel against the contract's own function.

#pragma once

#include "model.h"

// Depth of the paper's bucket, the part of a share without losses that may wait in a queue, and the shortest part of a round trip
// that such a start is spread over (spand_proto::start).
#define PAPER_BUCKET 4
#define QUEUE_PART 4
#define SHORTEST_PART 8

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

// Of a start by the times of losses where no other is set (spand_proto::start, StartPolicy::CAREFUL).
#define CAP_OF_MEASURED 100

#define NO_THRESHOLD 0x7fffffffu // TCP_INFINITE_SSTHRESH

// The least that a short transfer takes for its share where many share the path, the most segments of such a transfer, and the least
// threshold of a longer one (spand_proto::start, CROWD_WINDOW).
#define CROWD_WINDOW 20
#define CROWD_LONGEST 100
#define CROWD_THRESHOLD 25

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
	u64 lost_ns;	      // the last loss of any of them
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
	u32 unused;
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
};

INLINE u32 smaller(u32 a, u32 b)
{
	return a < b ? a : b;
}

INLINE void clip(struct start *start, u32 value, u32 limit)
{
	if (value == 0)
		value = 1;
	if (value < start->cwnd) {
		start->cwnd = value;
		start->clipped_by = limit;
	}
}

// Bytes a second at which N segments leave in this time.
INLINE u64 rate_of(u64 segments, u64 mss, u64 time_us)
{
	time_us |= !time_us;
	return (segments * mss * 1000000 + time_us - 1) / time_us;
}

// Whole segments of this many half bytes, rounded at half a segment: 1 to MOST_SEGMENTS.
INLINE u64 rounded(u64 half_bytes, u64 mss)
{
	u64 segments = (half_bytes + mss) / (2 * mss);
	if (segments == 0)
		segments = 1;
	return segments > MOST_SEGMENTS ? MOST_SEGMENTS : segments;
}

// The window by the times of losses (spand_proto::opening); 0: they give none.
INLINE u64 by_losses(const struct network *network, const struct transfer *transfer, u64 rtt_us)
{
	u64 interval = network->loss_us;
	if (!interval || !rtt_us || transfer->now_ns < network->lost_ns)
		return 0;
	u64 gone = (transfer->now_ns - network->lost_ns) / 1000;
	if (gone > interval)
		return 0;
	u64 window = network->oldest_loss_us * (interval - gone) / (interval * rtt_us);
	return window > MOST_SEGMENTS ? MOST_SEGMENTS : window;
}

// Fills in `start`.
__attribute__((noinline)) int decide(const struct network *network, const struct transfer *transfer,
				     const struct policy *policy, struct start *start)
{
	// Never so, but a function that is verified by itself must ask.
	if (!network || !transfer || !policy || !start)
		return 0;
	__builtin_memset(start, 0, sizeof(*start));
	u64 mss = transfer->mss;
	if (mss == 0) {
		start->refusal = REFUSED_MSS_ZERO;
		return 0;
	}
	if (policy->rtt_low_ppm != NO_LIMIT) {
		u64 own = (u64)transfer->rtt_us * 1000000, known = network->rtt_us;
		if (known == 0) {
			start->refusal = REFUSED_NO_RTT;
			return 0;
		}
		if (own && (own < known * policy->rtt_low_ppm || own > known * policy->rtt_high_ppm)) {
			start->refusal = REFUSED_RTT_MISMATCH;
			return 0;
		}
	}

	u64 share = rounded(network->share_half_bytes, mss);
	u64 bytes = transfer->bytes ? transfer->bytes : policy->unknown_bytes;
	u64 segments = bytes / mss + !!(bytes % mss);
	u32 shape = transfer->shape, threshold_aim = 0, crowd_threshold = 0, crowd_window = 0;
	u32 whole = share;
	u64 raised = share;
	if (policy->flags & CROWD && shape == SHAPE_PACED) {
		u64 bdp = network->bdp_bytes / mss;
		u32 most = bdp < CROWD_WINDOW ? bdp : CROWD_WINDOW;
		if (!bytes || segments > CROWD_LONGEST) {
			crowd_threshold = bdp < CROWD_THRESHOLD ? bdp : CROWD_THRESHOLD;
		} else if (share < most) {
			// The smallest window that takes no more flights than the most.
			u32 flights = ((u32)segments + most - 1) / most;
			crowd_window = ((u32)segments + flights - 1) / flights;
			raised = most;
		}
	}
	u64 overflow = 0;
	if (policy->flags & BUFFERED && network->overflow_bytes && network->evidence & BACKED) {
		overflow = network->overflow_bytes / mss;
		overflow = overflow > MOST_SEGMENTS ? MOST_SEGMENTS : overflow | !overflow;
	}
	if (shape != SHAPE_PACED) {
		u64 opening = rounded(network->opening_half_bytes, mss);
		whole = transfer->initial_window;
		threshold_aim = NO_THRESHOLD;
		if (shape <= SHAPE_MEASURED) {
			if (!network->opening_half_bytes) {
				start->refusal = REFUSED_NO_OPENING;
				return 0;
			}
			threshold_aim = opening;
		}
		if (shape == SHAPE_JUMP)
			whole = opening;
		if (shape == SHAPE_MEASURED) {
			u64 window = by_losses(network, transfer, transfer->rtt_us ? transfer->rtt_us : network->rtt_us);
			start->overdue = !window;
			if (whole < window)
				whole = window;
			if (threshold_aim < whole)
				threshold_aim = whole;
		}
		start->keeps_window = shape != SHAPE_JUMP && shape != SHAPE_MEASURED;
		// What a window is paced as.
		share = whole;
	}
	// A transfer longer than an epoch has a loss at an unknown moment.
	else if (bytes && !(policy->flags & FILLS_PIPE && segments > epoch_of(share))) {
		u64 windows = shifted_window(share, segments);
		whole = windows;
		if (transfer->bytes && transfer->usual) {
			u32 least = smaller(share, transfer->initial_window);
			if (whole < least)
				whole = least;
		}
		if (policy->flags & FILLS_PIPE) {
			u64 pipe = network->pipe_half_bytes / 2 / mss;
			u32 full = pipe < windows >> 32 ? pipe : windows >> 32;
			if (whole < full)
				whole = full;
		}
	}

	if (shape == SHAPE_PACED) {
		if (whole < crowd_window)
			whole = crowd_window;
		threshold_aim = whole;
		share = raised;
	}
	start->cwnd = whole;
	// The host's own is bounded by what bounds every host.
	if (start->keeps_window)
		goto threshold;
	if (policy->fraction_ppm != NO_LIMIT)
		clip(start, raised * policy->fraction_ppm / 1000000, LIMIT_FRACTION);
	u32 cap = policy->cap;
	// The rarer losses are, the larger its window: on an idle path it has no bound of its own.
	if (shape == SHAPE_MEASURED && cap == NO_LIMIT)
		cap = CAP_OF_MEASURED;
	clip(start, smaller(cap, network->cap), LIMIT_CAP);
	// What limits one connection alone, its receiver or what is left of a budget, is no measure of the path's rate.
	u64 wanted = start->cwnd;
	u64 peer = transfer->peer_window / mss;
	clip(start, peer < MOST_SEGMENTS ? peer : MOST_SEGMENTS, LIMIT_PEER_WINDOW);
	if (policy->budgeted && transfer->budget_left != NO_LIMIT)
		clip(start, transfer->initial_window + smaller(transfer->budget_left, MOST_SEGMENTS), LIMIT_BUDGET);
	if (overflow && start->cwnd <= policy->burst)
		clip(start, overflow, LIMIT_BUFFER);
	if (policy->floor_lowest != NO_LIMIT) {
		u32 floor = transfer->initial_window;
		if (network->evidence & PROVEN)
			floor = smaller(floor, policy->floor_lowest);
		if (start->cwnd < floor)
			start->cwnd = floor;
	}
	// A cap that the administrator named for this network wins over the floor.
	if (network->cap < start->cwnd)
		start->cwnd = network->cap;
	if (start->cwnd >= whole)
		start->clipped_by = LIMIT_NONE;
threshold:
	start->ssthresh = start->cwnd > threshold_aim ? start->cwnd : threshold_aim;
	if (policy->flags & NEEDS_LOSS) {
		u64 threshold = network->threshold_bytes / mss;
		if (threshold > MOST_SEGMENTS)
			threshold = MOST_SEGMENTS;
		if (start->ssthresh < threshold)
			start->ssthresh = threshold;
		if (!(network->evidence & BACKED))
			start->ssthresh = NO_THRESHOLD;
	}
	if (start->ssthresh < crowd_threshold)
		start->ssthresh = crowd_threshold;

	if (start->cwnd > policy->burst && !start->keeps_window) {
		u64 own = transfer->rtt_us ? transfer->rtt_us : network->rtt_us, time = own, most = 0;
		u64 longer = own > network->rtt_us ? own : network->rtt_us;
		if (longer == 0) {
			start->refusal = REFUSED_NO_RTT;
			return 0;
		}
		u64 window = start->cwnd, beyond = window - smaller(transfer->unpaced, window);
		u64 spread = window < share ? share : window;
		spread -= smaller(transfer->unpaced, spread);
		if (policy->flags & RATE_OF_SHARE) {
			time = longer;
			if (start->ssthresh == NO_THRESHOLD && network->evidence & LOSSLESS && shape == SHAPE_PACED) {
				wanted = wanted < window ? window : wanted;
				wanted -= smaller(transfer->unpaced, wanted);
				u64 rest = wanted > share / QUEUE_PART ? wanted - share / QUEUE_PART : 0;
				time = longer * rest / (wanted | !wanted);
				if (time < longer / SHORTEST_PART)
					time = longer / SHORTEST_PART;
			}
			beyond = spread;
		} else {
			if (window > PAPER_BUCKET)
				time = own * (window - PAPER_BUCKET) / (whole > window ? whole : window);
			most = rate_of(spread, mss, longer);
		}
		start->rate = rate_of(beyond, mss, time);
		if (most && most < start->rate)
			start->rate = most;
	} else if (overflow && start->ssthresh >= overflow) {
		start->ssthresh = start->cwnd >= overflow ? start->cwnd : overflow - 1;
	}
	return 0;
}
