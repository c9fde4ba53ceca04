// The page: what is shown is `state`, which is kept in the address; every number comes from Python in a worker.
import * as store from "./state.js";
import { TimelineView, COLORS, NAMES } from "./timeline.js";
import { draw, download, picture } from "./charts.js";
import { ask, onStatus, restart } from "./python.js";

const $ = (id) => document.getElementById(id);
const element = (tag, text, attributes = {}) => { const node = document.createElement(tag); if (text !== undefined) node.textContent = text; for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value); return node; };
const option = (name) => element("option", name, { value: name });
let state = store.START, complaint = "", offer, offered, shown = {}, asked = {}; // the complaint is about the address

const asking = () => ({ configuration: state.configuration, tokens: state.tokens, price: state.price });
const cluster = () => ({ cluster: state.cluster, changes: state.changes, text: state.text });

// Show what Python answers, unless something newer of the same kind was asked meanwhile; an error leaves what is shown.
async function update(kind, name, given, show) {
  const turn = (asked[kind] = (asked[kind] ?? 0) + 1);
  try {
    const answer = await ask(name, given);
    if (turn !== asked[kind]) return;
    fail(complaint);
    shown[kind] = answer;
    show(answer);
  } catch (error) {
    if (turn === asked[kind]) fail(error.message);
  }
}

onStatus(({ message, busy, share, loaded }) => {
  $("message").textContent = message;
  $("loading").hidden = !busy;
  $("cancel").hidden = !busy || !loaded;
  if (share) $("loading").value = share; else $("loading").removeAttribute("value");
});
function fail(message) { $("error").textContent = message; $("error").hidden = !message; }

// -------------------------------------------------------------------------------------------------------------- views

function refresh() {
  const address = store.write(state);
  if (address !== location.hash) history.replaceState(null, "", address === "#" ? location.pathname + location.search : address);
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    $(`view-${tab.dataset.view}`).hidden = !chosen;
  }
  $("cluster-name").textContent = state.text ? "a file of your own" : state.cluster + (Object.keys(state.changes).length ? ", with changed numbers" : "");
  if (state.view === "figure") return update("figure", "artifact", { id: state.artifact, ...cluster() }, showArtifact);
  if (state.view === "whatif") return update("whatif", "what_if", { ...asking(), ...cluster() }, showAnswer);
  return showTimelines();
}

// What is shown changes, in part.
function change(part) {
  state = { ...state, ...part };
  complaint = "";
  refresh();
}

const configure = (part) => change({ configuration: { ...state.configuration, ...part } });

function showArtifact(answer) {
  $("artifact").value = answer.id;
  $("artifact-title").textContent = `${answer.label}: ${answer.title}`;
  $("artifact-description").textContent = answer.description;
  $("chart").replaceChildren(...[draw(answer, $("chart").clientWidth || 640)].filter(Boolean));
  const where = answer.cluster ? ` on ${answer.cluster}` : "";
  $("chart-origin").textContent = `Ours: ${answer.fidelity}${where}, made now in this page${answer.points.some((point) => Object.keys(point.intervals).length) ? "; bands: where 90% of real values are expected" : ""}. Hollow and dashed: the paper.`;
  $("command").textContent = `reproduce ${answer.id}`;
  $("claims").replaceChildren(...answer.claims.map((claim) => {
    const item = element("li", undefined, { "data-verdict": claim.verdict });
    item.append(element("span", claim.verdict, { class: "verdict" }), ` “${claim.sentence}” `, element("small", `${claim.place}. ${claim.explanation}`));
    return item;
  }));
  if (!answer.claims.length) $("claims").append(element("li", "This experiment judges no sentence."));
  $("points").replaceChildren(...table(answer));
  $("notes").replaceChildren(...answer.notes.map((note) => element("li", note)));
}

function rows(answer) {
  const columns = Object.entries(answer.columns);
  const headings = ["series", "point", ...columns.map(([heading]) => heading), ...answer.quantities.map((q) => `${q.heading} [${answer.fidelity}]`), `${answer.quantities[0].heading} [paper]`, "verdict"];
  const cells = answer.points.map((point) => [
    point.series, point.label, ...columns.map(([, name]) => point.parameters[name] ?? ""),
    ...answer.quantities.map((q) => format(point.metrics[q.name], q)), format(point.paper[answer.quantities[0].name], answer.quantities[0]), point.reason ?? point.agreement,
  ]);
  return [headings, cells];
}

const format = (value, quantity) => (value === undefined || value === null ? "" : (value / quantity.factor).toFixed(quantity.digits));

