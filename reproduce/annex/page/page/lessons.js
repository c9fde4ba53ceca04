// The view of the lessons: one picture, one slider, one question with the simulator's answer.
import { curve } from "./chart.js";
import { byId, element, inputOf } from "./elements.js";
import { change, current, fail, newest, offered, update } from "./page.js";
import { ask } from "./python.js";
import { TimelineView } from "./timeline.js";
import { picker } from "./timelines.js";

/** @type {LessonAnswer | undefined} */
let shown;

export function refresh() {
  const { lesson } = current();
  for (const link of byId("lessons").children)
    if (link.getAttribute("data-lesson") === lesson) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  if (shown?.id === lesson) return showStep(shown);
  return update("lesson", "lesson", { id: lesson }, show);
}

/** @param {LessonAnswer} answer */
function show(answer) {
  shown = answer;
  byId("lesson-title").textContent = answer.title;
  byId("lesson-text").textContent = answer.text;
  byId("lesson-question").textContent = answer.question;
  byId("lesson-answer").textContent = answer.answer;
  byId("lesson-cluster").textContent = answer.cluster;
  for (const details of document.querySelectorAll("#view-lessons details")) details.removeAttribute("open");
  inputOf("lesson-value").max = String(answer.points.length - 1);
  return showStep(answer);
}

/** The step of the slider, within the lesson's. @param {LessonAnswer} answer */
function place({ points }) {
  const step = Number(current().step);
  return Number.isInteger(step) && step >= 0 && step < points.length ? step : 0;
}

/** @param {LessonAnswer} answer */
function showStep(answer) {
  const { points, label, timeline } = answer;
  const step = points[place(answer)];
  inputOf("lesson-value").value = String(place(answer));
  inputOf("lesson-value").setAttribute("aria-valuetext", `${label} ${step.value}`);
  byId("lesson-shown").textContent = `${label}: ${step.value}`;
  const fits = step.status === "ok" ? "" : ": more memory than a GPU has";
  byId("lesson-said").textContent = `${step.said}${fits}.`;
  byId("lesson-hover").textContent = "";
  return timeline ? drawTimeline(answer, step.configuration) : drawCurve(answer, step.value);
}

/** @param {LessonAnswer} answer @param {Scalar} now */
async function drawCurve(answer, now) {
  const width = byId("lesson-picture").clientWidth || 340;
  const drawn = await curve(answer, answer.metric, now, width).catch((error) => (fail(error.message), null));
  if (shown === answer && drawn) byId("lesson-picture").replaceChildren(element("figure", {}, drawn));
}

/** @param {LessonAnswer} answer @param {Configuration} configuration */
function drawTimeline({ title, cluster }, configuration) {
  const given = { configuration, cluster, changes: {}, text: "" };
  return newest("lesson", ask("timeline", given), (/** @type {TimelineAnswer} */ timeline) => {
    const say = (/** @type {string} */ text) => {
      byId("lesson-hover").textContent = text;
    };
    byId("lesson-picture").replaceChildren();
    new TimelineView(byId("lesson-picture"), title, timeline, picker(given, timeline, say), () => {});
    byId("lesson-hover").textContent = timeline.waits;
  });
}

export function fill() {
  byId("lessons").replaceChildren(
    ...(offered()?.lessons ?? []).map(({ id, title }, i) => link(id, `${i + 1}. ${title}`)),
  );
  if (current().view === "lessons") void refresh();
}

/** A link to a lesson, for others; followed here it leaves all else as it is. @param {string} id @param {string} text */
function link(id, text) {
  const made = element("a", { href: `#view=lessons&lesson=${id}`, "data-lesson": id }, text);
  made.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    change({ lesson: id, step: "0" });
  });
  return made;
}

export function listen() {
  inputOf("lesson-value").addEventListener("input", () => change({ step: inputOf("lesson-value").value }));
  byId("lesson-open").addEventListener("click", () => {
    if (!shown) return;
    const { configuration } = shown.points[place(shown)];
    change({ view: "whatif", configuration, cluster: shown.cluster, changes: {}, text: "" });
  });
}
