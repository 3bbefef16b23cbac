// Notebooks, into which the panel types: a line becomes a cell below the one that is selected, and
// is run, so that the notebook keeps what was done.

const LOAD = "%load_ext tnt_notebook";

export class Notebooks {
  constructor(app, tracker, actions) {
    this.app = app;
    this.tracker = tracker;
    this.actions = actions;
  }

  /** The notebook in front, or the one that was last; null where none is open. */
  get current() {
    return this.tracker.currentWidget;
  }

  /** Where a kernel's notebook lies; undefined where this server has no such notebook. */
  pathOf(kernel) {
    // Several notebooks may have one kernel: the one that is open is meant.
    const open = this.tracker.find((one) => one.sessionContext.session?.kernel?.id === kernel);
    if (open) return open.context.path;
    const sessions = [...this.app.serviceManager.sessions.running()];
    return sessions.find((one) => one.kernel?.id === kernel && one.type === "notebook")?.path;
  }

  open(path) {
    return this.app.commands.execute("docmanager:open", { path, factory: "Notebook" });
  }

  /** Types a line into a notebook and runs it. */
  async type(notebook, line) {
    this.app.shell.activateById(notebook.id);
    await notebook.context.ready;
    await notebook.sessionContext.ready;
    const source = (await loads(notebook)) ? line : `${LOAD}\n${line}`;
    const { content } = notebook;
    const cells = content.model.sharedModel;
    let place = content.activeCellIndex;
    const chosen = cells.getCell(place);
    if (chosen?.cell_type === "code" && !chosen.getSource().trim()) chosen.setSource(source);
    else cells.insertCell((place += 1), { cell_type: "code", source, metadata: {} });
    content.deselectAll();
    content.activeCellIndex = place;
    void content.scrollToItem(place);
    await this.actions.run(content, notebook.sessionContext);
  }
}

/** Whether a notebook's kernel has loaded the extension; of a busy one, whether a cell says so. */
async function loads({ sessionContext, content }) {
  const kernel = sessionContext.session?.kernel;
  if (kernel?.status !== "idle") {
    return [...content.model.cells].some((cell) => cell.sharedModel.getSource().includes(LOAD));
  }
  const loaded = "'tnt_notebook' in get_ipython().extension_manager.loaded";
  const asked = { code: "", silent: true, store_history: false, user_expressions: { loaded } };
  const { content: told } = await kernel.requestExecute(asked).done;
  return told.user_expressions?.loaded?.data?.["text/plain"] === "True";
}