function table(answer) {
  const [headings, cells] = rows(answer);
  const head = element("thead"), body = element("tbody"), line = element("tr");
  const numeric = headings.map((_, i) => cells.every((row) => row[i] === "" || !Number.isNaN(Number(row[i]))));
  headings.forEach((heading, i) => line.append(element("th", heading, { scope: "col", ...(numeric[i] ? { class: "number" } : {}) })));
  head.append(line);
  for (const row of cells) {
    const tr = element("tr");
    row.forEach((cell, i) => tr.append(element("td", String(cell), numeric[i] ? { class: "number" } : {})));
    body.append(tr);
  }
  return [head, body];
}

function showAnswer(answer) {
  if (!offer) return void offered.then(() => showAnswer(answer), () => {}); // the first answer comes before what the page offers
  $("answer-status").textContent = answer.reason ? `${answer.status}: ${answer.reason}` : "Simulated; it fits. In brackets: where 90% of real values are expected.";
  const known = answer.iteration_time !== null;
  const sure = (name, scale, digits) => { const between = answer.intervals?.[name]; return `${(answer[name] / scale).toPrecision(digits)}${between ? ` (${(between.low / scale).toPrecision(3)} to ${(between.high / scale).toPrecision(3)})` : ""}`; };
  const figures = { iteration_time: 5, model_flops_utilization: 3, peak_memory: 3 };
  const metric = ({ name, heading, factor, digits, sure: between }) => [heading, between ? sure(name, factor, figures[name] ?? 4) : (answer[name] / factor).toFixed(digits)];
  const values = known ? {
    "GPUs": answer.gpus, ...Object.fromEntries(offer.metrics.map(metric)),
    ...Object.fromEntries(offer.of_run.filter(({ name }) => answer.run?.[name] != null).map(ofRun(answer.run))),
  } : {};
  $("limited").replaceChildren();
  $("answer").replaceChildren(...Object.entries(values).map(([name, value]) => { const box = element("div"); box.append(element("dt", name), element("dd", String(value))); return box; }));
  for (const [id, parts, unit, scale] of [["phases", answer.phase_times, "s", 1], ["memory", answer.memory_bytes, "GB", 1e9]])
    $(id).replaceChildren(...bars(known ? parts : {}, unit, scale));
}

// A number of the whole run, as its heading and its value with the interval.
const ofRun = (run) => ({ name, heading, factor, digits }) => {
  const show = (value) => (value / factor).toFixed(digits), between = run.intervals[name];
  return [heading, `${show(run[name])}${between ? ` (${show(between.low)} to ${show(between.high)})` : ""}`];
};

// What each change makes of the tokens per second, a bar for each.
function showLimits({ elasticities = [] }) {
  const most = Math.max(...elasticities.map((row) => Math.abs(row.faster_by))), body = element("tbody"), list = element("table", undefined, { class: "bars" });
  for (const { change, faster_by, fits } of elasticities) {
    const row = element("tr"), cell = element("td"), bar = element("span", undefined, faster_by < 0 ? { class: "loss" } : {});
    bar.style.setProperty("--share", Math.abs(faster_by) / most);
    cell.append(bar, `${faster_by < 0 ? "−" : "+"}${(100 * Math.abs(faster_by)).toFixed(1)}%${fits ? "" : ", does not fit"}`);
    row.append(element("th", change, { scope: "row" }), cell);
    body.append(row);
  }
  list.append(body);
  $("limited").replaceChildren(element("h2", "Tokens per second with one thing changed"), list);
}

// Each part with its name, a bar of its size, and its number.
function bars(parts, unit, scale) {
  const positive = Object.entries(parts).filter(([, value]) => value > 0), most = Math.max(...positive.map(([, value]) => value));
  return positive.map(([name, value]) => {
    const row = element("tr"), cell = element("td"), bar = element("span");
    bar.style.setProperty("--share", value / most);
    cell.append(bar, `${(value / scale).toPrecision(3)} ${unit}`);
    row.append(element("th", name.replaceAll("_", " "), { scope: "row" }), cell);
    return row;
  });
}

