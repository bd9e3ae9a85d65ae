// SPDX-License-Identifier: MIT OR Apache-2.0
// The start function of the contract (spand_proto::start) for Linux senders, in integers: estimate, transfer and limits to
// window, threshold and rate, or a refusal. A test runs it in the kernel against the contract's own function.

#pragma once

#include "inputs.h"
#include "model.h"

// Depth of the paper's bucket, the part of a share without losses that may wait in a queue, and the shortest part of a round trip
// that such a start is spread over (spand_proto::start).
#define PAPER_BUCKET 4
#define QUEUE_PART 4
#define SHORTEST_PART 8

// Of a start by the times of losses where no other is set (spand_proto::start, StartPolicy::CAREFUL).
#define CAP_OF_MEASURED 100

// How far the handshake's round trip may be from the saved one for Careful Resume (RFC 9959 section 4.2.1), whatever the policy has.
#define CAREFUL_RTT_LOW_PPM 500000
#define CAREFUL_RTT_HIGH_PPM 10000000

// The least that a short transfer takes for its share where many share the path, the most segments of such a transfer, and the least
// threshold of any (spand_proto::start, CROWD_WINDOW).
#define CROWD_WINDOW 20
#define CROWD_LONGEST 100
#define CROWD_THRESHOLD 25

INLINE u32 smaller(u32 a, u32 b)
{
	return a < b ? a : b;
}

// Whole segments of this many half bytes, rounded at half a segment: 1 to MOST_SEGMENTS.
INLINE u64 rounded(u64 half_bytes, u64 mss)
{
	u64 segments = least((half_bytes + mss) / (2 * mss), MOST_SEGMENTS);
	return segments | !segments;
}

// Bytes a second at which N segments leave in this time.
INLINE u64 rate_of(u64 segments, u64 mss, u64 time_us)
{
	time_us |= !time_us;
	return (segments * mss * 1000000 + time_us - 1) / time_us;
}

// What the parts of `decide` hand on.
struct aim {
	u64 share;	     // what a window is paced as
	u64 wanted;	     // the window without what limits one connection alone, no measure of the path's rate
	u32 raised;	     // the share, or the larger window of a short transfer in a crowd
	u32 whole;	     // the window without limits
	u32 threshold;	     // the least one
	u32 crowd_threshold; // and where many share the path
	u32 overflow;	     // segments that overflow the bottleneck's buffer; 0: not known
	u32 cap;	     // the network's own, or the socket's
};

// The window by the times of losses (spand_proto::opening); 0: they give none.
INLINE u64 by_losses(const struct network *network, const struct transfer *transfer)
{
	u64 interval = network->loss_us, rtt_us = transfer->rtt_us ? transfer->rtt_us : network->rtt_us;
	// The loss may lie before this host was booted.
	s64 gone_ns = transfer->now_ns - network->lost_ns;
	if (!interval || !rtt_us || gone_ns < 0)
		return 0;
	u64 gone = (u64)gone_ns / 1000;
	if (gone > interval)
		return 0;
	return least(network->oldest_loss_us * (interval - gone) / (interval * rtt_us), MOST_SEGMENTS);
}

// What Careful Resume may jump to: half of what is saved, within the limits of every start.
INLINE u32 jump_of(const struct network *network, const struct transfer *transfer, const struct policy *policy, u32 cap)
{
	u64 mss = transfer->mss, jump = least(network->share_half_bytes / 4 / mss, MOST_SEGMENTS);
	if (policy->fraction_ppm != NO_LIMIT)
		jump = least(jump, rounded(network->share_half_bytes, mss) * policy->fraction_ppm / 1000000);
	jump = least(least(jump, transfer->peer_window / mss), least(policy->cap, cap));
	if (policy->budgeted && transfer->budget_left != NO_LIMIT)
		jump = least(jump, transfer->initial_window + least(transfer->budget_left, MOST_SEGMENTS));
	return jump | !jump;
}

