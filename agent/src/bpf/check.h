// SPDX-License-Identifier: MIT OR Apache-2.0
// Corrects a connection's first start on CUBIC or Reno by its own path. One round trip after the start, the acknowledgements of the ten
// unpaced segments (train.h) show a rate that the share can be held against. Acknowledgements in bunches show none. At the end of the
// first flight, round trips that have not grown show a path that is not full. Nothing is corrected after an idle time, after a loss, or
// where slow start has no threshold. BBR's check is bbr.h.

#pragma once

#include "connection.h"

// The bandwidth of a window in a round trip.
INLINE u32 bandwidth_of(u64 window, u64 rtt_us)
{
	return window >> (32 - BW_SCALE) >= rtt_us ? 0xffffffff : (window << BW_SCALE) / rtt_us;
}

// The segments that this bandwidth moves in this time.
INLINE u32 segments_in(u32 bandwidth, u32 time_us)
{
	u64 segments = (u64)bandwidth * time_us >> BW_SCALE;
	return segments < MOST_SEGMENTS ? segments : MOST_SEGMENTS;
}

// The path is narrower: no more than its rate fills is in flight from here on. Short transfers in a crowd keep what all of them take.
INLINE void lower(struct tcp_sock *tp, u32 window)
{
	if (window < CROWD_WINDOW)
		window = CROWD_WINDOW;
	if (window >= tp->snd_cwnd)
		return;
	tp->snd_cwnd = window;
	tp->snd_ssthresh = window;
	count(COUNT_TOO_HIGH);
}

// The path is wider, and not full. Slow start goes on to this window, and no further than the path was seen to hold, or twice the threshold
// where that is not known. Less than half as much again is left alone.
INLINE void raise(struct tcp_sock *tp, u32 window)
{
	struct network *network = network_of(tp);
	u32 mss = tp->mss_cache, threshold = tp->snd_ssthresh;
	if (!network || !mss)
		return;
	window = smaller(window, network->bdp_bytes ? network->bdp_bytes / mss : 2 * threshold);
	if (2 * window < 3 * threshold)
		return;
	tp->snd_ssthresh = window;
	count(COUNT_TOO_LOW);
}

// How much longer than the least a round trip may be without a queue.
INLINE u32 spread_of(u32 rtt_min_us)
{
	return rtt_min_us / 8 + 1000;
}

// Takes one acknowledgement while the train lasts. One judgement: later acknowledgements have their distances from the pace.
INLINE void check_train(struct tcp_sock *tp, struct connection *connection, u64 rtt_us, u32 sample_us, u32 rtt_min_us)
{
	struct train *train = &connection->train;
	u32 now_us = tp->tcp_mstamp, delivered = tp->delivered;
	u32 expected = bandwidth_of(connection->first_granted, rtt_us);
	u32 segments = whole_bunches(train, now_us, delivered, expected);
	if (!segments) {
		follow_train(train, now_us, delivered, expected);
		return;
	}
	connection->checked = CHECKED_BY_QUEUE;
	long grown_us = sample_us - (long)rtt_min_us;
	u32 rate = train_rate(train, segments), time_us = train->last_us - train->began_us;
	if (is_narrower(train, segments, expected, grown_us)) {
		connection->checked = CHECKED_NOT;
		lower(tp, segments_in(rate, rtt_us));
	} else if (segments <= UNPACED && grown_us <= (long)(time_us + spread_of(rtt_min_us))) {
		// What is paced has the rate of the share, and no queue but its own shows.
		raise(tp, segments_in(rate, rtt_min_us));
	}
}

// Takes one acknowledgement of a first flight.
static __attribute__((noinline)) int check_start(struct sock *sk, struct connection *connection, const struct ack_sample *sample)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u64 rtt_us = connection->flight_rtt_ns / 1000;
	u32 sample_us = sample->rtt_us, rtt_min_us = tp->rtt_min.s[0].v;
	if (BITS(&tp->inet_conn, icsk_ca_state) >= CA_CWR || !rtt_us) {
		connection->checked = CHECKED_NOT;
		return 0;
	}
	if (sample->rtt_us < 0)
		return 0;
	if (connection->checked == CHECKED_BY_TRAIN)
		check_train(tp, connection, rtt_us, sample_us, rtt_min_us);
	long left = (int)(connection->first_end - tp->snd_una);
	if (!connection->checked || 2 * left > (long)connection->first_granted * tp->mss_cache)
		return 0;
	if (!connection->queued_us || sample_us < connection->queued_us)
		connection->queued_us = sample_us;
	if (left > 0)
		return 0;
	connection->checked = CHECKED_NOT;
	// Where an application wrote it slowly it fills nothing.
	if (connection->queued_us - rtt_min_us <= spread_of(rtt_min_us) &&
	    bpf_ktime_get_boot_ns() - connection->flight_ns < 3 * connection->flight_rtt_ns)
		raise(tp, MOST_SEGMENTS);
	return 0;
}
