// Run by node when the page is built: node snapshot.mjs FOLDER_OF_PYODIDE SOURCES OUT
// Starts Python with the project's sources, imports what answers the page, runs it once (`prepare` of bridge.py), and
// writes the memory of the interpreter, from which the page's worker goes on. No answer is kept.
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const [runtime, sources, out] = process.argv.slice(2);
const files = JSON.parse(readFileSync(sources, "utf8"));
const { loadPyodide } = await import(pathToFileURL(resolve(runtime, "pyodide.mjs")));
const python = await loadPyodide({
  indexURL: resolve(runtime),
  env: { PYTHONPATH: "/ptdp" },
  _makeSnapshot: true,
  fsInit: (FS) => {
    for (const [path, text] of Object.entries(files)) {
      FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
      FS.writeFile(path, text);
    }
  },
});
python.runPython("from reproduce.annex.page import bridge; bridge.prepare(); del bridge");
const image = python.makeMemorySnapshot();
writeFileSync(out, gzipSync(image, { level: 9 }));
