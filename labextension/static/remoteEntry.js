// What JupyterLab loads: a container of module federation, by hand, so that nothing is built. It
// takes JupyterLab's own modules from the scope that it is given, and gives the plugin.

(() => {
  const here = document.currentScript.src;
  let scope;

  // Of the versions in the scope JupyterLab itself brings one, and it is the one that counts.
  const shared = async (name) => {
    const versions = Object.values(scope[name] ?? {});
    const own = versions.find((one) => one.from?.includes("jupyterlab")) ?? versions[0];
    if (!own) throw new Error(`tnt_notebook: this JupyterLab does not share ${name}`);
    return (await own.get())();
  };

  (window._JUPYTERLAB ??= {}).tnt_notebook = {
    init(given) {
      scope = given;
    },
    async get() {
      const { plugin } = await import(new URL("plugin.js", here).href);
      const made = await plugin(shared);
      return () => ({ __esModule: true, default: made });
    },
  };
})();
