// SPDX-License-Identifier: MIT OR Apache-2.0
// The start model (docs/explain/definitions.md, "The start") in integers: what leaves from a window, and the window that a transfer's size calls for.
//
// Linux counts acknowledged segments, so k of the model is 1 here (the paper has 1 or 2).

#pragma once

#include "kernel.h"

// Largest share that is computed with; what a scaled window of 2^30 bytes holds at any usual segment size.
#define MOST_SEGMENTS 65535u

// The kernel's verifier checks a function that is not static by itself, with any arguments, and assumes nothing of its result or of what it
// writes. The checks of a computation that is made of such functions add up; in one function its choices multiply.
#define PART __attribute__((noinline))

PART u64 least(u64 a, u64 b)
{
	return a < b ? a : b;
}

// Segments that leave in `rounds` round trips from `window`, growing by one to `share`.
INLINE u64 sent(u64 share, u64 window, u64 rounds)
{
	u64 climbing = share - window;
	if (rounds < climbing)
		climbing = rounds;
	return climbing * window + climbing * (climbing - 1) / 2 + (rounds - climbing) * share;
}

// The sum of the windows from `window` to `share`.
INLINE u64 loss_free(u64 share, u64 window)
{
	return (window + share) * (share + 1 - window) / 2;
}

// What a search asks of a value; each holds from some value on.
enum question {
	PASSES_SHARE,  // the rest does not leave from the next larger window without passing the share (equation 3)
	ENOUGH_ROUNDS, // it leaves from `window` in this many round trips
	ENOUGH_WINDOW, // it leaves from this window in `rounds` round trips
};

struct search {
	u64 share;
	u64 rest;
	u64 window;
	u64 rounds;
};

// Windows are at most MOST_SEGMENTS, and no epoch takes as many rounds: 2^16 values.
#define MOST_STEPS 17

// The smallest value in `low ..= high` that the question holds for.
PART u64 smallest(const struct search *s, u64 low, u64 high, enum question question)
{
	// No caller passes a null pointer, but the verifier checks a global function without its callers.
	if (!s)
		return 0;
	for (int step = 0; step < MOST_STEPS && low < high; step++) {
		u64 middle = low + (high - low) / 2;
		int holds = question == PASSES_SHARE	? loss_free(s->share, middle + 1) < s->rest
			    : question == ENOUGH_ROUNDS ? sent(s->share, s->window, middle) >= s->rest
							: sent(s->share, middle, s->rounds) >= s->rest;
		if (holds)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

// Segments of an epoch.
INLINE u64 epoch_of(u64 share)
{
	return loss_free(share, (share + 1) / 2) + 2 * share + 1;
}

// W', the smallest window that takes no more round trips for a transfer's last epoch than W of equation 3; and in the upper
// half that W.
PART u64 shifted_window(u64 share, u64 segments)
{
	if (share == 0 || share > MOST_SEGMENTS)
		return 0;
	u64 bottom = (share + 1) / 2;
	u64 epoch = epoch_of(share);
	u64 rest = segments % epoch;
	if (rest == 0)
		rest = epoch;
	struct search s = { .share = share, .rest = rest };
	s.window = smallest(&s, bottom, share, PASSES_SHARE);
	if (s.window == 0)
		return share << 32 | share;
	s.rounds = smallest(&s, 0, (rest + s.window - 1) / s.window, ENOUGH_ROUNDS);
	return s.window << 32 | smallest(&s, 1, s.window, ENOUGH_WINDOW);
}
