// The view of the lessons: a picture and its slider, a guess that draws the rest of the curve, what to take away.
import { draw as drawChart } from "./chart.js";
import { byId, element, inputOf } from "./elements.js";
import { change, current, offered, update } from "./page.js";
import { draw, key, looks } from "./timeline.js";

/** @type {LessonAnswer | undefined} */
let shown;
/** @type {Set<string>} */
const answered = new Set();

export function make() {
  const slider = element("input", { id: "lesson-value", type: "range", min: 0, step: 1 });
  slider.addEventListener("input", () => change({ step: slider.value }));
  byId("view-lessons").append(
    element(
      "div",
      { class: "cols rail" },
      element("nav", { class: "progress", id: "lessons", "aria-label": "Lessons" }),
      element(
        "div",
        { class: "view" },
        element(
          "div",
          { class: "head" },
          element("p", { class: "over", id: "lesson-number" }),
          element("h1", { id: "lesson-title" }),
          element("p", { class: "lede", id: "lesson-lede" }),
        ),
        element(
          "section",
          { "aria-label": "Try it" },
          element("div", { id: "lesson-picture", class: "plot" }),
          element("div", { id: "lesson-key" }),
          element(
            "div",
            { class: "try" },
            element(
              "label",
              { class: "field" },
              element("span", { id: "lesson-label" }),
              slider,
              element("span", { class: "stops", id: "lesson-stops", "aria-hidden": "true" }),
            ),
            element("p", { class: "num", id: "lesson-said", role: "status" }),
          ),
        ),
        element("div", { class: "titled", id: "lesson-quizzes" }),
        element("p", { class: "take", id: "lesson-take" }),
        element("section", { id: "lesson-full" }),
        element("p", { class: "row next", id: "lesson-next" }),
      ),
    ),
  );
}

export function refresh() {
  const { lesson } = current();
  for (const link of byId("lessons").children)
    if (link.getAttribute("data-lesson") === lesson) link.setAttribute("aria-current", "step");
    else link.removeAttribute("aria-current");
  if (shown?.id === lesson) return showStop(shown);
  return update("lesson", "lesson", { id: lesson }, show);
}

/** @param {LessonAnswer} answer */
function show(answer) {
  shown = answer;
  const list = offered()?.lessons ?? [];
  const at = list.findIndex(({ id }) => id === answer.id);
  byId("lesson-number").textContent = `Lesson ${at + 1} of ${list.length}, three minutes`;
  byId("lesson-title").textContent = answer.title;
  byId("lesson-lede").textContent = answer.lede;
  byId("lesson-label").textContent = answer.label;
  byId("lesson-take").replaceChildren(`${answer.take} `, element("span", {}, answer.formula));
  byId("lesson-quizzes").replaceChildren(...answer.quizzes.map((quiz, i) => question(answer, quiz, i)));
  showFull(answer);
  showNext(answer, list[at + 1], at);
  inputOf("lesson-value").max = String(answer.stops.length - 1);
  showStop(answer);
}

/** The stop of the slider: what was seen, unless the address says another. @param {LessonAnswer} answer */
function place({ stops, seen }) {
  const step = Number(current().step || NaN);
  return Number.isInteger(step) && step >= 0 && step < stops.length ? step : seen - 1;
}

/** @param {LessonAnswer} answer */
function showStop(answer) {
  const at = place(answer);
  const words = answer.stops[at];
  inputOf("lesson-value").value = String(at);
  inputOf("lesson-value").setAttribute("aria-valuetext", words);
  byId("lesson-stops").replaceChildren(...answer.stops.map((stop, i) => element(i === at ? "b" : "span", {}, stop)));
  byId("lesson-said").replaceChildren(element("b", {}, `${answer.label}: ${words}`), element("br"), answer.said[at]);
  const picture = answer.pictures[at];
  byId("lesson-picture").hidden = byId("lesson-key").hidden = !picture;
  if (!picture) return;
  draw(byId("lesson-picture"), {
    data: picture,
    title: `${answer.label} ${words}: ${answer.said[at]}`,
    whole: Math.max(...answer.pictures.map((each) => (each.p > 4 ? each.iteration_time : picture.iteration_time))),
  });
  byId("lesson-key").replaceChildren(key(looks(picture)));
}

