// A cluster in the panel: what it is, its ranks, and what can be done with it.

import { element, keep, tell } from "./dom.js";
import { lineOf } from "./run.js";

const MIB = 2 ** 20;

function deadOf(cluster) {
  return cluster.rows.filter((row) => row.state === "dead").length;
}

/** In a word what a cluster does, as far as its files and its ranks' processes tell. */
export function stateOf(cluster) {
  if (!cluster.kept) return cluster.here ? "lost" : "elsewhere";
  if (deadOf(cluster)) return `${deadOf(cluster)} dead`;
  return cluster.busy ? "training" : cluster.ready ? "ready" : "starting";
}

/** The lines that can be typed for a cluster: word, line. Of one that is owned its owner types them. */
export function actions(cluster) {
  const { id, owned, kept } = cluster;
  if (!owned) {
    return [
      ...(kept ? [{ word: "Attach", line: `%tnt_cluster attach ${id}` }] : []),
      { word: "Stop", line: `%tnt_cluster stop ${id}` },
    ];
  }
  return [
    ...(deadOf(cluster) ? [{ word: "Restart dead", line: "%tnt_cluster restart --missing" }] : []),
    { word: "Restart", line: "%tnt_cluster restart" },
    { word: "Detach", line: "%tnt_cluster detach" },
    { word: "Stop", line: "%tnt_cluster stop" },
  ];
}

/** The node of a cluster; `does` has what its buttons do. */
export function clusterNode(does) {
  const part = (tag, name) => element(tag, { class: `tnt-lab-${name}` });
  const parts = {
    pill: part("span", "state"), name: part("h3", "name"), what: part("p", "what"),
    owner: part("p", "owner"), ranks: part("ul", "ranks"), buttons: part("div", "buttons"),
  };
  parts.ranks.setAttribute("aria-label", "Ranks");
  const head = element("div", { class: "tnt-lab-head" }, parts.name, parts.pill);
  const node = element("section", { class: "tnt-lab-cluster" }, head, parts.what, parts.owner,
    parts.ranks, parts.buttons);
  node.update = (cluster) => update(node, parts, cluster, does);
  return node;
}

function update(node, parts, cluster, does) {
  const { id, ranks, launcher, job, host } = cluster;
  node.setAttribute("aria-label", `Cluster ${id}`);
  tell(parts.name, `${ranks} ${ranks === 1 ? "rank" : "ranks"}`);
  tell(parts.pill, stateOf(cluster));
  parts.pill.dataset.state = stateOf(cluster).replace(/^\d+ /, "");
  parts.pill.title = cluster.state;
  const where = launcher === "local" ? `on ${host}` : `by ${launcher}${job ? `, job ${job}` : ""}`;
  const ends = cluster.owned ? "" : ` · ${cluster.state}`;
  tell(parts.what, `${id} · ${where} · since ${since(cluster.began)}${ends}`);
  owner(parts.owner, cluster, does);
  keep(parts.ranks, cluster.rows, (row) => row.rank,
    (row) => rankNode(() => does.output(cluster, row.rank)), (child, row) => child.update(row));
  keep(parts.buttons, buttons(cluster, does), (one) => one.word, () => {
    const made = element("button", { click: () => {
      if (made.getAttribute("aria-disabled") !== "true") made.act();
    } });
    return made;
  }, (child, one) => {
    tell(child, one.word);
    child.title = one.why ? `${one.line}: ${one.why}` : one.line;
    child.setAttribute("aria-disabled", String(Boolean(one.why)));
    child.act = one.act;
  });
}

function buttons(cluster, does) {
  const all = actions(cluster).map((one) => ({
    ...one, why: does.refuses(cluster), act: () => does.type(cluster, one.line),
  }));
  const run = cluster.run && { id: cluster.run, title: does.titleOf(cluster.run) };
  return [
    ...(run?.title ? [{ word: "Live card", line: lineOf(run), act: () => does.run(run) }] : []),
    { word: "Output", line: "%tnt_cluster logs", act: () => does.output(cluster, 0) },
    ...all,
  ];
}

function owner(node, cluster, does) {
  const path = does.pathOf(cluster);
  const said = `${cluster.owner}|${path ?? ""}`;
  if (node.dataset.said === said) return;
  node.dataset.said = said;
  const link = path && element("button", { class: "tnt-lab-link", title: `Open ${path}`,
    click: () => does.open(path) }, path);
  node.replaceChildren(...(cluster.owned
    ? ["of ", link || cluster.owner] : [cluster.owner === "?" ? "" : "owned by nobody"]));
}

function rankNode(click) {
  const part = (name) => element("span", { class: `tnt-lab-${name}` });
  const [dot, name, meter, cpu, memory] = ["dot", "rank", "meter", "cpu", "memory"].map(part);
  const bar = element("i");
  meter.append(bar);
  const button = element("button", { click }, dot, name, meter, cpu, memory);
  const node = element("li", {}, button);
  let before = null;
  node.update = (row) => {
    dot.dataset.state = row.state;
    tell(name, String(row.rank));
    const load = before && row.cpu_s != null && row.time > before.time
      ? Math.max(0, (row.cpu_s - before.cpu_s) / (row.time - before.time)) : null;
    if (row.cpu_s != null && row.time !== before?.time) before = row;
    bar.style.width = `${Math.min(100, (100 * (load ?? 0)) / (row.cores?.length || 1))}%`;
    if (load !== null) tell(cpu, `${Math.round(100 * load)} %`);
    tell(memory, row.memory == null ? row.state : size(row.memory));
    const cores = row.cores?.length ? `, cores ${row.cores.join(", ")}` : "";
    button.title = `rank ${row.rank}: ${row.state}, on ${row.host}${cores}`
      + `${row.pid ? `, process ${row.pid}` : ""}\n%tnt_cluster logs ${row.rank}`;
  };
  return node;
}

function size(bytes) {
  return bytes < 1024 * MIB ? `${Math.round(bytes / MIB)} MiB` : `${(bytes / MIB / 1024).toFixed(1)} GiB`;
}

/** A time of today as a clock shows it, else the day. */
export function since(seconds) {
  const then = new Date(1000 * seconds);
  const today = then.toDateString() === new Date().toDateString();
  return today
    ? then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false })
    : then.toLocaleDateString([], { day: "numeric", month: "short" });
}
