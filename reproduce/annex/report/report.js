// Search: rows of claims, and figures and tables, that do not have every word are hidden.
const search = document.getElementById("search");
const texts = new Map();
for (const item of document.querySelectorAll("#claims tbody tr, details.entry")) {
  texts.set(item, item.textContent.toLowerCase());
}
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const [item, text] of texts) item.classList.toggle("unmatched", !words.every((word) => text.includes(word)));
  const matches = (kind) => document.querySelectorAll(`${kind}:not(.unmatched)`).length;
  const found = `${matches("#claims tbody tr")} claims, ${matches("details.entry")} figures and tables`;
  document.getElementById("matches").textContent = words.length ? found : "";
});

// A link to what is folded unfolds it.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  for (let box = target?.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();