/** A question with its options; the first one of a lesson has the curve. @param {LessonAnswer} answer @param {Quiz} quiz @param {number} i */
function question(answer, quiz, i) {
  const id = `${answer.id}-${i}`;
  const done = element("p", { role: "status" });
  const chart = element("div", { class: "plot" });
  const fieldset = element("fieldset", { class: "quiz" }, element("legend", {}, quiz.question));
  const reveal = () => {
    answered.add(id);
    fieldset.setAttribute("data-answered", "");
    done.textContent = quiz.after;
    if (!i) curve(answer, chart, true);
  };
  const options = quiz.options.map(([value, means, why], at) => {
    const input = element("input", { type: "radio", name: id });
    input.addEventListener("change", reveal);
    const sign = at === quiz.right ? "✓" : "✕";
    return element(
      "label",
      { class: at === quiz.right ? "right" : "" },
      input,
      element("span", {}, element("b", {}, value), element("span", { class: "u" }, ` ${means}`)),
      element("em", {}, `${sign} ${why}`),
    );
  });
  fieldset.append(element("div", { class: "opts three" }, ...options));
  if (!i) {
    fieldset.append(chart);
    requestAnimationFrame(() => curve(answer, chart, answered.has(id)));
  }
  done.textContent = i ? "" : "Choose one, and the rest of the curve is drawn.";
  fieldset.append(done);
  if (answered.has(id)) reveal();
  return fieldset;
}

/** The curve, before a guess only as far as it was seen. @param {LessonAnswer} answer @param {HTMLElement} chart @param {boolean} all */
function curve({ stops, seen, curve: { quantity, values }, label }, chart, all) {
  const known = all ? values.length : seen;
  const marks = stops.map((x, i) => ({ x, y: i < known ? values[i] : null, ...(i >= known && { paper: null }) }));
  const told = marks.slice(0, known).map(({ x, y }) => `${x}: ${Number(y).toPrecision(3)}`);
  drawChart(chart, {
    label: `${quantity}, ${told.join(", ")}${all ? "" : "; the rest is the question"}`,
    ...{ quantity, x: label, scale: "point", height: 260, zero: true, ask: all ? null : stops[seen] },
    series: [{ name: "", marks }],
  });
}

/** @param {LessonAnswer} answer */
function showFull({ full, label }) {
  byId("lesson-full").hidden = !full;
  if (!full) return;
  const chart = element("div", { class: "plot" });
  byId("lesson-full").replaceChildren(element("h2", {}, full.title), chart, element("p", {}, full.said));
  const scale = typeof full.points[0].x === "number" ? "log2" : "point";
  drawChart(chart, {
    label: full.title,
    quantity: full.quantity,
    x: label,
    scale,
    height: 280,
    zero: true,
    series: [{ name: "", marks: full.points }],
  });
}

/** @param {LessonAnswer} answer @param {{ id: string, title: string } | undefined} next @param {number} at */
function showNext({ artifact, configurations }, next, at) {
  const onwards = next
    ? [
        element(
          "a",
          { class: "btn go", href: `#view=lessons&lesson=${next.id}&step=` },
          `Lesson ${at + 2}: ${next.title}`,
        ),
      ]
    : [];
  const figure = element("a", { class: "quiet", href: `#view=figure&artifact=${artifact}` }, "The paper’s figure");
  const last = configurations.at(-1);
  const whole = last
    ? [
        element(
          "a",
          {
            class: "quiet",
            id: "lesson-open",
            href: `#view=timeline&configuration=${encodeURIComponent(JSON.stringify(last))}`,
          },
          "This at full size, pass by pass",
        ),
      ]
    : [];
  byId("lesson-next").replaceChildren(...onwards, figure, ...whole);
}

export function fill() {
  const list = offered()?.lessons ?? [];
  byId("lessons").replaceChildren(
    ...list.map(({ id, title }, i) => {
      const words = `${i + 1}. ${title}`;
      return element(
        "a",
        { href: `#view=lessons&lesson=${id}&step=`, "data-lesson": id, "aria-label": words },
        element("span", {}, words),
      );
    }),
  );
  if (current().view === "lessons") {
    if (shown) show(shown);
    void refresh();
  }
}
