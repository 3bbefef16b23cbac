// The live card of a run in a tab of its own: a console in which a line has been typed.

/** Opens it; with the kernel that notebooks have, which ends with the tab. */
export async function openRun(app, tracker, icon, run) {
  const name = tracker.currentWidget?.sessionContext.session?.kernel?.name;
  const kernelPreference = name ? { name } : { language: "python" };
  const console = await app.commands.execute("console:create", {
    name: run.title, kernelPreference, activate: true, insertMode: "tab-after",
  });
  console.addClass("tnt-lab-run-tab");
  console.title.icon = icon;
  await console.sessionContext.ready;
  const session = console.sessionContext.session?.id;
  console.disposed.connect(() => void app.serviceManager.sessions.shutdown(session));
  await console.console.inject(`%load_ext tnt_notebook\n${lineOf(run)}`);
  console.node.querySelector(".jp-CodeConsole-content").scrollTop = 0; // it follows what is new
}

export function lineOf(run) {
  return `%tnt_trace show ${run.id}`;
}
