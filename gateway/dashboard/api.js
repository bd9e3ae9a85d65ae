// Asking the gateway. The same interface as for scripts: docs/reference/api.md.

/** The JSON at `path`; an error carries the gateway's own sentence. */
export async function get(path, signal) {
  const response = await fetch(path, { signal, headers: { accept: "application/json" } });
  const document = await response.json().catch(() => null);
  if (!response.ok) {
    const error = new Error(document?.detail ?? `the gateway answered ${response.status}`);
    error.status = response.status;
    throw error;
  }
  return document;
}

/** The address of a network's page or question; a prefix keeps its slash. */
export const prefixPath = (before, prefix) => `${before}${prefix.split("/").map(encodeURIComponent).join("/")}`;

/** Runs `task(signal)` so that a new run ends the one before; errors other than that go to `failed`. */
export function latest(task, failed) {
  let running = null;
  const run = async (...given) => {
    running?.abort();
    const own = new AbortController();
    running = own;
    try {
      await task(own.signal, ...given);
      if (!own.signal.aborted) failed(null);
    } catch (error) {
      if (!own.signal.aborted) failed(error);
    }
  };
  return { run, stop: () => running?.abort() };
}
