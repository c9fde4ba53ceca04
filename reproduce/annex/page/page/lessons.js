// The view of the lessons: a picture and its slider, a guess that draws the rest of the curve, what to take away.
import { draw as drawChart } from "./chart.js";
import { byId, el, fill as put, link, mark } from "./elements.js";
import { change, current, offered, update } from "./page.js";
import { draw, key } from "./timeline.js";

/** @type {any} */
let shown; // an answer
const answered = new Set();

export function make() {
  const moved = (/** @type {any} */ { target }) => change({ step: target.value });
  const slider = el("input#lesson-value", { type: "range", min: 0, step: 1, input: moved });
  byId("view-lessons").append(
    el(
      "div.cols.rail",
      el("nav.progress#lessons", { "aria-label": "Lessons" }),
      el(
        "div.view",
        el("div.head", el("p.over#lesson-number"), el("h1#lesson-title"), el("p.lede#lesson-lede")),
        el(
          "section",
          { "aria-label": "Try it" },
          el("div.plot#lesson-picture"),
          el("div#lesson-key"),
          el(
            "div.try",
            el(
              "label.field",
              el("span#lesson-label"),
              slider,
              el("span.stops#lesson-stops", { "aria-hidden": "true" }),
            ),
            el("p.num#lesson-said", { role: "status" }),
          ),
        ),
        el("div.titled#lesson-quizzes"),
        el("p.take#lesson-take"),
        el("section#lesson-full"),
        el("p.row.next#lesson-next"),
      ),
    ),
  );
}

export function refresh() {
  const { lesson } = current();
  for (const entry of byId("lessons").children) mark(entry, entry.dataset.lesson === lesson, "step");
  if (shown?.id === lesson) return showStop(shown);
  return update("lesson", "lesson", { id: lesson }, show);
}

/** @param {LessonAnswer} answer */
function show(answer) {
  shown = answer;
  const { id, title, lede, label, take, formula, stops, quizzes, full, artifact, configurations } = answer;
  const list = offered()?.lessons ?? [];
  const at = list.findIndex((each) => each.id === id);
  const next = list[at + 1];
  byId("lesson-number").textContent = `Lesson ${at + 1} of ${list.length}, three minutes`;
  byId("lesson-title").textContent = title;
  byId("lesson-lede").textContent = lede;
  byId("lesson-label").textContent = label;
  put("lesson-take", `${take} `, el("span", formula));
  const asked = quizzes.map((quiz, i) => question(answer, quiz, i));
  put("lesson-quizzes", asked);
  byId("lesson-full").hidden = !full;
  if (full) {
    const chart = el("div.plot");
    put("lesson-full", el("h2", full.title), chart, el("p", full.said));
    const scale = typeof full.points[0].x === "number" ? "log2" : "point";
    const said = { label: full.title, quantity: full.quantity, x: label };
    drawChart(chart, {
      ...said,
      scale,
      height: 280,
      zero: true,
      valued: true,
      series: [
        { name: "", marks: full.points },
        { name: "by the formula", marks: full.formula, dashed: true },
      ],
    });
  }
  const last = encodeURIComponent(JSON.stringify(configurations.at(-1)));
  put(
    "lesson-next",
    next && link(`#view=lessons&lesson=${next.id}&step=`, `Lesson ${at + 2}: ${next.title}`, ".btn.go"),
    link(`#view=figure&artifact=${artifact}`, "The paper’s figure"),
    configurations.length &&
      link(`#view=timeline&configuration=${last}`, "This at full size, pass by pass", ".quiet#lesson-open"),
  );
  byId("lesson-value").max = stops.length - 1;
  showStop(answer);
}

/** The stop of the slider: what was seen, unless the address says another. @param {LessonAnswer} answer */
function showStop({ stops, seen, label, said, pictures }) {
  const step = Number(current().step || NaN);
  const at = Number.isInteger(step) && step >= 0 && step < stops.length ? step : seen - 1;
  byId("lesson-value").value = at;
  byId("lesson-value").setAttribute("aria-valuetext", stops[at]);
  const marks = stops.map((stop, i) => el(i === at ? "b" : "span", stop));
  put("lesson-stops", marks);
  put("lesson-said", el("b", `${label}: ${stops[at]}`), el("br"), said[at]);
  const data = pictures[at];
  byId("lesson-picture").hidden = byId("lesson-key").hidden = !data;
  if (!data) return;
  const whole = Math.max(...pictures.map((each) => (each.p > 4 ? each.iteration_time : data.iteration_time)));
  const title = `${label} ${stops[at]}: ${said[at]}`;
  draw(byId("lesson-picture"), { data, title, whole, unfolded: data.p > 4 }); // whose steps are to be counted
  put("lesson-key", key(data));
}

/** A question with its options; the first one of a lesson has the curve. @param {LessonAnswer} answer @param {Quiz} quiz @param {number} i */
function question(answer, quiz, i) {
  const id = `${answer.id}-${i}`;
  const done = el("p", { role: "status" }, i ? "" : "Choose one, and the rest of the curve is drawn.");
  const chart = el("div.plot");
  const reveal = () => {
    answered.add(id);
    fieldset.setAttribute("data-answered", "");
    done.textContent = quiz.after;
    if (!i) curve(answer, chart, true);
  };
  const option = (/** @type {string[]} */ [value, means, why], /** @type {number} */ at) =>
    el(
      at === quiz.right ? "label.right" : "label",
      el("input", { type: "radio", name: id, change: reveal }),
      el("span", el("b", value), el("span.u", ` ${means}`)),
      el("em", `${at === quiz.right ? "✓" : "✕"} ${why}`),
    );
  const options = el("div.opts", quiz.options.map(option));
  const fieldset = el("fieldset.quiz", el("legend", quiz.question), options, !i && chart, done);
  if (answered.has(id)) reveal();
  else if (!i) curve(answer, chart, false);
  return fieldset;
}

/** The curve, before a guess only as far as it was seen. @param {LessonAnswer} answer @param {HTMLElement} chart @param {boolean} all */
function curve({ stops, seen, curve: { quantity, values }, label }, chart, all) {
  const known = all ? values.length : seen;
  const marks = stops.map((x, i) => ({ x, y: i < known ? values[i] : null }));
  const told = marks.slice(0, known).map(({ x, y }) => `${x}: ${Number(y).toPrecision(3)}`);
  drawChart(chart, {
    label: `${quantity}, ${told.join(", ")}${all ? "" : "; the rest is the question"}`,
    ...{ quantity, x: label, scale: "point", height: 260, zero: true, valued: true, ask: all ? null : stops[seen] },
    series: [{ name: "", marks }],
  });
}

export function fill() {
  const entry = (/** @type {Offer["lessons"][0]} */ { id, title }, /** @type {number} */ i) => {
    const words = `${i + 1}. ${title}`;
    const to = { href: `#view=lessons&lesson=${id}&step=`, "data-lesson": id, "aria-label": words };
    return el("a", to, el("span", words));
  };
  put("lessons", (offered()?.lessons ?? []).map(entry));
  if (current().view !== "lessons") return;
  if (shown) show(shown);
  void refresh();
}
