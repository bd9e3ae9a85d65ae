// SPDX-License-Identifier: MIT OR Apache-2.0
// BBR's estimate at a start. It is set from the share; the acknowledgements of the first segments (train.h) then confirm or correct it.
//
// Fields, modes and gains are those of net/ipv4/tcp_bbr.c.

#pragma once

#include "connection.h"
#include "train.h"

enum { BBR_STARTUP = 0, BBR_DRAIN = 1, BBR_PROBE_BW = 2 };

#define BBR_UNIT 256 // a gain of one
#define HIGH_GAIN (BBR_UNIT * 2885 / 1000 + 1)
#define DRAIN_GAIN (BBR_UNIT * 1000 / 2885)
#define CWND_GAIN (BBR_UNIT * 2)
// PROBE_BW's phase that lets the queue of the one before it go, and its gain.
#define EMPTYING_PHASE 1
#define EMPTYING_GAIN (BBR_UNIT * 3 / 4)

// What leaves after the first acknowledgement is sent at this gain of the seed, for it to show what the path carries beyond that.
#define CHECK_GAIN (BBR_UNIT * 3 / 2)
// A start's pace in millionths of the share's rate: BBR itself stays below its estimate.
#define SEED_PACE 950000ull
// Round trips that the share is exceeded for, and that are watched after it; and all of them, where the application rests between.
#define MOST_CHECKED 5
#define MOST_WATCHED 10
#define MOST_ROUNDS 20

// As far as it is used. The agent compares names, offsets and sizes with the kernel's own before it loads this (probe/bbr.rs).
struct bbr {
	u32 min_rtt_us;
	struct minmax bw;
	u32 rtt_cnt;
	u64 cycle_mstamp;
	u32 mode : 3;
	u32 round_start : 1;
	u32 pacing_gain : 10;
	u32 cwnd_gain : 10;
	u32 full_bw_reached : 1;
	u32 full_bw_cnt : 2;
	u32 cycle_idx : 3;
	u32 has_seen_rtt : 1;
	u32 full_bw;
} READ_THROUGH;

enum check {
	CHECK_OVER = 0,	      // the kernel's own BBR may go on
	CHECK_FIRST = 1,      // the first window is in flight
	CHECK_EXCEEDED = 2,   // what left since the first acknowledgement, above the seed's rate, is in flight
	CHECK_DELIVERED = 3,  // whether BBR's estimate stays above what is delivered
	CHECK_HANDED_OVER = 4, // the kernel was asked to go on
};

// A start on BBR.
struct seeded {
	u32 share;	// segments
	u32 seed;	// bandwidth that BBR goes on from
	u32 round;	// BBR's at which the check began
	u32 delivered;	// the highest bandwidth of a round that is watched
	u8 check;	// enum check
	u8 unused[3];
	struct train train;
};

struct {
	int (*type)[BPF_MAP_TYPE_SK_STORAGE];
	int (*map_flags)[BPF_F_NO_PREALLOC];
	int *key;
	struct seeded *value;
} seeds SEC(".maps");

