// Which agents are subscribed, how they are set, and what they did.

import { get, latest } from "/dashboard/api.js";
import { h, mark, table } from "/dashboard/dom.js";
import { age, count, moment, words } from "/dashboard/format.js";
import { listen, present } from "/dashboard/live.js";

/** Agents of one page. */
const SHOWN = 100;
/** Pause after a key before it is searched for, in milliseconds. */
const PAUSE = 150;
/** Shortest time between two looks, in milliseconds. */
const AGAIN = 3_000;

/** Whether connections start on advice there; an older agent does not say. */
const paused = (agent) => {
  if (agent.paused === null) return "–";
  if (!agent.paused) return "active";
  return agent.paused_until === null ? "paused" : `paused until ${moment(agent.paused_until)}`;
};

/** Whether the host's programs see the connections whose starts are pushed to it. */
const seen = (reported) => {
  if (reported === null) return "–";
  if (reported.starts_unseen === null) return "cannot be seen";
  return reported.starts_unseen ? "no" : "yes, as reported";
};

/** What is wrong on such hosts, and the likely causes. */
const UNSEEN = (hosts) => `Starts are announced to ${hosts.slice(0, 5).join(", ")}${hosts.length > 5 ? ` and ${count(hosts.length - 5)} more` : ""}, but the programs there see almost none of the connections: ` +
  "the service's listening sockets were made before it was moved into bpf.cgroup (restart it), it runs in another cgroup, its connections terminate elsewhere (a virtual machine, NAT, a load balancer), or handshakes do not complete. See spand-agent doctor on the host.";

export function agents(failed) {
  const summary = h("p", {}, "");
  const list = table("Agents", [
    ["host", "label"], ["advice", "whole"], "connections seen", ["applied", "n"], ["in force in time", "n mid"], ["last report", "n mid"], ["transfers", "n mid"], ["control", "n mid"],
    ["first flights with loss", "n far"], ["not advised, reason", "wide"], ["mode, apply method, version", "mid"], ["addresses", "far"], ["since", "far"],
  ], [], "No agent is subscribed.");
  const unseen = h("p", { class: "problem", role: "alert", hidden: true }, "");
  const search = h("input", { type: "search", id: "search", placeholder: "host, address or a part", autocomplete: "off", spellcheck: "false", maxlength: "64" });
  const turn = (name, by) => h("button", { type: "button", click: () => go(offset + by * SHOWN) }, name);
  const [back, on] = [turn("Previous", -1), turn("Next", 1)];
  let offset = 0;
  let pause = null;
  function go(to) {
    offset = to;
    asking.run();
  }
  search.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => go(0), PAUSE);
  });
  const element = h("div", { class: "view" },
    h("form", { class: "tools", role: "search", submit: (event) => event.preventDefault() }, h("label", { for: "search" }, "Search"), search, back, on),
    summary, unseen, list.element,
    h("p", { class: "hint" }, "Only agents that start connections by eBPF see their transfers and report them. Mode “observe” applies nothing. “In force in time” counts announced starts that were in force before the handshake could complete; “connections seen” shows whether the programs saw their connections."));

  const asking = latest(async (signal) => {
    const asked = new URLSearchParams({ limit: SHOWN, offset, ...(search.value.trim() && { search: search.value.trim() }) });
    const { agents, total, next_offset: next } = await get(`/v1/agents?${asked}`, signal);
    if (agents.length === 0 && offset > 0) return go(Math.max(0, offset - SHOWN));
    mark(back, "disabled", offset === 0 ? "" : null);
    mark(on, "disabled", next === null ? "" : null);
    for (const button of [back, on]) button.hidden = total <= SHOWN;
    const own = present().message?.traffic.version;
    const others = agents.filter(({ version }) => version !== null && own !== undefined && version !== own).length;
    const off = agents.filter((agent) => agent.paused).length;
    summary.textContent = `${count(total)} ${search.value.trim() ? "found" : "subscribed"}${total > agents.length ? `, ${count(offset + 1)} to ${count(offset + agents.length)} shown, of which` : ""}` +
      `${others > 0 ? `; ${count(others)} with another version than this gateway (${own})` : ""}` +
      `${off > 0 ? `; advice is paused on ${count(off)}` : ""}.`;
    const blind = agents.filter((agent) => agent.reported?.starts_unseen);
    unseen.hidden = blind.length === 0;
    unseen.textContent = blind.length === 0 ? "" : UNSEEN(blind.map((agent) => agent.host_name ?? "unnamed"));
    list.show(agents.map((agent) => {
      const reported = agent.reported;
      const more = agent.addresses_in_all - agent.addresses.length;
      const refused = Object.entries(reported?.refused_by_reason ?? {}).map(([reason, times]) => `${words(reason)}: ${count(times)}`);
      return [
        agent.host_name ?? "unnamed", paused(agent), seen(reported), count(reported?.applied),
        reported === null ? "–" : `${count(reported.pushes.in_time)} of ${count(reported.pushes.received)}`, reported === null ? "none" : `${age(reported.last_report_age_s)} ago`,
        count(reported?.transfers), count(reported?.transfers_control), count(reported?.first_flight_losses),
        reported === null ? "–" : refused.join(", ") || "none", `${words(agent.mode)}, ${words(agent.method)}, ${agent.version ?? "version unknown"}`,
        agent.addresses.join(", ") + (more > 0 ? ` and ${count(more)} more` : ""), moment(agent.subscribed_at),
      ];
    }));
  }, failed);
  asking.run();
  let renewed = Date.now();
  const stop = listen(({ resync }) => {
    if (!resync && Date.now() - renewed < AGAIN) return;
    renewed = Date.now();
    asking.run();
  });
  return {
    element,
    end() {
      clearTimeout(pause);
      stop();
      asking.stop();
    },
  };
}
