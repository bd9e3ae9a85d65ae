// SPDX-License-Identifier: MIT OR Apache-2.0
// A slow-start threshold that a connection measures by its acknowledgements: the contract's `OwnThreshold::on_ack`
// (spand_proto::growth::threshold) in the same whole numbers. A test runs it in the kernel against that function.

#pragma once

#include "connection.h"

// Acknowledgements further apart than this part of a round trip do not belong together.
#define CLOSE_PART 8
// Segments that a rate is taken over, at least.
#define FEWEST_SEGMENTS 2

INLINE void begin_group(struct measured *measured, u32 at_us)
{
	measured->began = at_us;
	measured->last = at_us;
	measured->segments = 0;
}

// An acknowledgement of `acked` new segments. The threshold where it was estimated again; else 0. Times are the low half of the
// kernel's clock: the same as the contract's where no two that are compared lie half an hour apart.
__attribute__((noinline)) u32 measure(struct measured *measured, u8 *measures, u32 at_us, u32 acked, u32 rtt_us)
{
	// No caller passes a null pointer, but the verifier checks a global function without its callers.
	if (!measured || !measures)
		return 0;
	if (*measures == MEASURES_NOT || !rtt_us)
		return 0;
	if (*measures == MEASURES_FIRST || at_us - measured->last > rtt_us / CLOSE_PART) {
		*measures = MEASURES_ON;
		begin_group(measured, at_us);
		return 0;
	}
	measured->last = at_us;
	u32 segments = measured->segments + acked, time = at_us - measured->began;
	if (segments < acked)
		segments = 0xffffffff;
	measured->segments = segments;
	u32 before = measured->minimum;
	// Where the clock ran backwards nothing has passed since.
	u32 since = at_us - measured->estimated;
	if (segments < FEWEST_SEGMENTS || !time || (before && (since >> 31 || since < rtt_us)))
		return 0;
	u64 estimate = (u64)segments * rtt_us / time;
	if (estimate > 0xffffffff)
		estimate = 0xffffffff;
	estimate |= !estimate;
	begin_group(measured, at_us);
	measured->estimated = at_us;
	u64 apart = estimate > before ? estimate - before : before - estimate;
	if (before && 10 * apart <= before)
		*measures = MEASURES_NOT;
	if (!before || estimate < before)
		measured->minimum = estimate;
	return measured->minimum;
}
