// SPDX-License-Identifier: MIT OR Apache-2.0
// A network's budget: what its connections reserve and release, and their losses.

#pragma once

#include "tables.h"

// First flights in a row of which more than half must have been lost for advice to be held back here, and for how long. By then the
// gateway has decided for all hosts. One client's losses hold back its own advice; for its network no more than half of these
// count, so that it takes two clients.
#define LOSSES_TO_RETREAT 6
#define LOSSES_OF_ONE (LOSSES_TO_RETREAT / 2)
#define PENALTY_NS 5000000000ull

// Halves of a budget that are over. A half is two round trips: a first flight ends within it.
INLINE u32 halves_over(const struct budget *budget, u64 now, u64 half_ns)
{
	u64 passed = now - budget->turned_ns;
	return passed < half_ns ? 0 : passed < 2 * half_ns ? 1 : 2;
}

// Whether a client's advice is held back after losses here: those of its network, or its own.
INLINE u32 is_held_back(const struct budget *budget, u64 client, u64 now)
{
	if (now - budget->lost_ns >= PENALTY_NS)
		return 0;
	return budget->losses >= LOSSES_TO_RETREAT ||
	       (budget->lost_by == client && budget->losses_of_one >= LOSSES_TO_RETREAT);
}

// What is left of a network's lease, and whether a client's advice is held back after losses here. Changes nothing: the
// caller may still be refused. Nothing is left of a network that was removed meanwhile.
INLINE u32 budget_left(struct budget *budget, const struct network *network, u64 client, u64 now, u64 half_ns, u32 *held_back)
{
	u32 left = network->lease;
	bpf_spin_lock(&budget->lock);
	*held_back = is_held_back(budget, client, now);
	if (budget->era != network->era) {
		*held_back = 0;
		left = 0;
	} else if (left != NO_LIMIT) {
		u32 over = halves_over(budget, now, half_ns);
		u64 used = over == 0 ? (u64)budget->now + budget->before : over == 1 ? budget->now : 0;
		left = used < left ? left - used : 0;
	}
	bpf_spin_unlock(&budget->lock);
	return left;
}

// Reserves a connection's segments above the default.
INLINE void reserve(struct budget *budget, struct connection *connection, u64 now, u64 half_ns)
{
	bpf_spin_lock(&budget->lock);
	if (budget->era == connection->era) {
		u32 over = halves_over(budget, now, half_ns);
		if (over) {
			budget->before = over == 1 ? budget->now : 0;
			budget->now = 0;
			budget->turns += over;
			budget->turned_ns = now;
		}
		budget->now += connection->extra;
		connection->turn = budget->turns;
	}
	bpf_spin_unlock(&budget->lock);
}

// At least half of a client's first flight arrived.
INLINE void clear_losses(struct connection *connection, u64 client)
{
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	if (!budget || !(budget->losses || (budget->losses_of_one && budget->lost_by == client)))
		return;
	bpf_spin_lock(&budget->lock);
	if (budget->era == connection->era) {
		budget->losses = 0;
		if (budget->lost_by == client)
			budget->losses_of_one = 0;
	}
	bpf_spin_unlock(&budget->lock);
}

INLINE void release(struct connection *connection)
{
	u32 segments = connection->extra;
	if (!segments)
		return;
	connection->extra = 0;
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	if (!budget)
		return;
	bpf_spin_lock(&budget->lock);
	// In the half that it was reserved in; if that is over, or the network was removed, so is the reservation.
	u32 age = connection->era == budget->era ? budget->turns - connection->turn : 2;
	if (age == 0)
		budget->now -= smaller(segments, budget->now);
	else if (age == 1)
		budget->before -= smaller(segments, budget->before);
	bpf_spin_unlock(&budget->lock);
}

// More than half of a client's advised first flight was lost.
INLINE void record_loss(struct connection *connection, u64 client)
{
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	if (!budget)
		return;
	u64 now = bpf_ktime_get_boot_ns();
	bpf_spin_lock(&budget->lock);
	if (budget->era == connection->era) {
		u32 is_late = now - budget->lost_ns >= PENALTY_NS;
		u32 losses = is_late ? 0 : budget->losses;
		u32 of_one = is_late || budget->lost_by != client ? 0 : budget->losses_of_one;
		if (of_one < LOSSES_OF_ONE && losses < LOSSES_TO_RETREAT)
			losses++;
		if (of_one < LOSSES_TO_RETREAT)
			of_one++;
		budget->losses = losses;
		budget->losses_of_one = of_one;
		budget->lost_by = client;
		budget->lost_ns = now;
	}
	bpf_spin_unlock(&budget->lock);
}

// Claims the right to jump with what is saved of this network. One connection has it at a time, at the longest until the advice ends.
INLINE int claim(struct budget *budget, struct connection *connection, u64 now, u64 until)
{
	int free = 0;
	bpf_spin_lock(&budget->lock);
	if (budget->era == connection->era && budget->claimed_ns <= now && budget->no_jump_ns <= now) {
		budget->claimed_ns = until;
		free = 1;
	}
	bpf_spin_unlock(&budget->lock);
	if (free)
		connection->claimed_ns = until;
	return free;
}

// Gives the right back. Where the claim has lapsed, another connection may have one, which has another end and stays.
INLINE void end_claim(struct connection *connection)
{
	u64 own = connection->claimed_ns;
	if (!own)
		return;
	connection->claimed_ns = 0;
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	if (!budget)
		return;
	bpf_spin_lock(&budget->lock);
	if (budget->era == connection->era && budget->claimed_ns == own)
		budget->claimed_ns = 0;
	bpf_spin_unlock(&budget->lock);
}

// Keeps all connections from jumping with what is saved of this network.
INLINE void forbid_jumps(const struct connection *connection, u64 until)
{
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	if (!budget)
		return;
	bpf_spin_lock(&budget->lock);
	if (budget->era == connection->era && budget->no_jump_ns < until)
		budget->no_jump_ns = until;
	bpf_spin_unlock(&budget->lock);
}
