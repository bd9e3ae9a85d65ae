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
// threshold of a longer one (spand_proto::start, CROWD_WINDOW).
#define CROWD_WINDOW 20
#define CROWD_LONGEST 100
#define CROWD_THRESHOLD 25

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

// What Careful Resume may jump to: half of what is saved, within the limits of every start.
INLINE u32 jump_of(const struct network *network, const struct transfer *transfer, const struct policy *policy, u64 share)
{
	struct start jump = { .cwnd = MOST_SEGMENTS };
	u64 half = network->share_half_bytes / 4 / transfer->mss, peer = transfer->peer_window / transfer->mss;
	clip(&jump, half < MOST_SEGMENTS ? half : MOST_SEGMENTS, LIMIT_NONE);
	if (policy->fraction_ppm != NO_LIMIT)
		clip(&jump, share * policy->fraction_ppm / 1000000, LIMIT_NONE);
	clip(&jump, smaller(policy->cap, network->cap), LIMIT_NONE);
	clip(&jump, peer < MOST_SEGMENTS ? peer : MOST_SEGMENTS, LIMIT_NONE);
	if (policy->budgeted && transfer->budget_left != NO_LIMIT)
		clip(&jump, transfer->initial_window + smaller(transfer->budget_left, MOST_SEGMENTS), LIMIT_NONE);
	return jump.cwnd;
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
		if (shape == SHAPE_RFC9959)
			start->jump = jump_of(network, transfer, policy, share);
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
	u64 wanted = unbounded(0);
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
	wanted = start->cwnd;
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