INLINE struct bbr *bbr_of(struct sock *sk)
{
	return (struct bbr *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

// BBR keeps this estimate until it has measured for ten rounds.
INLINE void set_estimate(struct bbr *bbr, u32 bandwidth)
{
	u32 round = bbr->rtt_cnt;
#pragma unroll
	for (int n = 0; n < 3; n++) {
		bbr->bw.s[n].v = bandwidth;
		bbr->bw.s[n].t = round;
	}
	bbr->full_bw = bandwidth;
}

INLINE void set_mode(struct bbr *bbr, u32 mode, u32 pacing_gain, u32 cwnd_gain)
{
	SET_BITS(bbr, mode, mode);
	SET_BITS(bbr, pacing_gain, pacing_gain);
	SET_BITS(bbr, cwnd_gain, cwnd_gain);
}

INLINE void begin_check(struct seeded *seeded, u32 check, u32 round)
{
	seeded->check = check;
	seeded->round = round;
	seeded->delivered = 0;
}

// An application's own limit holds.
INLINE void set_rate(struct sock *sk, u64 rate)
{
	u64 most = sk->sk_max_pacing_rate;
	sk->sk_pacing_rate = rate < most ? rate : most;
}

// Seeds BBR with the rate of the whole share, also where the window is smaller: the limit of one start is no measure of the path. The rate
// is by the connection's own round trip, as BBR's window is.
INLINE void seed(struct sock *sk, struct seeded *seeded, u32 share)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u64 rtt_us = tp->srtt_us >> 3;
	// A share below what leaves unpaced shows nothing that BBR would not see at once. The last: beyond what BBR's unit holds.
	if (share < UNPACED || !rtt_us || (u64)share >> (32 - BW_SCALE) >= rtt_us)
		return;
	struct bbr *bbr = bbr_of(sk);
	u32 bandwidth = ((u64)share << BW_SCALE) / rtt_us;
	set_rate(sk, (u64)share * tp->mss_cache * SEED_PACE / rtt_us);
	set_estimate(bbr, bandwidth);
	set_mode(bbr, BBR_PROBE_BW, BBR_UNIT, CWND_GAIN);
	SET_BITS(bbr, has_seen_rtt, 1); // or BBR computes its first rate again
	SET_BITS(bbr, full_bw_reached, 1);
	SET_BITS(bbr, full_bw_cnt, 3);
	SET_BITS(bbr, cycle_idx, 0);
	bbr->cycle_mstamp = tp->tcp_mstamp;
	seeded->share = share;
	seeded->seed = bandwidth;
	begin_check(seeded, CHECK_FIRST, bbr->rtt_cnt);
	count(COUNT_BBR_SEEDED);
}

// The path carries less. BBR drains the queue and goes on from the measured rate; the next round exceeds it, in case it is too low.
INLINE void lower(struct bbr *bbr, struct seeded *seeded, u32 bandwidth)
{
	set_estimate(bbr, bandwidth);
	SET_BITS(bbr, full_bw_reached, 1);
	set_mode(bbr, BBR_DRAIN, DRAIN_GAIN, HIGH_GAIN);
	seeded->seed = bandwidth;
	begin_check(seeded, CHECK_EXCEEDED, bbr->rtt_cnt);
	count(COUNT_BBR_TOO_HIGH);
}

// The path carries more. BBR searches for the rate as at any start, from what was delivered.
INLINE void raise(struct bbr *bbr, struct seeded *seeded)
{
	set_mode(bbr, BBR_STARTUP, HIGH_GAIN, HIGH_GAIN);
	SET_BITS(bbr, full_bw_reached, 0);
	SET_BITS(bbr, full_bw_cnt, 0);
	bbr->full_bw = bbr->bw.s[0].v;
	seeded->check = CHECK_OVER;
	count(COUNT_BBR_TOO_LOW);
}

// True if the queue is longer than the segments that leave at once make it.
INLINE int is_queued(const struct seeded *seeded, const struct rate_sample *sample, u64 min_rtt_us)
{
	u32 share = seeded->share | !seeded->share;
	u32 at_once = seeded->check == CHECK_FIRST ? smaller(share, UNPACED) : 2;
	return sample->rtt_us > 0 &&
	       (u64)sample->rtt_us > min_rtt_us + min_rtt_us / 8 + 1000 + min_rtt_us * at_once / share;
}

// Checks the seed while it is BBR's estimate.
INLINE void check_seed(struct sock *sk, struct seeded *seeded, const struct rate_sample *sample, u32 bandwidth)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct bbr *bbr = bbr_of(sk);
	int queued = is_queued(seeded, sample, bbr->min_rtt_us);
	u32 rounds = bbr->rtt_cnt - seeded->round;
	if ((u64)bbr->bw.s[0].v * 5 >= (u64)seeded->seed * 6) {
		raise(bbr, seeded);
		return;
	}
	struct train *train = &seeded->train;
	if (!train->begun) {
		follow_train(train, tp->tcp_mstamp, tp->delivered, seeded->seed);
		seeded->round = bbr->rtt_cnt;
	} else if (seeded->check == CHECK_FIRST) {
		u32 segments = whole_bunches(train, tp->tcp_mstamp, tp->delivered, seeded->seed);
		if (segments && is_narrower(train, segments, seeded->seed, sample->rtt_us - (long)bbr->min_rtt_us)) {
			u32 rate = train_rate(train, segments);
			lower(bbr, seeded, rate > bandwidth ? rate : bandwidth);
			return;
		}
		follow_train(train, tp->tcp_mstamp, tp->delivered, seeded->seed);
		if (rounds && sample->is_app_limited) {
			// Too little was sent to show anything: the next round may.
			train->begun = 0;
			return;
		}
		if (rounds)
			begin_check(seeded, CHECK_EXCEEDED, bbr->rtt_cnt);
	} else if ((queued && rounds) || rounds >= MOST_CHECKED) {
		// No more than the seed: the queue of the check goes first.
		SET_BITS(bbr, cycle_idx, EMPTYING_PHASE);
		SET_BITS(bbr, pacing_gain, EMPTYING_GAIN);
		bbr->cycle_mstamp = tp->tcp_mstamp;
		begin_check(seeded, CHECK_DELIVERED, bbr->rtt_cnt);
		return;
	}
	u64 rate = (((u64)seeded->seed * tp->mss_cache * 1000000) >> BW_SCALE) * CHECK_GAIN / BBR_UNIT;
	if (!queued && sk->sk_pacing_rate < rate)
		set_rate(sk, rate);
}

