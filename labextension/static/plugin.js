// The panel as a plugin of JupyterLab: its place, its icon, what it is allowed to use.

import { Notebooks } from "./notebooks.js";
import { opener } from "./output.js";
import { Panel } from "./panel.js";
import { openRun } from "./run.js";
import { server } from "./server.js";

const ID = "tnt_notebook:panel";
const ICON = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <rect x="3" y="4" width="11" height="3.4" rx="1.2"/>
    <rect x="7" y="10.3" width="11" height="3.4" rx="1.2"/>
    <rect x="11" y="16.6" width="10" height="3.4" rx="1.2"/>
    <rect x="15.6" y="4" width="5.4" height="3.4" rx="1.2" opacity=".45"/>
    <rect x="3" y="10.3" width="2.6" height="3.4" rx="1.2" opacity=".45"/>
    <rect x="3" y="16.6" width="6.4" height="3.4" rx="1.2" opacity=".45"/>
  </g></svg>`;

/** The plugin, made of modules that JupyterLab shares: `shared` gives one by its name. */
export async function plugin(shared) {
  const [application, notebook, services, coreutils, apputils, ui, lumino] = await Promise.all(
    ["@jupyterlab/application", "@jupyterlab/notebook", "@jupyterlab/services",
      "@jupyterlab/coreutils", "@jupyterlab/apputils", "@jupyterlab/ui-components",
      "@lumino/widgets"].map(shared),
  );

  function activate(app, tracker, shell, restorer) {
    if (!shell) return; // Notebook 7 has one page for each notebook, and no place for a panel
    addStyle();
    const { serverSettings } = app.serviceManager;
    const ask = server(services.ServerConnection, coreutils.URLExt, serverSettings);
    const main = (node, label, title) => {
      const content = new lumino.Widget({ node });
      const tab = new apputils.MainAreaWidget({ content });
      tab.title.label = label;
      tab.title.caption = title;
      tab.title.icon = icon;
      shell.add(tab, "main", { mode: "split-bottom" });
      return tab;
    };
    const icon = new ui.LabIcon({ name: "tnt_notebook:clusters", svgstr: ICON });
    const panel = new Panel({
      ask,
      notebooks: new Notebooks(app, tracker, notebook.NotebookActions),
      openOutput: opener(ask, main),
      openRun: (run) => openRun(app, tracker, icon, run),
    });
    const widget = new lumino.Widget({ node: panel.node });
    widget.id = "tnt-lab-clusters";
    widget.title.icon = icon;
    widget.title.caption = "Clusters and runs of tnt_notebook";
    // Nobody asks the server while nobody looks.
    widget.processMessage = function (message) {
      lumino.Widget.prototype.processMessage.call(this, message);
      if (["after-show", "after-attach", "after-hide"].includes(message.type)) {
        panel.look(this.isVisible);
      }
    };
    shell.add(widget, "left", { rank: 650 });
    restorer?.add(widget, widget.id);
  }

  return {
    id: ID,
    description: "Clusters and runs of tnt_notebook beside the notebooks.",
    autoStart: true,
    requires: [notebook.INotebookTracker],
    optional: [application.ILabShell, application.ILayoutRestorer],
    activate,
  };
}

function addStyle() {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL("panel.css", import.meta.url).href;
  document.head.append(link);
}
