// Runs Python: loads the runtime and the project's own sources, then answers one request after the other. Each file of
// Pyodide is fetched and checked against its integrity hash before it is used.
const RUNTIME = JSON.parse(`@RUNTIME@`);
const LATE_MS = 5000; // a server that has said nothing by then is named
/** @param {string} path */
const here = (path) => new URL(path, import.meta.url).href;
const base = here(RUNTIME.base);
const from_snapshot = Boolean(RUNTIME.snapshot) && !import.meta.url.endsWith("?plain");
const call = started();
call.catch(() => {}); // a failure is reported as the answer to the first question

self.onmessage = async ({ data: { id, name, arguments: given } }) => {
  try {
    const answer = await call;
    self.postMessage({ id, text: answer(name, JSON.stringify(given)) });
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    self.postMessage({ id, failed: message.trim().split("\n").at(-1), from_snapshot });
  }
};

// Starts Python, and returns the function that answers (`call` of reproduce/annex/page/bridge.py).
async function started() {
  const files = get(here(RUNTIME.sources)).then((response) => response.json());
  const image = from_snapshot && unpacked(here(RUNTIME.snapshot));
  const { modules, compiled } = await runtime();
  const [{ loadPyodide }, { default: create }] = modules;
  WebAssembly.instantiateStreaming = async (_, imports) => {
    const module = await compiled;
    return { module, instance: await WebAssembly.instantiate(module, imports) };
  };
  self.postMessage({ progress: "Starting Python", share: 0.3 });
  const python = await loadPyodide({
    indexURL: base,
    env: { PYTHONPATH: "/ptdp" },
    fsInit: async (/** @type {any} */ FS) => write(FS, await files),
    createPyodideModule: create,
    ...(image && {
      _loadSnapshot: image,
      createPyodideModule: async (/** @type {any} */ settings) => fitted(await create(settings), await image),
      _snapshotDeserializer: () => new Map(),
    }),
  });
  self.postMessage({ progress: "Loading the simulator", share: 0.7 });
  const { call } = python.pyimport("reproduce.annex.page.bridge");
  self.postMessage({ progress: "Simulating for the first time", share: 0.9 });
  return call;
}

// Pyodide's modules, and its WebAssembly, which is compiled while they load. Pyodide asks for its files by `fetch`: it
// gets those that were checked.
async function runtime() {
  /** @type {Record<string, Promise<Response>>} */
  const checked = {};
  for (const [name, integrity] of Object.entries(RUNTIME.files)) checked[name] = get(base + name, { integrity });
  /** @type {Promise<WebAssembly.Module>} */
  const compiled = checked["pyodide.asm.wasm"].then((response) => WebAssembly.compileStreaming(response));
  compiled.catch(() => {}); // said by whatever waits for it
  const plain = self.fetch;
  self.fetch = (url, options) => checked[String(url).replace(base, "")] ?? plain(url, options);
  const imported = async (/** @type {string} */ name) =>
    import(URL.createObjectURL(await (await checked[name]).blob()));
  const modules = await Promise.all(["pyodide.mjs", "pyodide.asm.mjs"].map(imported));
  return { modules, compiled };
}

/** @param {string} url @param {RequestInit} [options] */
async function get(url, options) {
  const { host } = new URL(url);
  const needs = "which this page needs Python from; without a network: `reproduce explore` serves it from a disk";
  const late = setTimeout(
    () => self.postMessage({ progress: `Still waiting for ${host}, ${needs}`, share: 0.1 }),
    LATE_MS,
  );
  const response = await fetch(url, options)
    .catch((error) => {
      throw new Error(`no answer from ${host} (${error.message}), ${needs}`);
    })
    .finally(() => clearTimeout(late));
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response;
}

/** @param {any} FS @param {Record<string, string>} files */
function write(FS, files) {
  const folders = Object.keys(files).map((path) => path.slice(0, path.lastIndexOf("/")));
  for (const folder of new Set(folders)) FS.mkdirTree(folder);
  const encoder = new TextEncoder();
  for (const [path, text] of Object.entries(files)) FS.writeFile(path, encoder.encode(text), { canOwn: true });
}

/** @param {string} url */
async function unpacked(url) {
  const body = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ ((await get(url)).body);
  const plain = body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

// Makes room for a snapshot in the runtime's memory, and keeps in it what depends on the browser: the function through
// which Python calls C, which is not the same one everywhere.
/** @param {any} module @param {Uint8Array} image */
function fitted(module, image) {
  const address = module.__PyRuntime + module.HEAP32[module.__PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET / 4];
  const [, start] = new Uint32Array(image.buffer, 0, 2);
  new DataView(image.buffer).setInt32(start + address, module.HEAP32[address / 4], true);
  module.growMemory(image.length - start);
  return module;
}
