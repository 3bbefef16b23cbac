// Questions to the Jupyter server, which reads what clusters and runs have on disk.

/** A function that asks for one of `clusters`, `options`, `log`, and gives its answer. */
export function server(ServerConnection, URLExt, settings) {
  return async (what, named = {}) => {
    const query = URLExt.objectToQueryString(named);
    const url = URLExt.join(settings.baseUrl, "tnt", what) + query;
    const answer = await ServerConnection.makeRequest(url, {}, settings);
    if (answer.ok) return answer.json();
    if (answer.status === 404) {
      throw new Error("The Jupyter server does not know tnt_notebook: restart it, or install "
        + "tnt_notebook where it runs.");
    }
    const told = await answer.json().catch(() => ({}));
    throw new Error(told.reason ?? told.message ?? answer.statusText);
  };
}