// BBR keeps its highest estimate for ten rounds. If that is well above what is delivered, and there is a queue, then others share the path
// by now.
INLINE void check_delivered(struct bbr *bbr, struct seeded *seeded, const struct rate_sample *sample, u32 bandwidth)
{
	u32 rounds = bbr->rtt_cnt - seeded->round;
	if (rounds > MOST_WATCHED) {
		seeded->check = CHECK_OVER;
		return;
	}
	if (!sample->is_app_limited && bandwidth > seeded->delivered)
		seeded->delivered = bandwidth;
	if (rounds < 2 || !BITS(bbr, round_start))
		return;
	int queued = sample->rtt_us * 2 > (long)bbr->min_rtt_us * 3;
	if (!sample->is_app_limited && queued && seeded->delivered &&
	    (u64)seeded->delivered * 10 < (u64)bbr->bw.s[0].v * 8) {
		lower(bbr, seeded, seeded->delivered);
		return;
	}
	seeded->delivered = bandwidth;
}

// Takes one acknowledgement, after BBR has processed it.
static __attribute__((noinline)) int check_start(struct sock *sk, struct seeded *seeded, const struct rate_sample *sample)
{
	struct bbr *bbr = bbr_of(sk);
	if (bbr->rtt_cnt > MOST_ROUNDS)
		seeded->check = CHECK_OVER;
	if (seeded->check == CHECK_OVER || sample->delivered <= 0 || sample->interval_us <= 0)
		return 0;
	u32 bandwidth = ((u64)sample->delivered << BW_SCALE) / sample->interval_us;
	if (seeded->check == CHECK_DELIVERED) {
		check_delivered(bbr, seeded, sample, bandwidth);
		return 0;
	}
	u32 mode = BITS(bbr, mode);
	if (mode == BBR_PROBE_BW)
		check_seed(sk, seeded, sample, bandwidth);
	else if (mode != BBR_DRAIN)
		begin_check(seeded, CHECK_DELIVERED, bbr->rtt_cnt);
	return 0;
}