async function showTimelines() {
  const schedules = [state.configuration.schedule ?? "", ...(state.beside ? [state.beside] : [])];
  const turn = (asked.timeline = (asked.timeline ?? 0) + 1);
  try {
    const answers = [];
    for (const schedule of schedules) answers.push(await ask("timeline", { configuration: { ...state.configuration, schedule }, ...cluster() }));
    if (turn !== asked.timeline) return;
    fail(complaint);
    shown.timeline = answers;
    $("timelines").replaceChildren();
    const kinds = new Set(answers.flatMap(({ rows }) => rows.flatMap((row) => row.map(([kind]) => kind))));
    $("legend").replaceChildren(...Object.entries(NAMES).filter(([kind]) => kinds.has(kind) || kind === "held").map(([kind, name]) => { const item = element("li"); const square = element("span"); square.style.background = COLORS[kind]; item.append(square, name); return item; }));
    const views = [];
    const follow = (from, begin, end) => views.forEach((view) => view !== from && view.show(begin * view.data.iteration_time, end * view.data.iteration_time));
    answers.forEach((answer, i) => views.push(new TimelineView($("timelines"), `${schedules[i] || "default schedule"}: ${answer.iteration_time.toFixed(3)} s, bubble ${(100 * answer.bubble_fraction).toFixed(1)}%`, answer, (text) => { $("hover").textContent = text || "\u00a0"; }, follow)));
  } catch (error) {
    if (turn === asked.timeline) fail(error.message);
  }
}

// Another cluster, or this one's own numbers again, or a file's.
function useCluster(part) {
  change({ changes: {}, text: "", ...part });
  showCluster();
}

async function showCluster() {
  const answer = await ask("cluster", { name: state.cluster, text: state.text }).catch((error) => fail(error.message));
  if (!answer) return;
  $("cluster-select").value = state.cluster;
  $("cluster-text").value = state.text;
  $("cluster-description").textContent = answer.description;
  $("cluster-numbers").tBodies[0].replaceChildren(...answer.numbers.map((entry) => {
    const row = element("tr"), cell = element("td"), input = element("input", undefined, { type: "text", inputmode: "decimal", "aria-label": `${entry.name} in ${entry.unit}` });
    input.value = state.changes[entry.name] ?? entry.value;
    input.disabled = Boolean(state.text);
    input.addEventListener("change", () => {
      const value = Number(input.value);
      if (input.value.trim() === "" || Number.isNaN(value)) return fail(`${entry.name}=${input.value} is no number; needs ${entry.low} to ${entry.high} ${entry.unit}`);
      if (value < entry.low || value > entry.high) return fail(`${entry.name}=${value} lies outside its range; needs ${entry.low} to ${entry.high} ${entry.unit}`);
      const { [entry.name]: _, ...others } = state.changes;
      change({ changes: value === entry.value ? others : { ...others, [entry.name]: value } });
    });
    cell.append(input);
    row.append(element("th", entry.name, { scope: "row" }), cell, element("td", entry.unit), element("td", `${entry.low} to ${entry.high}`), element("td", `${entry.source} (set with: ${entry.set_with})`));
    return row;
  }));
}

// ------------------------------------------------------------------------------------------------------------ controls

function fillControls() {
  $("cluster-select").replaceChildren(...offer.clusters.map(option));
  $("cluster-select").value = state.cluster;
  for (const id of ["schedule-a", "schedule-b"]) $(id).replaceChildren(element("option", id === "schedule-a" ? "default for v" : "nothing", { value: "" }), ...offer.schedules.map(option));
  const model = element("label", "shipped"), select = element("select", undefined, { id: "model" });
  select.append(element("option", "own", { value: "" }), ...Object.keys(offer.models).map(option));
  select.addEventListener("change", () => { if (select.value) { configure(offer.models[select.value]); fillForm(); } });
  model.append(select);
  $("configuration").replaceChildren(...["model", "parallelism"].map((part) => {
    const group = element("fieldset"), names = Object.keys(offer.fields).filter((name) => offer.fields[name].part === part);
    group.append(element("legend", part), ...(part === "model" ? [model] : []), ...names.map(field));
    return group;
  }));
  fillForm();
}

function field(name) {
  const { sentence, default: usual, choices, least } = offer.fields[name], label = element("label", name.replaceAll("_", "_\u200b"), { title: sentence }); // may break after a _
  const input = choices ? element("select") : element("input", undefined, { type: { boolean: "checkbox", string: "text" }[typeof usual] ?? "number", min: least, step: 1 });
  if (choices) input.append(...choices.map((choice) => element("option", choice || "default", { value: choice })));
  Object.assign(input, { id: `field-${name}`, name });
  input.addEventListener(input.type === "number" ? "input" : "change", () => {
    const value = { checkbox: input.checked, number: input.valueAsNumber }[input.type] ?? input.value;
    if (Number.isNaN(value)) return fail(`${name} is empty; needs a positive whole number`);
    configure({ [name]: value });
  });
  label.append(input);
  return label;
}

function fillForm() {
  if (!offer) return;
  for (const name of Object.keys(offer.fields)) {
    const input = $(`field-${name}`);
    const value = state.configuration[name] ?? offer.fields[name].default ?? "";
    if (input.type === "checkbox") input.checked = value;
    else input.value = input.type === "number" && !Number.isFinite(value) ? "" : value;
  }
  $("schedule-a").value = state.configuration.schedule ?? "";
  $("schedule-b").value = state.beside;
  for (const name of ["tokens", "price"]) $(name).value = state[name];
}

