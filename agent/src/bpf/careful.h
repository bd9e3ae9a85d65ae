// SPDX-License-Identifier: MIT OR Apache-2.0
// The phases of Careful Resume (RFC 9959): the contract's `CarefulResume` (spand_proto::resume) in the same whole numbers. Amounts and
// windows are segments, positions are sequences. A test runs it in the kernel against that type.

#pragma once

#include "tables.h"

// A round trip above the saved one times this shows another path.
#define MOST_RTT_RATIO 10

// What a connection shows at an acknowledgement. Times are the low half of the kernel's clock, as in measure.h.
struct careful_ack {
	u32 now_us;
	u32 acked;
	u32 newest;
	u32 sent;
	u32 flight;
	u32 rtt_us;
	u32 min_rtt_us;
	u32 recovering;
};

INLINE int careful_enter(struct careful *careful, u8 phase)
{
	careful->phase = phase;
	if (phase != CAREFUL_NORMAL)
		careful->ended_in = phase;
	return 1;
}

// Half a saved round trip would double the rate.
INLINE int above_half(u32 min_rtt_us, u32 saved_rtt_us)
{
	return min_rtt_us > saved_rtt_us / 2;
}

INLINE int confirms(u32 min_rtt_us, u32 saved_rtt_us)
{
	return above_half(min_rtt_us, saved_rtt_us) && min_rtt_us <= (u64)saved_rtt_us * MOST_RTT_RATIO;
}

INLINE int may_jump(const struct careful *careful, const struct careful_ack *ack, u32 waiting, u32 allowed)
{
	return careful->phase == CAREFUL_RECONNAISSANCE && (int)(ack->newest - careful->boundary) >= 0 && !ack->recovering &&
	       (u64)ack->flight + waiting > allowed;
}

// Jumps to this window, 0 for none; or goes on as any other connection. Each of these returns whether another phase has begun.
__attribute__((noinline)) int careful_jump(struct careful *careful, const struct careful_ack *ack, u32 window, u32 saved_rtt_us,
					   u32 cwnd)
{
	// No caller passes a null pointer, but the verifier checks a global function without its callers.
	if (!careful || !ack)
		return 0;
	if (careful->phase != CAREFUL_RECONNAISSANCE)
		return 0;
	if (!confirms(ack->min_rtt_us, saved_rtt_us) || window <= cwnd || window <= ack->flight)
		return careful_enter(careful, CAREFUL_NORMAL);
	careful->pipe_size = ack->flight;
	careful->window = window;
	careful->boundary = ack->sent;
	careful->entered_us = ack->now_us;
	careful->rtt_us = ack->rtt_us;
	careful->saved_rtt_us = saved_rtt_us;
	return careful_enter(careful, CAREFUL_UNVALIDATED);
}

INLINE int careful_congestion(struct careful *careful, u32 sent)
{
	if (careful->phase == CAREFUL_RECONNAISSANCE)
		return careful_enter(careful, CAREFUL_NORMAL);
	if (careful->phase != CAREFUL_UNVALIDATED && careful->phase != CAREFUL_VALIDATING)
		return 0;
	u32 half = careful->pipe_size / 2;
	careful->window = half > careful->initial_window ? half : careful->initial_window;
	careful->boundary = sent;
	return careful_enter(careful, CAREFUL_SAFE_RETREAT);
}

// The end of the unvalidated data: what was not used of the window is taken back.
INLINE int careful_validate(struct careful *careful, u32 sent, u32 flight)
{
	u32 pipe_size = careful->pipe_size;
	if (flight < careful->initial_window || flight <= pipe_size) {
		careful->window = pipe_size > careful->initial_window ? pipe_size : careful->initial_window;
		return careful_enter(careful, CAREFUL_NORMAL);
	}
	careful->window = flight;
	careful->boundary = sent;
	return careful_enter(careful, CAREFUL_VALIDATING);
}

__attribute__((noinline)) int careful_acked(struct careful *careful, const struct careful_ack *ack)
{
	if (!careful || !ack)
		return 0;
	u8 phase = careful->phase;
	if (phase <= CAREFUL_RECONNAISSANCE)
		return 0;
	u32 pipe_size = careful->pipe_size + ack->acked;
	careful->pipe_size = pipe_size < ack->acked ? 0xffffffff : pipe_size;
	int beyond = ack->newest - careful->boundary, since = ack->now_us - careful->entered_us;
	if (phase == CAREFUL_UNVALIDATED) {
		if (!above_half(ack->min_rtt_us, careful->saved_rtt_us))
			return careful_congestion(careful, ack->sent);
		int full = (u64)ack->flight + ack->acked >= careful->window;
		if (full || beyond > 0 || (since > 0 && (u32)since > careful->rtt_us))
			return careful_validate(careful, ack->sent, ack->flight);
		return 0;
	}
	if (beyond < 0 || (phase == CAREFUL_SAFE_RETREAT && ack->recovering))
		return 0;
	return careful_enter(careful, CAREFUL_NORMAL);
}
