// SPDX-License-Identifier: MIT OR Apache-2.0
// Corrects a start on CUBIC or Reno by the connection's own acknowledgements. Those of the first ten segments, which leave unpaced, show
// the bottleneck's rate (train.h), unless they come in bunches. A round whose round trips have not grown shows a path that is not full: slow
// start goes on beyond the threshold. A queue, a loss or HyStart ends the check. It does not change starts without a threshold. BBR's check
// is bbr.h.

#pragma once

#include "growth.h"

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

// The path is wider, and not full: slow start goes on to this window.
INLINE void raise(struct tcp_sock *tp, struct connection *connection, u32 window)
{
	if (window <= tp->snd_ssthresh)
		return;
	tp->snd_ssthresh = window;
	connection->set_ssthresh = window;
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
		// Later segments are paced at the share's rate, and there is no queue but that of the ten: about this window fills the path.
		u32 fills = segments_in(rate, rtt_min_us);
		connection->measured_pipe = fills > tp->snd_ssthresh;
		raise(tp, connection, fills);
	}
}

// Takes one acknowledgement.
static __attribute__((noinline)) int check_start(struct sock *sk, struct connection *connection, const struct ack_sample *sample)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u64 rtt_us = connection->flight_rtt_ns / 1000;
	u32 sample_us = sample->rtt_us, rtt_min_us = tp->rtt_min.s[0].v;
	// HyStart, which sets a threshold of its own, ends the check as well.
	if (BITS(&tp->inet_conn, icsk_ca_state) >= CA_CWR || !rtt_us || tp->snd_ssthresh != connection->set_ssthresh) {
		connection->checked = CHECKED_NOT;
		return 0;
	}
	if (sample->rtt_us < 0)
		return 0;
	if (connection->checked == CHECKED_BY_TRAIN)
		check_train(tp, connection, rtt_us, sample_us, rtt_min_us);
	long left = (int)(connection->round_end - tp->snd_una);
	if (!connection->checked || 4 * left > (long)connection->round_bytes)
		return 0;
	if (!connection->queued_us || sample_us < connection->queued_us)
		connection->queued_us = sample_us;
	if (left > 0)
		return 0;
	if (connection->queued_us - rtt_min_us > spread_of(rtt_min_us)) {
		connection->checked = CHECKED_NOT;
		return 0;
	}
	// A sender that its application limits does not fill its window.
	if (tp->snd_cwnd >= tp->snd_ssthresh && limits_the_sender(tp))
		raise(tp, connection, tp->snd_cwnd + (connection->measured_pipe ? tp->snd_cwnd / 4 : tp->snd_cwnd));
	connection->checked = CHECKED_BY_QUEUE;
	begin_round(connection, tp->snd_nxt, tp->snd_nxt - tp->snd_una);
	return 0;
}
