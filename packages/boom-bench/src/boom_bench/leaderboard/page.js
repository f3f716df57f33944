"use strict";
// Sorting: a click on a column's head sorts by it, a second one turns the order round. Unknown values stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const numeric = head.dataset.kind === "number";
      const compare = (a, b) => {
        if (!numeric) return (rising ? 1 : -1) * key(a).localeCompare(key(b));
        const [x, y] = [Number(key(a)), Number(key(b))];
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return rising ? x - y : y - x;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare));
    });
  });
}
// Filtering: all words must be part of a model's name; rows are hidden, rows of plots fade.
const filter = document.getElementById("filter");
const count = document.getElementById("count");
const apply = () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (element) => words.every((word) => element.dataset.model.toLowerCase().includes(word));
  for (const element of document.querySelectorAll("[data-model]")) {
    if (element instanceof SVGElement) element.classList.toggle("off", !fits(element));
    else element.hidden = !fits(element);
  }
  const rows = [...document.querySelectorAll("#leaderboard tbody tr")];
  count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} models`;
};
filter.addEventListener("input", apply);
apply();
