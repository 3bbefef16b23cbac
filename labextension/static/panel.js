// The panel: asks the server while somebody looks, shows what there is, and types what is clicked.

import { clusterNode, since } from "./cluster.js";
import { element, keep, tell } from "./dom.js";
import { form } from "./form.js";
import { lineOf } from "./run.js";

const EVERY_MS = 2000;

export class Panel {
  constructor({ ask, notebooks, openOutput, openRun }) {
    Object.assign(this, { ask, notebooks, openRun });
    this.titles = new Map();
    this.does = {
      output: openOutput,
      run: openRun,
      open: (path) => void notebooks.open(path),
      titleOf: (run) => this.titles.get(run),
      pathOf: (cluster) => this.#pathOf(cluster),
      refuses: (cluster) => this.#refusal(cluster),
      type: (cluster, line) => void this.#type(cluster, line),
    };
    notebooks.tracker.currentChanged.connect(() => this.#place());
    this.error = element("p", { class: "tnt-lab-error", role: "alert", hidden: "" });
    this.start = element("div", { id: "tnt-lab-start", hidden: "" });
    this.toggle = element("button", { class: "tnt-lab-new", "aria-expanded": "false",
      "aria-controls": "tnt-lab-start", title: "%tnt_cluster start", click: () => void this.#unfold(),
    }, "Start ranks");
    this.clusters = element("div", { class: "tnt-lab-clusters" });
    this.runs = element("ul", { class: "tnt-lab-runs" });
    this.none = element("p", { class: "tnt-lab-none" }, "No cluster is running.");
    this.runsHead = element("h2", { hidden: "" }, "Runs");
    this.node = element("div", { class: "tnt-lab-panel", role: "region", "aria-label":
      "Clusters and runs of tnt_notebook" },
    element("div", { class: "tnt-lab-top" }, element("h2", {}, "Clusters"), this.toggle),
    this.error, this.start, this.none, this.clusters, this.runsHead, this.runs);
  }

  /** Begins or ends to ask: told when somebody opens or leaves the panel. */
  look(looks) {
    if (looks && !this.timer) {
      this.timer = setInterval(() => void this.read(), EVERY_MS);
      void this.read();
    } else if (!looks) {
      clearInterval(this.timer);
      this.timer = undefined;
    }
  }

  async read() {
    if (this.reading || document.hidden) return;
    this.reading = true;
    try {
      this.#show(await this.ask("clusters"));
      this.error.hidden = true;
    } catch (error) {
      this.#fail(error);
    } finally {
      this.reading = false;
    }
  }

  #show({ clusters, runs, time }) {
    this.titles = new Map(runs.map((run) => [run.id, run.title]));
    this.none.hidden = clusters.length > 0;
    keep(this.clusters, [...clusters].reverse(), (cluster) => cluster.id,
      () => clusterNode(this.does), (node, cluster) => {
        node.update({ ...cluster, rows: cluster.rows.map((row) => ({ ...row, time })) });
      });
    this.runsHead.hidden = runs.length === 0;
    keep(this.runs, runs, (run) => run.id, (run) => this.#run(run), (node, run) => {
      node.querySelector(".tnt-lab-dot").dataset.state = run.state;
      tell(node.querySelector(".tnt-lab-when"), `${run.state} · ${since(run.began)}`);
    });
    this.#place();
  }

  #place() {
    this.place?.(this.notebooks.current?.title.label);
  }

  #run(run) {
    const title = `${lineOf(run)}, in a tab of its own`;
    return element("li", {}, element("button", { title, click: () => void this.openRun(run) },
      element("span", { class: "tnt-lab-dot" }), element("span", { class: "tnt-lab-title" }, run.title),
      element("span", { class: "tnt-lab-when" })));
  }

  async #unfold() {
    if (!this.place) {
      try {
        const made = form(await this.ask("options"), (line) => {
          void this.#unfold();
          void this.#type(null, line);
        });
        this.start.append(made.node);
        this.place = made.place;
        this.#place();
      } catch (error) {
        return this.#fail(error);
      }
    }
    this.start.hidden = !this.start.hidden;
    this.toggle.setAttribute("aria-expanded", String(!this.start.hidden));
    if (!this.start.hidden) this.start.querySelector("input").focus();
  }

  /** Where the notebook lies that owns a cluster; undefined where none on this server does. */
  #pathOf(cluster) {
    return cluster.owned ? this.notebooks.pathOf(cluster.kernel) : undefined;
  }

  /** Why no line can be typed for a cluster; "" where it can. */
  #refusal(cluster) {
    if (!cluster.here) return `it is kept on ${cluster.host}, and can be reached from there`;
    if (cluster.owned) {
      return this.#pathOf(cluster) ? "" : `it belongs to ${cluster.owner}, and only there this can be typed`;
    }
    return this.notebooks.current ? "" : "open a notebook first: the line runs there";
  }

  /** Types a line into the notebook that owns a cluster, or into the one in front. */
  async #type(cluster, line) {
    try {
      const path = cluster && this.#pathOf(cluster);
      const notebook = path ? await this.notebooks.open(path) : this.notebooks.current;
      await this.notebooks.type(notebook, line);
    } catch (error) {
      this.#fail(error);
    }
    await this.read();
  }

  #fail(error) {
    tell(this.error, error.message);
    this.error.hidden = false;
  }
}
