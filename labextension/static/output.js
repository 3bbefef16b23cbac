// What ranks printed, in a tab of JupyterLab with a tab for each rank: it grows as they print.

import { element, tell } from "./dom.js";

const EVERY_MS = 1000;

/** A function that opens the output of a cluster at a rank; one tab for each cluster. */
export function opener(ask, openTab) {
  const open = new Map();
  return (cluster, which = 0) => {
    let output = open.get(cluster.id);
    if (!output) {
      output = new Output(ask, cluster);
      const title = `What the ranks of cluster ${cluster.id} wrote`;
      const tab = openTab(output.node, `Output ${cluster.id}`, title);
      open.set(cluster.id, output);
      tab.disposed.connect(() => {
        output.close();
        open.delete(cluster.id);
      });
    }
    output.choose(String(which));
  };
}

class Output {
  constructor(ask, cluster) {
    this.ask = ask;
    this.cluster = cluster.id;
    const names = [...Array(cluster.ranks).keys(), "launcher"].map(String);
    this.tabs = new Map(names.map((name) => [name, this.#tab(name)]));
    this.line = element("code", { class: "tnt-lab-line" });
    this.text = element("pre", { class: "tnt-lab-log", role: "tabpanel", tabindex: "0" });
    const list = element("div", { role: "tablist", "aria-label": "Ranks", class: "tnt-lab-tabs" },
      ...this.tabs.values());
    this.node = element("div", { class: "tnt-lab-output" }, list, this.line, this.text);
    this.timer = setInterval(() => void this.read(), EVERY_MS);
  }

  choose(name) {
    if (name !== this.chosen) tell(this.text, "");
    this.chosen = name;
    for (const [other, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
    }
    const rank = name !== "launcher";
    tell(this.line, rank ? `%tnt_cluster logs ${name}` : "what the launcher itself wrote");
    this.text.setAttribute("aria-label", rank ? `Output of rank ${name}` : "Output of the launcher");
    void this.read();
  }

  close() {
    clearInterval(this.timer);
  }

  async read() {
    const which = this.chosen;
    if (document.hidden || (this.node.isConnected && !this.node.offsetParent)) return;
    let text;
    try {
      ({ text } = await this.ask("log", { cluster: this.cluster, which }));
    } catch (error) {
      this.close(); // the cluster has ended: what was read last stays
      if (this.text.textContent) return;
      text = error.message;
    }
    if (which !== this.chosen) return;
    const { scrollTop, scrollHeight, clientHeight } = this.text;
    const atEnd = scrollHeight - scrollTop - clientHeight < 20;
    tell(this.text, text || "(nothing yet)");
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }

  #tab(name) {
    const label = name === "launcher" ? "launcher" : `rank ${name}`;
    const keydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const names = [...this.tabs.keys()];
      const next = names.at((names.indexOf(this.chosen) + step) % names.length);
      this.choose(next);
      this.tabs.get(next).focus();
    };
    return element("button", { role: "tab", click: () => this.choose(name), keydown }, label);
  }
}
