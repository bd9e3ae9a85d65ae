// Formats numbers and names, always with their unit.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** No-break space, so that a unit stays with its number. */
const NB = "\u00a0";

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const count = (value) => (known(value) ? whole.format(value) : "–");

/** With an SI prefix. */
function scaled(value, units) {
  let step = 0;
  while (Math.abs(value) >= 1000 && step < units.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${Math.abs(value) >= 100 ? whole.format(value) : three.format(value)}${NB}${units[step]}`;
}

export const short = (value) => (known(value) ? scaled(value, ["", "k", "M", "G"]).trim() : "–");
export const packets = (value) => (known(value) ? scaled(value, ["/s", "k/s", "M/s"]) : "–");
export const bits = (value) => (known(value) ? scaled(value, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]) : "–");
export const bytes = (value) => (known(value) ? scaled(value, ["B", "KB", "MB", "GB"]) : "–");
export const segments = (value) => (known(value) ? `${whole.format(value)}${NB}seg` : "–");
export const part = (value) => (known(value) ? `${three.format(value * 100)}${NB}%` : "–");

export function ms(value) {
  if (!known(value)) return "–";
  return value >= 10_000 ? `${three.format(value / 1000)}${NB}s` : `${three.format(value)}${NB}ms`;
}

/** How far a clock is ahead of the gateway's, in milliseconds; negative: behind. */
export function offset(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  const text = size >= 1000 ? `${three.format(size / 1000)}${NB}s` : ms(size);
  return value === 0 ? text : `${text} ${value > 0 ? "ahead" : "behind"}`;
}

/** A time that was saved, or cost where it is negative. */
export const saved = (seconds) => (known(seconds) ? `${seconds < 0 ? "−" : ""}${Math.abs(seconds) < 7_200 ? `${three.format(Math.abs(seconds))}${NB}s` : `${three.format(Math.abs(seconds) / 3600)}${NB}h`}` : "–");

export function age(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 0.95) return `${whole.format(Math.max(seconds, 0) * 1000)}${NB}ms`;
  if (seconds < 120) return `${whole.format(seconds)}${NB}s`;
  if (seconds < 7_200) return `${whole.format(seconds / 60)}${NB}min`;
  return `${whole.format(seconds / 3600)}${NB}h`;
}

/** A time of today, with the date on another day. */
export const moment = (at) => {
  const date = new Date(at);
  return (date.toDateString() === new Date().toDateString() ? clock : day).format(date);
};

/** A moment in seconds since 1970, for charts. */
export const unixS = (at) => Date.parse(at) / 1000;

/** A network's share. */
export const atLeast = (one) => `${one.is_lower_bound ? "≥ " : ""}${segments(one.wc_segments)}`;

/** Why no loss backs a share, after other facts about it. */
export const marked = (one) => (one.mark === null ? "" : `, ${words(one.mark)}`);

/** A signed difference in percent. */
export const change = (value) => (known(value) ? `${value > 0 ? "+" : value < 0 ? "−" : ""}${three.format(Math.abs(value))}${NB}%` : "–");

const WORDS = {
  // why a network has no estimate, and why there is no start
  too_few_samples: "too few samples", too_few_connections: "too few connections", expired: "no new samples for too long",
  nothing_seen: "nothing seen", slow_start_loss: "losses in slow start", timeout: "timeouts", app_limited: "application-limited",
  slow_start_end: "ended in slow start", unknown_control: "unknown congestion control",
  receiver_limited: "receiver-limited", one_sided: "one direction only", midstream: "began before the capture", unfinished: "not finished",
  untimed: "packets without a time", unordered: "packets out of order in time",
  no_estimate: "no estimate yet", stale: "samples too old", no_rtt: "no round-trip time",
  rtt_mismatch: "RTT differs too much", mss_zero: "no MSS", empty_transfer: "no bytes", no_opening: "no threshold by live senders",
  // why no loss backs a share
  random_loss: "loss: random", addresses_differ: "addresses: differ", past_load: "load: past",
  // origins of a sample
  loss: "packet loss", ecn: "ECN mark", end: "end of transfer", end_app_limited: "end, application-limited",
  first_flight: "lost first flight", rate: "delivery rate", carried: "delivery rate after a loss in slow start", end_slow_start: "end in slow start",
  end_receiver_limited: "end, receiver-limited",
  // triggers of a start
  passive_open: "SYN from outside", active_open: "SYN of the host", idle: "packet after an idle time",
  // limits of a start
  fraction: "fraction of the share", cap: "cap", peer_window: "peer's window", budget: "budget", buffer: "bottleneck buffer", floor: "floor",
  // apply methods
  dry_run: "dry run", route: "routes", bpf: "eBPF",
};

/** An identifier of the API in words; unknown ones unchanged. */
export const words = (name) => (name === null || name === undefined ? "–" : WORDS[name] ?? name.replaceAll("_", " "));

/** The text of an entry of the log. */
export function sentence({ kind, what, count: times }) {
  const fixed = {
    "withdrawal expired": "Advice withdrawn: no new samples",
    "withdrawal too_few": "Advice withdrawn: too few samples left",
    "withdrawal evicted": "Advice withdrawn: the table of networks was full",
    "retreat halved": "First flights lost: default window",
    "retreat withdrawn": "First flights lost again: default window for a minute",
    "retreat slower": "Transfers slower than the control group's: default window",
    "retreat slower_withdrawn": "Transfers slower again: default window for a minute",
    "retreat over": "Retreat over",
    "part not_ready": "Not ready",
    "part ready": "Ready again",
    "part state_replaced": "State republished",
    "withdrawal administrator": "Network no longer in the prefix list",
    "part configuration_reloaded": "Configuration reloaded",
    "part configuration_refused": "Configuration invalid, not in force",
    "agent subscribed": "Agent subscribed",
    "agent left": "Agent left",
    "agent refused": "Agent refused",
    "limit capture_lost": "Interface lost",
    "limit capture_dropped_kernel": "Packets dropped: capture buffer full",
    "limit capture_dropped_interface": "Packets dropped by the interface",
    "limit capture_dropped_queue": "Packets dropped: the engine did not keep up",
  }[`${kind} ${what}`];
  const text = fixed ?? (kind === "limit" ? `Limit reached: ${words(what)}` : `${kind}: ${words(what)}`);
  return times > 1 ? `${text} (${count(times)} times)` : text;
}

/** Short texts of the reasons in docs/reference/metrics.md. */
export const IGNORED = {
  link_type: "frames of an unknown link type", not_ip: "frames that are not IP", not_tcp: "IP packets that are not TCP",
  tunnel_gre_not_configured: "GRE or MPLS in IP: no such tunnel is configured",
  tunnel_gre_unknown_endpoint: "GRE or MPLS in IP: not between configured endpoints",
  tunnel_vxlan_not_configured: "VXLAN: no such tunnel is configured",
  tunnel_vxlan_unknown_endpoint: "VXLAN: not between configured endpoints",
  tunnel_geneve_not_configured: "Geneve: no such tunnel is configured",
  tunnel_geneve_unknown_endpoint: "Geneve: not between configured endpoints",
  tunnel_gtp_not_configured: "GTP-U: no such tunnel is configured",
  tunnel_gtp_unknown_endpoint: "GTP-U: not between configured endpoints",
  tunnel_ip_in_ip_not_configured: "IP in IP: no such tunnel is configured",
  tunnel_ip_in_ip_unknown_endpoint: "IP in IP: not between configured endpoints",
  tunnel_tzsp_not_configured: "TZSP: no such tunnel is configured",
  tunnel_tzsp_unknown_endpoint: "TZSP: not between configured endpoints",
  fragment: "fragments without a TCP header", truncated: "frames whose headers were cut", malformed: "inconsistent headers",
  not_internal: "segments with neither end inside", own_traffic: "segments of the gateway's own connections",
  duplicate_copy: "second copies from the mirror port", no_room: "segments: flow table full",
  beyond_window: "data beyond the announced window", one_sided: "samples: one direction only", midstream: "samples: start of the connection not seen",
  app_limited: "samples: application-limited, kept as lower bounds", receiver_limited: "samples: receiver-limited, kept as lower bounds",
  slow_start_end: "samples: ended in slow start, kept as lower bounds", unknown_control: "samples: unknown congestion control",
  slow_start_loss: "samples: packet loss in slow start", timeout: "samples: retransmission timeout", end_after_loss: "samples: ended after a loss",
  unfinished: "samples: ended with data outstanding", untimed: "samples: packets without a time",
  unordered: "samples: packets out of order in time", no_mss: "samples: segment size not known", loss_in_recovery: "losses during recovery",
  karn: "round trips of retransmitted segments", inexact: "sequence ranges that did not fit", no_room_network: "networks: table full",
  time_backwards: "segments with an earlier time", cut_transfer: "incomplete transfers",
};

/** Who announces a network, where that is known. */
export function called(network) {
  return network.as_number === null ? network.as_organisation : `AS${network.as_number} ${network.as_organisation ?? ""}`.trim();
}
