// SPDX-License-Identifier: MIT OR Apache-2.0
// CUBIC with the hooks of the agent's and nothing of its own in them: what the way into the kernel's functions costs.

#include "kernel.h"

SEC("struct_ops")
void pass_init(u64 *arguments)
{
	cubictcp_init((struct sock *)arguments[0]);
}

SEC("struct_ops")
u32 pass_ssthresh(u64 *arguments)
{
	return cubictcp_recalc_ssthresh((struct sock *)arguments[0]);
}

SEC("struct_ops")
void pass_avoid(u64 *arguments)
{
	cubictcp_cong_avoid((struct sock *)arguments[0], arguments[1], arguments[2]);
}

SEC("struct_ops")
void pass_state(u64 *arguments)
{
	cubictcp_state((struct sock *)arguments[0], arguments[1]);
}

SEC("struct_ops")
void pass_event(u64 *arguments)
{
	cubictcp_cwnd_event((struct sock *)arguments[0], arguments[1]);
}

SEC("struct_ops")
void pass_acked(u64 *arguments)
{
	cubictcp_acked((struct sock *)arguments[0], (const struct ack_sample *)arguments[1]);
}

SEC("struct_ops")
u32 pass_undo(u64 *arguments)
{
	return tcp_reno_undo_cwnd((struct sock *)arguments[0]);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops pass = {
	.init = (void *)pass_init,
	.ssthresh = (void *)pass_ssthresh,
	.cong_avoid = (void *)pass_avoid,
	.set_state = (void *)pass_state,
	.cwnd_event = (void *)pass_event,
	.pkts_acked = (void *)pass_acked,
	.undo_cwnd = (void *)pass_undo,
	.name = "pass_cubic",
};

char _license[] SEC("license") = "Dual MIT/GPL";
