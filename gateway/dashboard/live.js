// The gateway's live stream: one for the page, closed while nobody looks at it.

const listeners = new Set();
let source = null;
let last = null;
let heard = 0;
let state = "connecting";

/** Longest silence that still counts as live, in milliseconds. */
const SILENCE = 5_000;

/** Calls `listener(message)` for each message from now on; gives the means to stop. The last one comes at once. */
export function listen(listener) {
  listeners.add(listener);
  if (last !== null) listener({ ...last, events: [], resync: false });
  return () => listeners.delete(listener);
}

/** The newest message, and whether it is fresh: "live", "silent" or "connecting". */
export function present() {
  if (state === "live" && Date.now() - heard > SILENCE) state = "silent";
  return { message: last, state };
}

/** Seconds without a packet from which a mirror port is silent; the doctor has the same. */
const QUIET_S = 10;

/**
 * What the lack of packets means: { text, level }, the text null while packets come. A mirror port, which has no address of its own, has
 * traffic all the time; a host can be quiet. An interface that is down is among what is not ready.
 */
export function silence({ newest_packet_age_s: seconds, interfaces, not_ready: faults }) {
  const mirrors = interfaces.filter((one) => one.is_mirror).map((one) => one.interface);
  if (faults.some(({ part }) => part === "capture")) return { text: null, level: "bad" };
  if (seconds !== null && seconds <= QUIET_S) return { text: null, level: mirrors.length > 0 && seconds > 2 ? "warn" : "good" };
  const time = seconds === null ? "yet" : `for more than ${QUIET_S} s`;
  if (mirrors.length === 0) return { text: `Quiet: no packets ${time}`, level: null };
  return { text: `No packets on ${mirrors.join(", ")} ${time}, though the interface is up`, level: seconds === null ? "warn" : "bad" };
}

function open() {
  source?.close();
  // After a time without one, what is shown may be old.
  let first = last !== null;
  source = new EventSource("/v1/live");
  source.addEventListener("now", (event) => {
    const message = JSON.parse(event.data);
    heard = Date.now();
    state = "live";
    last = first ? { ...message, resync: true } : message;
    first = false;
    for (const listener of [...listeners]) listener(last);
  });
  source.addEventListener("error", () => {
    state = last === null ? "connecting" : "silent";
    first = last !== null;
    // The browser tries again by itself, but not after a refusal.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => document.hidden || open(), 3_000);
  });
}

/** Starts, and stops while the page is hidden. */
export function start() {
  open();
  document.addEventListener("visibilitychange", () => (document.hidden ? source?.close() : open()));
}
