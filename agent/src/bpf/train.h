// SPDX-License-Identifier: MIT OR Apache-2.0
// What the acknowledgements of a start's first segments show. The kernel never paces a connection's first ten segments. They pass the
// bottleneck back to back, so the distances of their acknowledgements show its rate, one round trip after the start.
//
// Bandwidths are in BBR's unit: packets in 2^24 microseconds. Times are the low half of the kernel's clock in microseconds.

#pragma once

#include "kernel.h"
#include "start.h"

#define BW_SCALE 24
// Segments that leave unpaced.
#define UNPACED 10
// Segments after the first bunch that a rate is taken over, at least.
#define FEWEST_OF_TRAIN 8

// Acknowledgements of a flight. Whole bunches are counted, from the end of the first one on: links that aggregate deliver at their own
// moments, and a part of a bunch has a rate far below the path's.
struct train {
	u32 began_us;	// when the first bunch came
	u32 began_with; // what was delivered by its end
	u32 last_us;	// the newest acknowledgement
	u32 last_with;
	u8 begun;
	u8 spreads; // the first bunch is over
	u8 unused[2];
};

// Whether an acknowledgement belongs to the bunch before it: it came four times as early as expected for what it acknowledges.
INLINE int is_bunched(const struct train *train, u32 now_us, u32 delivered, u32 expected)
{
	u64 acked = delivered - train->last_with;
	u32 time = now_us - train->last_us;
	return 4ull * time * expected < acked << BW_SCALE;
}

// Takes one acknowledgement.
INLINE void follow_train(struct train *train, u32 now_us, u32 delivered, u32 expected)
{
	if (!train->begun) {
		train->begun = 1;
		train->spreads = 0;
	} else if (!is_bunched(train, now_us, delivered, expected)) {
		train->spreads = 1;
	}
	train->last_us = now_us;
	train->last_with = delivered;
	if (!train->spreads) {
		train->began_us = now_us;
		train->began_with = delivered;
	}
}

// The segments of the train's whole bunches after the first; 0: too few yet. Called before the acknowledgement is part of the train.
INLINE u32 whole_bunches(const struct train *train, u32 now_us, u32 delivered, u32 expected)
{
	u32 segments = train->last_with - train->began_with, time = train->last_us - train->began_us;
	if (!train->begun || segments < FEWEST_OF_TRAIN || !time || time >> 31 ||
	    is_bunched(train, now_us, delivered, expected))
		return 0;
	return segments;
}

// The bandwidth of N of its segments.
INLINE u32 train_rate(const struct train *train, u32 segments)
{
	u32 time = train->last_us - train->began_us;
	u64 rate = ((u64)segments << BW_SCALE) / (time | !time);
	return rate > 0xffffffff ? 0xffffffff : rate;
}

// Whether the path is narrower than expected: the train's rate is lower, and the round-trip time has grown by at least half of what a
// bottleneck of that rate explains. An application that rests makes no queue, and neither do late acknowledgements.
INLINE int is_narrower(const struct train *train, u32 segments, u32 expected, long grown_us)
{
	u64 time = train->last_us - train->began_us, by_expected = ((u64)segments << BW_SCALE) / (expected | !expected);
	u64 late = time > by_expected ? time - by_expected : 0;
	return (u64)train_rate(train, segments) * 10 < (u64)expected * 7 && grown_us > 1000 && (u64)grown_us * 2 > late;
}
