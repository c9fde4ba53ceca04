// Runs Python: loads the runtime and the project's own sources, then answers one request after the other. Each file of
// Pyodide is fetched and checked against its integrity hash before it is used.
const RUNTIME = @RUNTIME@;
const here = (path) => new URL(path, import.meta.url).href;
const base = here(RUNTIME.base), from_snapshot = RUNTIME.snapshot && !import.meta.url.endsWith("?plain");
const call = started();
call.catch(() => {}); // a failure is reported as the answer to the first question

self.onmessage = async ({ data: { id, name, arguments: given } }) => {
  try {
    const answer = await call;
    self.postMessage({ id, text: answer(name, JSON.stringify(given)) });
  } catch (error) {
    self.postMessage({ id, failed: error.message.trim().split("\n").at(-1), from_snapshot });
  }
};

// Starts Python, and returns the function that answers (`call` of reproduce/site/bridge.py).
async function started() {
  const checked = Object.fromEntries(Object.entries(RUNTIME.files).map(([name, integrity]) => [name, get(base + name, { integrity })]));
  const compiled = checked["pyodide.asm.wasm"].then((response) => WebAssembly.compileStreaming(response));
  const files = get(here(RUNTIME.sources)).then((response) => response.json()), image = from_snapshot && unpacked(here(RUNTIME.snapshot));
  // Pyodide asks for its files by `fetch`: it gets those that were checked. Its WebAssembly is compiled while they load.
  const plain = self.fetch;
  self.fetch = (url, options) => checked[String(url).replace(base, "")] ?? plain(url, options);
  WebAssembly.instantiateStreaming = async (_, imports) => {
    const module = await compiled;
    return { module, instance: await WebAssembly.instantiate(module, imports) };
  };
  const [{ loadPyodide }, { default: create }] = await Promise.all(["pyodide.mjs", "pyodide.asm.mjs"].map(async (name) => import(URL.createObjectURL(await (await checked[name]).blob()))));
  self.postMessage({ progress: "Starting Python", share: 0.3 });
  const python = await loadPyodide({
    indexURL: base, env: { PYTHONPATH: "/ptdp" }, fsInit: async (FS) => write(FS, await files), createPyodideModule: create,
    ...(image && { _loadSnapshot: image, createPyodideModule: async (settings) => fitted(await create(settings), await image), _snapshotDeserializer: () => new Map() }),
  });
  self.postMessage({ progress: "Loading the simulator", share: 0.7 });
  return python.pyimport("reproduce.site.bridge").call;
}

async function get(url, options) {
  const response = await fetch(url, options);
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response;
}

function write(FS, files) {
  for (const folder of new Set(Object.keys(files).map((path) => path.slice(0, path.lastIndexOf("/"))))) FS.mkdirTree(folder);
  const encoder = new TextEncoder();
  for (const [path, text] of Object.entries(files)) FS.writeFile(path, encoder.encode(text), { canOwn: true });
}

async function unpacked(url) {
  const { body } = await get(url);
  return new Uint8Array(await new Response(body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

// Makes room for a snapshot in the runtime's memory, and keeps in it what depends on the browser: the function through
// which Python calls C, which is not the same one everywhere.
function fitted(module, image) {
  const address = module.__PyRuntime + module.HEAP32[module.__PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET / 4], [, start] = new Uint32Array(image.buffer, 0, 2);
  new DataView(image.buffer).setInt32(start + address, module.HEAP32[address / 4], true);
  module.growMemory(image.length - start);
  return module;
}