// The window and the threshold of a start at the share.
PART int aim_at_share(const struct network *network, const struct transfer *transfer, const struct policy *policy, struct aim *aim)
{
	// No caller passes a null pointer, but the verifier checks a global function without its callers.
	if (!network || !transfer || !policy || !aim)
		return 0;
	u64 mss = transfer->mss, share = rounded(network->share_half_bytes, mss);
	u64 bytes = transfer->bytes ? transfer->bytes : policy->unknown_bytes;
	u64 segments = bytes / mss + !!(bytes % mss);
	u32 whole = share, crowd_window = 0;
	aim->raised = share;
	if (policy->flags & CROWD) {
		u64 bdp = network->bdp_bytes / mss;
		u32 most = least(bdp, CROWD_WINDOW);
		aim->crowd_threshold = bdp ? least(bdp, CROWD_THRESHOLD) : CROWD_THRESHOLD;
		if (bytes && segments <= CROWD_LONGEST && share < most) {
			// The smallest window that takes no more flights than the most.
			u32 flights = ((u32)segments + most - 1) / most;
			crowd_window = ((u32)segments + flights - 1) / flights;
			aim->raised = most;
		}
	}
	// A transfer longer than an epoch has a loss at an unknown moment.
	if (bytes && !(policy->flags & FILLS_PIPE && segments > epoch_of(share))) {
		u64 windows = shifted_window(share, segments);
		whole = windows;
		if (transfer->bytes && transfer->usual) {
			u32 lowest = least(share, transfer->initial_window);
			if (whole < lowest)
				whole = lowest;
		}
		if (policy->flags & FILLS_PIPE) {
			u32 full = least(network->pipe_half_bytes / 2 / mss, windows >> 32);
			if (whole < full)
				whole = full;
		}
	}
	if (whole < crowd_window)
		whole = crowd_window;
	aim->whole = whole;
	aim->threshold = whole;
	aim->share = aim->raised;
	return 0;
}

// The same of the other shapes, which begin at the host's own window or by what the senders under way show.
PART int aim_at_opening(const struct network *network, const struct transfer *transfer, const struct policy *policy, struct aim *aim,
			struct start *start)
{
	if (!network || !transfer || !policy || !aim || !start)
		return 0;
	u32 shape = transfer->shape, whole = transfer->initial_window, threshold = NO_THRESHOLD;
	if (shape <= SHAPE_MEASURED) {
		if (!network->opening_half_bytes) {
			start->refusal = REFUSED_NO_OPENING;
			return 0;
		}
		threshold = rounded(network->opening_half_bytes, transfer->mss);
	}
	if (shape == SHAPE_JUMP)
		whole = threshold;
	if (shape == SHAPE_MEASURED) {
		u32 window = by_losses(network, transfer);
		start->overdue = !window;
		if (whole < window)
			whole = window;
		if (threshold < whole)
			threshold = whole;
	}
	start->keeps_window = shape != SHAPE_JUMP && shape != SHAPE_MEASURED;
	if (shape == SHAPE_RFC9959)
		start->jump = jump_of(network, transfer, policy, aim->cap);
	aim->raised = rounded(network->share_half_bytes, transfer->mss);
	aim->whole = whole;
	aim->threshold = threshold;
	aim->share = whole;
	return 0;
}

INLINE void clip(struct start *start, u64 value, u32 limit)
{
	value |= !value;
	if (value < start->cwnd) {
		start->cwnd = value;
		start->clipped_by = limit;
	}
}

// The window within the limits of a start.
PART int set_limits(const struct network *network, const struct transfer *transfer, const struct policy *policy, struct aim *aim,
		    struct start *start)
{
	if (!network || !transfer || !policy || !aim || !start)
		return 0;
	u64 mss = transfer->mss;
	if (policy->fraction_ppm != NO_LIMIT)
		clip(start, (u64)aim->raised * policy->fraction_ppm / 1000000, LIMIT_FRACTION);
	u32 cap = policy->cap;
	// The rarer losses are, the larger its window: on an idle path it has no bound of its own.
	if (transfer->shape == SHAPE_MEASURED && cap == NO_LIMIT)
		cap = CAP_OF_MEASURED;
	clip(start, least(cap, aim->cap), LIMIT_CAP);
	aim->wanted = start->cwnd;
	clip(start, least(transfer->peer_window / mss, MOST_SEGMENTS), LIMIT_PEER_WINDOW);
	if (policy->budgeted && transfer->budget_left != NO_LIMIT)
		clip(start, transfer->initial_window + (u32)least(transfer->budget_left, MOST_SEGMENTS), LIMIT_BUDGET);
	if (aim->overflow && start->cwnd <= policy->burst)
		clip(start, aim->overflow, LIMIT_BUFFER);
	if (policy->floor_lowest != NO_LIMIT) {
		u32 floor = transfer->initial_window;
		if (network->evidence & PROVEN)
			floor = least(floor, policy->floor_lowest);
		if (start->cwnd < floor)
			start->cwnd = floor;
	}
	// A cap that the administrator named for this network wins over the floor.
	start->cwnd = least(start->cwnd, aim->cap);
	if (start->cwnd >= aim->whole)
		start->clipped_by = LIMIT_NONE;
	return 0;
}

