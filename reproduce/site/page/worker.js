// Runs Python: loads the runtime and the project's own sources, then answers one request after the other. `runtime` are
// the files of Pyodide with their integrity hashes; each is fetched and checked before it is used.
self.onmessage = async ({ data }) => {
  if (data.runtime) return load(data);
  const answer = call(data.name, JSON.stringify(data.arguments));
  self.postMessage({ id: data.id, text: answer });
};

let call;

async function load({ runtime, sources }) {
  try {
    const responses = await Promise.all(runtime.files.map(({ url, integrity }) => fetch(url, { integrity })));
    const bad = responses.find((response) => !response.ok);
    if (bad) throw new Error(`${bad.url} answered ${bad.status}`);
    self.postMessage({ progress: "Starting Python" });
    const { loadPyodide } = await import(runtime.base + "pyodide.mjs");
    const [python, archive] = await Promise.all([
      loadPyodide({ indexURL: runtime.base }),
      fetch(sources).then((response) => response.arrayBuffer()),
    ]);
    self.postMessage({ progress: "Loading the simulator" });
    python.unpackArchive(archive, "zip", { extractDir: "/ptdp" });
    python.runPython("import sys; sys.path.insert(0, '/ptdp')");
    call = python.pyimport("reproduce.site.bridge").call;
    self.postMessage({ ready: call("start", "{}") });
  } catch (error) {
    self.postMessage({ failed: String(error) });
  }
}
