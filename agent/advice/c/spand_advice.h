// SPDX-License-Identifier: MIT OR Apache-2.0
// Starts for connections by the advice of the host's agent: the client of docs/explain/applications.md for C99 and C++, with libc alone.
//
//     struct spand_advice advice;
//     struct spand_start start;
//     spand_advice_open(&advice, "/run/spand-agent/applications.sock", "video");
//     if (spand_advice_start(&advice, (struct sockaddr *)&client, bytes, rtt_us, mss_bytes, &start))
//         begin_with(start.window_bytes);
//     ...
//     spand_advice_report(&advice, &start, &outcome);
//
// Only spand_advice_start waits, for the agent's answer and no longer than patience_us. Without an agent every start is plain at
// once, and at most one call a second tries to reach one. No signal is raised, no memory allocated, no thread started.
//
// A handle is used by one thread at a time: give each thread its own, or take a lock of yours around each call. After fork() the
// child opens its own.
//
// With -std=c99 this comes before other headers, or _POSIX_C_SOURCE is 200809L or more.

#ifndef SPAND_ADVICE_H
#define SPAND_ADVICE_H

#if defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// Longest wait for an answer, unless the handle names another one.
#define SPAND_PATIENCE_US 5000u
// Longest line that the protocol has, without its end.
#define SPAND_LINE_BYTES 8192u
// Attempts to reach an agent are this far apart.
#define SPAND_RETRY_US 1000000u
// An agent that left a question without an answer, and sent nothing for so long, hangs.
#define SPAND_SILENCE_US 3000000u

// A connection to the agent.
struct spand_advice {
	int fd;               // readable when spand_advice_read has something to read; -1 without an agent
	uint32_t patience_us; // longest wait for an answer, to the next millisecond; may be changed
	// The rest is for the functions below.
	struct sockaddr_un socket;
	char application[65];
	bool has_path, has_tried, is_late, skips_line;
	uint64_t tried_us, asked_us, last_id;
	size_t length;
	char line[SPAND_LINE_BYTES + 1];
};

// How a connection starts.
struct spand_start {
	uint64_t id;               // for its reports; 0 where the agent did not answer, and nothing is reported
	bool is_advised;           // false: a plain start, with the application's own initial window
	uint64_t window_bytes;     // congestion window
	uint64_t threshold_bytes;  // slow-start threshold; 0 where slow start goes on
	uint64_t burst_bytes;      // bytes that may leave at once
	uint64_t rate_bytes_per_s; // rate of the rest of the first window; 0 where all of it may leave at once
	uint64_t lifetime_us;      // for how long the answer holds
	char reason[48];           // why the start is plain; empty where it is advised
};

// Whether the sender was in slow start at the end.
enum spand_slow_start { SPAND_SLOW_START_UNKNOWN, SPAND_SLOW_START_NO, SPAND_SLOW_START_YES };

// What held the sender back at the end.
enum spand_limited_by { SPAND_LIMIT_UNKNOWN, SPAND_LIMIT_WINDOW, SPAND_LIMIT_RECEIVER, SPAND_LIMIT_APPLICATION };

// What a connection met; the fields of `ended` in docs/explain/applications.md. 0 where something was not measured.
struct spand_outcome {
	const struct sockaddr *local; // NULL where not known
	uint64_t acknowledged_bytes, duration_us, end_window_bytes, loss_window_bytes;
	uint32_t congestion_events, lost_segments;
	uint64_t mss_bytes, srtt_us, rtt_min_us;
	uint32_t first_flight_sent_segments, first_flight_lost_segments;
	enum spand_limited_by limited_by;
	enum spand_slow_start ended_in_slow_start;
};

// A line that is being written, or a place in one that is being read.
struct spand_text {
	char text[1024];
	size_t length;
};
struct spand_cursor {
	const char *at, *end;
};