// Where slow start ends after the window.
INLINE u32 threshold_of(const struct network *network, const struct transfer *transfer, const struct policy *policy, const struct aim *aim,
		      u32 window)
{
	u32 threshold = window > aim->threshold ? window : aim->threshold;
	if (policy->flags & NEEDS_LOSS) {
		u32 at_losses = least(network->threshold_bytes / transfer->mss, MOST_SEGMENTS);
		if (threshold < at_losses)
			threshold = at_losses;
		if (!(network->evidence & BACKED))
			threshold = NO_THRESHOLD;
	}
	return threshold < aim->crowd_threshold ? aim->crowd_threshold : threshold;
}

// The rate of a start that is paced, where a round trip is known.
PART int pace_start(const struct network *network, const struct transfer *transfer, const struct policy *policy, const struct aim *aim,
		    struct start *start)
{
	if (!network || !transfer || !policy || !aim || !start)
		return 0;
	u64 mss = transfer->mss, window = start->cwnd, unpaced = transfer->unpaced, share = aim->share;
	u64 own = transfer->rtt_us ? transfer->rtt_us : network->rtt_us;
	u64 longer = own > network->rtt_us ? own : network->rtt_us;
	if (longer == 0) {
		start->refusal = REFUSED_NO_RTT;
		return 0;
	}
	u64 spread = window < share ? share : window;
	spread -= least(unpaced, spread);
	if (!(policy->flags & RATE_OF_SHARE)) {
		u64 time = own;
		if (window > PAPER_BUCKET)
			time = own * (window - PAPER_BUCKET) / (aim->whole > window ? aim->whole : window);
		u64 most = rate_of(spread, mss, longer), rate = rate_of(window - least(unpaced, window), mss, time);
		start->rate = most ? least(rate, most) : rate;
		return 0;
	}
	u64 time = longer;
	if (start->ssthresh == NO_THRESHOLD && network->evidence & LOSSLESS && transfer->shape == SHAPE_PACED) {
		u64 wanted = aim->wanted < window ? window : aim->wanted;
		wanted -= least(unpaced, wanted);
		u64 rest = wanted - least(wanted, share / QUEUE_PART);
		time = longer * rest / (wanted | !wanted);
		if (time < longer / SHORTEST_PART)
			time = longer / SHORTEST_PART;
	}
	// At least as fast as plain TCP, which sends ten segments in the handshake's round trip. One below half of the mean does not measure the
	// path.
	u64 least_rate = rate_of(unpaced, mss, own > longer / 2 ? own : longer / 2);
	start->rate = rate_of(spread, mss, time);
	if (start->rate < least_rate)
		start->rate = least_rate;
	return 0;
}

// Fills in `start`.
PART int decide(const struct network *network, const struct transfer *transfer, const struct policy *policy, struct start *start)
{
	if (!network || !transfer || !policy || !start)
		return 0;
	__builtin_memset(start, 0, sizeof(*start));
	u64 mss = transfer->mss;
	if (mss == 0) {
		start->refusal = REFUSED_MSS_ZERO;
		return 0;
	}
	u32 rtt_low_ppm = policy->rtt_low_ppm, rtt_high_ppm = policy->rtt_high_ppm;
	if (transfer->shape == SHAPE_RFC9959) {
		rtt_low_ppm = CAREFUL_RTT_LOW_PPM;
		rtt_high_ppm = CAREFUL_RTT_HIGH_PPM;
	}
	if (rtt_low_ppm != NO_LIMIT) {
		u64 own = (u64)transfer->rtt_us * 1000000, known = network->rtt_us;
		if (known == 0) {
			start->refusal = REFUSED_NO_RTT;
			return 0;
		}
		if (own && (own < known * rtt_low_ppm || own > known * rtt_high_ppm)) {
			start->refusal = REFUSED_RTT_MISMATCH;
			return 0;
		}
	}

	struct aim aim = { .cap = transfer->most ? least(network->cap, transfer->most) : network->cap };
	if (policy->flags & BUFFERED && network->overflow_bytes && network->evidence & BACKED) {
		u64 overflow = least(network->overflow_bytes / mss, MOST_SEGMENTS);
		aim.overflow = overflow | !overflow;
	}
	if (transfer->shape == SHAPE_PACED)
		aim_at_share(network, transfer, policy, &aim);
	else
		aim_at_opening(network, transfer, policy, &aim, start);
	if (start->refusal)
		return 0;
	start->cwnd = aim.whole;
	// The host's own is bounded by what bounds every host.
	if (!start->keeps_window)
		set_limits(network, transfer, policy, &aim, start);
	start->ssthresh = threshold_of(network, transfer, policy, &aim, start->cwnd);
	if (start->cwnd > policy->burst && !start->keeps_window)
		pace_start(network, transfer, policy, &aim, start);
	else if (aim.overflow && start->ssthresh >= aim.overflow)
		start->ssthresh = start->cwnd >= aim.overflow ? start->cwnd : aim.overflow - 1;
	return 0;
}
