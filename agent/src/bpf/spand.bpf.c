// SPDX-License-Identifier: MIT OR Apache-2.0
// Starts TCP connections at their share of the path (TCP/SPAND section 4). The order to read: model.h, inputs.h, start.h,
// train.h, tables.h, budget.h, connection.h, pace.h, growth.h, careful.h, jump.h, measure.h, check.h, congestion.h, report.h, timeout.h,
// sockets.h, size.h, option.h. What connections on BBR have of their own is bbr.bpf.c.

#include "kernel.h"
#include "start.h"
#include "tables.h"
#include "connection.h"
#include "congestion.h"
#include "sockets.h"
#include "size.h"

// The start function by itself, for its test.
struct trial {
	struct network network;
	struct transfer transfer;
	struct policy policy;
	struct start start;
};

SEC("syscall")
int try_start(struct trial *trial)
{
	struct network network = trial->network;
	struct transfer transfer = trial->transfer;
	struct policy policy = trial->policy;
	struct start start = {};
	decide(&network, &transfer, &policy, &start);
	trial->start = start;
	return 0;
}

// The same of growth.
struct growth_trial {
	u64 window;
	u64 grown;
	u32 growth;
	u32 ssthresh;
	u32 acked;
	u32 unused;
};

SEC("syscall")
int try_grow(struct growth_trial *trial)
{
	trial->grown = grow(trial->growth, trial->window, trial->ssthresh, trial->acked);
	return 0;
}

// And of a connection's own threshold.
struct measure_trial {
	struct measured measured;
	u32 measures;
	u32 at_us;
	u32 acked;
	u32 rtt_us;
	u32 threshold;
};

SEC("syscall")
int try_measure(struct measure_trial *trial)
{
	struct measured measured = trial->measured;
	u8 measures = trial->measures;
	trial->threshold = measure(&measured, &measures, trial->at_us, trial->acked, trial->rtt_us);
	trial->measured = measured;
	trial->measures = measures;
	return 0;
}

// And of one step of Careful Resume.
enum careful_step { CAREFUL_JUMPS, CAREFUL_ACKED, CAREFUL_CONGESTED };

struct careful_trial {
	struct careful careful;
	struct careful_ack ack;
	u32 step; // enum careful_step
	u32 window;
	u32 saved_rtt_us;
	u32 cwnd;
	u32 waiting;
	u32 entered; // whether another phase has begun
	u32 may_jump; // whether it might have jumped before
	u32 unused;
};

SEC("syscall")
int try_careful(struct careful_trial *trial)
{
	struct careful careful = trial->careful;
	struct careful_ack ack = trial->ack;
	trial->may_jump = may_jump(&careful, &ack, trial->waiting, trial->cwnd);
	if (trial->step == CAREFUL_JUMPS)
		trial->entered = careful_jump(&careful, &ack, trial->window, trial->saved_rtt_us, trial->cwnd);
	else if (trial->step == CAREFUL_ACKED)
		trial->entered = careful_acked(&careful, &ack);
	else
		trial->entered = careful_congestion(&careful, ack.sent);
	trial->careful = careful;
	return 0;
}

// Clocks at one moment: from the first two, which stand still with the host, the agent learns how long a tick is; the last one is
// that of lifetimes, which end also while it is suspended.
struct clocks {
	u64 ticks;
	u64 ns;
	u64 boot_ns;
};

SEC("syscall")
int read_clocks(struct clocks *clocks)
{
	clocks->ticks = bpf_jiffies64();
	clocks->ns = bpf_ktime_get_ns();
	clocks->boot_ns = bpf_ktime_get_boot_ns();
	return 0;
}

// The network namespace of the process that runs this.
struct namespace {
	u64 cookie;
};

SEC("syscall")
int read_namespace(struct namespace *namespace)
{
	namespace->cookie = bpf_get_current_task_btf()->nsproxy->net_ns->net_cookie;
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