static inline uint64_t spand_now_us(void)
{
	struct timespec now = { 0, 0 };
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

// ---- Lines that are written -------------------------------------------------------------------------------------------------

static inline void spand_append(struct spand_text *line, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	size_t room = sizeof line->text - line->length;
	int written = vsnprintf(line->text + line->length, room, format, values);
	va_end(values);
	// A line that does not fit has a length at which it is not sent.
	line->length = written >= 0 && (size_t)written < room ? line->length + (size_t)written : sizeof line->text - 1;
}

// A field that is left out where it is 0.
static inline void spand_append_number(struct spand_text *line, const char *name, uint64_t value)
{
	if (value)
		spand_append(line, ",\"%s\":%" PRIu64, name, value);
}

// Address and port; false for another family.
static inline bool spand_append_address(struct spand_text *line, const char *name, const struct sockaddr *address)
{
	char text[INET6_ADDRSTRLEN];
	struct sockaddr_in ipv4;
	struct sockaddr_in6 ipv6;
	if (address && address->sa_family == AF_INET) {
		memcpy(&ipv4, address, sizeof ipv4);
		if (inet_ntop(AF_INET, &ipv4.sin_addr, text, sizeof text)) {
			spand_append(line, ",\"%s\":\"%s:%u\"", name, text, (unsigned)ntohs(ipv4.sin_port));
			return true;
		}
	} else if (address && address->sa_family == AF_INET6) {
		memcpy(&ipv6, address, sizeof ipv6);
		if (inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof text)) {
			spand_append(line, ",\"%s\":\"[%s]:%u\"", name, text, (unsigned)ntohs(ipv6.sin6_port));
			return true;
		}
	}
	return false;
}

static inline void spand_disconnect(struct spand_advice *advice)
{
	if (advice->fd >= 0)
		close(advice->fd);
	advice->fd = -1;
	advice->length = 0;
	advice->is_late = advice->skips_line = false;
}