function listen() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => { change({ view: tab.dataset.view }); fillForm(); });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { const next = tabs[(i + step + tabs.length) % tabs.length]; next.focus(); next.click(); }
    });
  });
  $("configuration").addEventListener("submit", (event) => event.preventDefault());
  $("artifact").addEventListener("change", (event) => change({ artifact: event.target.value }));
  $("cluster-select").addEventListener("change", (event) => useCluster({ cluster: event.target.value }));
  $("cluster-reset").addEventListener("click", () => useCluster({}));
  $("cluster-use").addEventListener("click", async () => {
    const text = $("cluster-text").value;
    try { await ask("cluster", { name: state.cluster, text }); } catch (error) { return fail(error.message); }
    useCluster({ text });
  });
  $("schedule-a").addEventListener("change", (event) => configure({ schedule: event.target.value }));
  $("schedule-b").addEventListener("change", (event) => change({ beside: event.target.value }));
  $("best").addEventListener("click", () => {
    if (!offer) return;
    const { p, t, d, B, ...values } = { ...Object.fromEntries(Object.entries(offer.fields).map(([name, { default: usual }]) => [name, usual])), ...state.configuration };
    const model = Object.fromEntries(Object.keys(Object.values(offer.models)[0]).map((name) => [name, values[name]]).filter(([, value]) => value !== undefined && value !== null));
    update("plan", "plan", { model, gpus: p * t * d, batch: B, ...cluster() }, showPlans);
  });
  $("limits").addEventListener("click", () => update("limits", "what_if", { ...asking(), ...cluster(), sensitivity: true }, showLimits));
  for (const name of ["tokens", "price"]) $(name).addEventListener("change", (event) => change({ [name]: event.target.value.trim() }));
  $("cancel").addEventListener("click", () => { restart(); begin(); });
  window.addEventListener("hashchange", () => { readAddress(); fillForm(); refresh(); showCluster(); });
  for (const button of document.querySelectorAll("[data-export]")) button.addEventListener("click", () => save(button.dataset.export));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
}

function showPlans(answer) {
  const list = element("ol");
  for (const { configuration, iteration_time, model_throughput_per_gpu, model_flops_utilization, peak_memory } of answer.plans) {
    const { p, t, d, v, b, recompute } = configuration, button = element("button", "use");
    button.addEventListener("click", () => { change({ configuration }); fillForm(); });
    const item = element("li", `p=${p} t=${t} d=${d} v=${v} b=${b}, recompute ${recompute}: ${iteration_time.toPrecision(4)} s, ${(model_throughput_per_gpu / 1e12).toFixed(1)} model teraFLOP/s per GPU (MFU ${(100 * model_flops_utilization).toFixed(1)}%), ${(peak_memory / 1e9).toFixed(1)} GB `);
    item.append(button);
    list.append(item);
  }
  $("plans").replaceChildren(element("h2", `Best of ${answer.simulated} simulated layouts`), list);
}

function save(kind) {
  const answer = shown.figure;
  if (kind === "json") return download("points.json", JSON.stringify([{ ...state.configuration, ...(state.text || Object.keys(state.changes).length ? {} : { cluster: state.cluster }) }], null, 1), "application/json");
  if (!answer) return;
  if (kind === "csv") {
    const quote = (cell) => (/[",\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell));
    const [headings, cells] = rows(answer);
    return download(`${answer.id}.csv`, [headings, ...cells].map((row) => row.map(quote).join(",")).join("\n") + "\n", "text/csv");
  }
  const [figure] = $("chart").children;
  if (!figure) return fail(`${answer.label} is a table here; needs a chart; try CSV`);
  picture.save(figure, answer.id, kind);
}

function readAddress() {
  [state, complaint] = store.read(location.hash);
  fail(complaint);
}

async function begin() {
  const first = refresh(), numbers = showCluster(); // asked before anything else, so answered first
  offered = ask("start", {}).then((answer) => { offer = answer; });
  try {
    await offered;
  } catch (error) {
    return fail(error.message);
  }
  fillControls();
  await Promise.all([first, numbers]);
  const answer = await ask("artifacts", {}).catch(() => null);
  $("artifact").replaceChildren(...(answer?.artifacts ?? []).map(({ id, label, title }) => element("option", `${label}: ${title}`, { value: id })));
  $("artifact").value = state.artifact;
}

readAddress();
listen();
window.ptdp = { ask }; // for tests, and for the curious
begin();