static inline bool spand_send(struct spand_advice *advice, const struct spand_text *line)
{
	if (line->length >= sizeof line->text - 1)
		return false;
	ssize_t sent = send(advice->fd, line->text, line->length, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent >= 0 && (size_t)sent == line->length)
		return true;
	// A line that left in part would run into the next one.
	if (sent >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		spand_disconnect(advice);
	return false;
}

// ---- Lines that are read ----------------------------------------------------------------------------------------------------

static inline void spand_skip_space(struct spand_cursor *cursor)
{
	while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t' || *cursor->at == '\r'))
		cursor->at++;
}

static inline bool spand_take(struct spand_cursor *cursor, char expected)
{
	spand_skip_space(cursor);
	if (cursor->at == cursor->end || *cursor->at != expected)
		return false;
	cursor->at++;
	return true;
}

// What stands between two quotes.
static inline bool spand_take_string(struct spand_cursor *cursor, struct spand_cursor *string)
{
	if (!spand_take(cursor, '"'))
		return false;
	for (string->at = cursor->at; cursor->at < cursor->end; cursor->at++) {
		if (*cursor->at == '"') {
			string->end = cursor->at++;
			return true;
		}
		if (*cursor->at == '\\' && ++cursor->at == cursor->end)
			return false;
	}
	return false;
}

static inline bool spand_take_number(struct spand_cursor *cursor, uint64_t *number)
{
	spand_skip_space(cursor);
	const char *first = cursor->at;
	for (*number = 0; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++) {
		uint64_t digit = (uint64_t)(*cursor->at - '0');
		if (*number > (UINT64_MAX - digit) / 10)
			return false;
		*number = *number * 10 + digit;
	}
	return cursor->at > first;
}

// Any value, whatever it contains.
static inline bool spand_skip_value(struct spand_cursor *cursor)
{
	struct spand_cursor string;
	size_t depth = 0;
	do {
		spand_skip_space(cursor);
		if (cursor->at == cursor->end)
			return false;
		char first = *cursor->at;
		if (first == '"') {
			if (!spand_take_string(cursor, &string))
				return false;
		} else if (first == '{' || first == '[') {
			depth++;
			cursor->at++;
		} else if (first == '}' || first == ']' || first == ',' || first == ':') {
			if (!depth)
				return false;
			depth -= first == '}' || first == ']';
			cursor->at++;
		} else {
			while (cursor->at < cursor->end && !memchr("{}[]\",: \t\r", *cursor->at, 10))
				cursor->at++;
		}
	} while (depth);
	return true;
}

static inline bool spand_is(const struct spand_cursor *string, const char *name)
{
	size_t length = (size_t)(string->end - string->at);
	return length == strlen(name) && !memcmp(string->at, name, length);
}

// The value of a field of `started`. Fields that are not there yet are skipped.
static inline bool spand_take_field(struct spand_cursor *cursor, const struct spand_cursor *name, struct spand_start *start)
{
	const struct {
		const char *name;
		uint64_t *value;
	} numbers[] = {
		{ "id", &start->id },
		{ "window_bytes", &start->window_bytes },
		{ "threshold_bytes", &start->threshold_bytes },
		{ "burst_bytes", &start->burst_bytes },
		{ "rate_bytes_per_s", &start->rate_bytes_per_s },
		{ "lifetime_us", &start->lifetime_us },
	};
	spand_skip_space(cursor);
	if (cursor->at < cursor->end && *cursor->at == 'n')
		return spand_skip_value(cursor);
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		if (spand_is(name, numbers[i].name))
			return spand_take_number(cursor, numbers[i].value);
	if (spand_is(name, "advised")) {
		struct spand_cursor word = *cursor;
		bool is_word = spand_skip_value(cursor);
		word.end = cursor->at;
		start->is_advised = spand_is(&word, "true");
		return is_word && (start->is_advised || spand_is(&word, "false"));
	}
	if (spand_is(name, "reason")) {
		struct spand_cursor reason;
		if (!spand_take_string(cursor, &reason))
			return false;
		size_t length = (size_t)(reason.end - reason.at);
		length = length < sizeof start->reason ? length : sizeof start->reason - 1;
		for (size_t i = 0; i < length; i++) {
			char c = reason.at[i];
			start->reason[i] = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_';
		}
		start->reason[length] = '\0';
		return true;
	}
	return spand_skip_value(cursor);
}

// Reads `{"started":{…}}`; false for another line, and for an answer that no connection can start with.
static inline bool spand_take_started(struct spand_cursor cursor, struct spand_start *start)
{
	struct spand_cursor name;
	memset(start, 0, sizeof *start);
	if (!spand_take(&cursor, '{') || !spand_take_string(&cursor, &name) || !spand_is(&name, "started"))
		return false;
	if (!spand_take(&cursor, ':') || !spand_take(&cursor, '{'))
		return false;
	do {
		if (!spand_take_string(&cursor, &name) || !spand_take(&cursor, ':') || !spand_take_field(&cursor, &name, start))
			return false;
	} while (spand_take(&cursor, ','));
	if (!spand_take(&cursor, '}') || !spand_take(&cursor, '}'))
		return false;
	spand_skip_space(&cursor);
	return cursor.at == cursor.end && start->id && (start->is_advised ? start->window_bytes > 0 : start->reason[0] != '\0');
}

enum spand_received { SPAND_NOTHING, SPAND_SOMETHING, SPAND_ANSWER, SPAND_GONE };

// Takes in what arrived, and the answer to `id` into `start`. Other lines are skipped.
static inline enum spand_received spand_receive(struct spand_advice *advice, uint64_t id, struct spand_start *start)
{
	ssize_t count = recv(advice->fd, advice->line + advice->length, sizeof advice->line - advice->length, MSG_DONTWAIT);
	if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return SPAND_NOTHING;
	if (count <= 0) {
		spand_disconnect(advice);
		return SPAND_GONE;
	}
	enum spand_received received = SPAND_SOMETHING;
	advice->length += (size_t)count;
	struct spand_cursor line = { advice->line, NULL }, rest = { advice->line, advice->line + advice->length };
	while ((line.end = (const char *)memchr(rest.at, '\n', (size_t)(rest.end - rest.at))) != NULL) {
		struct spand_start answer;
		line.at = rest.at;
		rest.at = line.end + 1;
		if (!advice->skips_line && id && spand_take_started(line, &answer) && answer.id == id) {
			*start = answer;
			received = SPAND_ANSWER;
		}
		advice->skips_line = false;
	}
	advice->length = (size_t)(rest.end - rest.at);
	memmove(advice->line, rest.at, advice->length);
	if (advice->skips_line || advice->length == sizeof advice->line) {
		advice->skips_line = true;
		advice->length = 0;
	}
	return received;
}

// ---- What applications call -------------------------------------------------------------------------------------------------

static inline bool spand_connect(struct spand_advice *advice, uint64_t now_us)
{
	if (!advice->has_path || (advice->has_tried && now_us - advice->tried_us < SPAND_RETRY_US))
		return false;
	advice->has_tried = true;
	advice->tried_us = now_us;
	advice->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (advice->fd < 0)
		return false;
	struct spand_text hello = { { 0 }, 0 };
	spand_append(&hello, "{\"hello\":{\"version\":1,\"application\":\"%s\"}}\n", advice->application);
	if (!connect(advice->fd, (const struct sockaddr *)&advice->socket, sizeof advice->socket) && spand_send(advice, &hello))
		return true;
	spand_disconnect(advice);
	return false;
}

// Takes in what the agent sent meanwhile, and connects where it is gone. The other functions do both first, however long ago they were
// called: call this where that is too late to connect. Never waits. Whether the agent is there.
static inline bool spand_advice_read(struct spand_advice *advice)
{
	uint64_t now_us = spand_now_us();
	// No more at once than a socket holds.
	for (int reads = 0; reads < 32 && advice->fd >= 0; reads++) {
		if (spand_receive(advice, 0, NULL) != SPAND_SOMETHING)
			break;
		advice->is_late = false;
	}
	if (advice->is_late && now_us - advice->asked_us >= SPAND_SILENCE_US)
		spand_disconnect(advice);
	return advice->fd >= 0 || spand_connect(advice, now_us);
}

// Connects to the agent's socket for applications. `application` is the name that `spand-agent status` shows. Never waits.
// Whether an agent took the connection; the handle is of use in any case.
static inline bool spand_advice_open(struct spand_advice *advice, const char *path, const char *application)
{
	memset(advice, 0, sizeof *advice);
	advice->fd = -1;
	advice->patience_us = SPAND_PATIENCE_US;
	advice->socket.sun_family = AF_UNIX;
	size_t length = strlen(path);
	advice->has_path = length > 0 && length < sizeof advice->socket.sun_path;
	if (advice->has_path)
		memcpy(advice->socket.sun_path, path, length);
	for (size_t i = 0; i < sizeof advice->application - 1 && application[i]; i++) {
		char c = application[i];
		advice->application[i] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '_' : c;
	}
	return spand_connect(advice, spand_now_us());
}

static inline bool spand_plain(struct spand_start *start, const char *reason)
{
	memset(start, 0, sizeof *start);
	memcpy(start->reason, reason, strlen(reason));
	return false;
}

// How a connection to `destination` (IPv4 or IPv6) starts; 0 for `bytes`, `rtt_us` or `mss_bytes` that are not known. Whether the
// start is advised; else `start->reason` names why not: `agent_gone` where no answer came in time, `unsupported_address` for
// another family, or a reason of docs/explain/applications.md.
static inline bool spand_advice_start(struct spand_advice *advice, const struct sockaddr *destination, uint64_t bytes,
				      uint64_t rtt_us, uint64_t mss_bytes, struct spand_start *start)
{
	struct spand_text line = { { 0 }, 0 };
	uint64_t id = advice->last_id + 1;
	spand_append(&line, "{\"start\":{\"id\":%" PRIu64, id);
	if (!spand_append_address(&line, "destination", destination))
		return spand_plain(start, "unsupported_address");
	spand_append_number(&line, "bytes", bytes);
	spand_append_number(&line, "rtt_us", rtt_us);
	spand_append_number(&line, "mss_bytes", mss_bytes);
	spand_append(&line, "}}\n");
	spand_plain(start, "agent_gone");
	// One that left the last question without an answer, and sent nothing since, is waited for no more.
	if (!spand_advice_read(advice) || advice->is_late || !spand_send(advice, &line))
		return false;
	advice->last_id = id;
	advice->asked_us = spand_now_us();
	for (uint64_t passed_us = 0; passed_us < advice->patience_us; passed_us = spand_now_us() - advice->asked_us) {
		struct pollfd readable = { advice->fd, POLLIN, 0 };
		uint64_t left_ms = (advice->patience_us - passed_us) / 1000;
		if (poll(&readable, 1, left_ms < 1 ? 1 : left_ms < INT32_MAX ? (int)left_ms : INT32_MAX) <= 0)
			continue;
		enum spand_received received = spand_receive(advice, id, start);
		if (received == SPAND_ANSWER)
			return start->is_advised;
		if (received == SPAND_GONE)
			return false;
	}
	advice->is_late = true;
	return false;
}

static inline bool spand_ended(struct spand_advice *advice, uint64_t id, bool goes_on, const struct spand_outcome *outcome)
{
	static const char *const limits[] = { "", "window", "receiver", "application" };
	struct spand_text line = { { 0 }, 0 };
	if (!id || !spand_advice_read(advice))
		return false;
	spand_append(&line, "{\"ended\":{\"id\":%" PRIu64 "%s", id, goes_on ? ",\"goes_on\":true" : "");
	spand_append_address(&line, "local", outcome->local);
	spand_append_number(&line, "acknowledged_bytes", outcome->acknowledged_bytes);
	spand_append_number(&line, "duration_us", outcome->duration_us);
	spand_append_number(&line, "end_window_bytes", outcome->end_window_bytes);
	spand_append_number(&line, "loss_window_bytes", outcome->loss_window_bytes);
	spand_append_number(&line, "congestion_events", outcome->congestion_events);
	spand_append_number(&line, "lost_segments", outcome->lost_segments);
	spand_append_number(&line, "mss_bytes", outcome->mss_bytes);
	spand_append_number(&line, "srtt_us", outcome->srtt_us);
	spand_append_number(&line, "rtt_min_us", outcome->rtt_min_us);
	if (outcome->first_flight_sent_segments)
		spand_append(&line, ",\"first_flight_sent_segments\":%" PRIu32 ",\"first_flight_lost_segments\":%" PRIu32,
			     outcome->first_flight_sent_segments, outcome->first_flight_lost_segments);
	if (outcome->limited_by > SPAND_LIMIT_UNKNOWN && outcome->limited_by <= SPAND_LIMIT_APPLICATION)
		spand_append(&line, ",\"limited_by\":\"%s\"", limits[outcome->limited_by]);
	if (outcome->ended_in_slow_start > SPAND_SLOW_START_UNKNOWN && outcome->ended_in_slow_start <= SPAND_SLOW_START_YES)
		spand_append(&line, ",\"ended_in_slow_start\":%s",
			     outcome->ended_in_slow_start == SPAND_SLOW_START_YES ? "true" : "false");
	spand_append(&line, "}}\n");
	return spand_send(advice, &line);
}

// The first flight is over: all of it was acknowledged, or a packet of it was lost. With the segments that had left by then and
// those of them that were lost. A plain start's is none. Whether the line left; never waits.
static inline bool spand_advice_first_flight(struct spand_advice *advice, const struct spand_start *start,
					     uint32_t sent_segments, uint32_t lost_segments)
{
	struct spand_outcome outcome;
	memset(&outcome, 0, sizeof outcome);
	outcome.first_flight_sent_segments = sent_segments;
	outcome.first_flight_lost_segments = lost_segments;
	return spand_ended(advice, start->is_advised ? start->id : 0, true, &outcome);
}

// The connection is over; a second report of it is none. Whether the line left; never waits.
static inline bool spand_advice_report(struct spand_advice *advice, struct spand_start *start, const struct spand_outcome *outcome)
{
	uint64_t id = start->id;
	start->id = 0;
	return spand_ended(advice, id, false, outcome);
}

// The handle is over. Starts without a report are forgotten.
static inline void spand_advice_close(struct spand_advice *advice)
{
	spand_disconnect(advice);
	advice->has_path = false;
}

#endif
