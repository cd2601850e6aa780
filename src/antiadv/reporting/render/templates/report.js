"use strict";
(() => {
  const said = document.getElementById("said");
  const next = { none: "ascending", ascending: "descending", descending: "none" };

  // numbers as numbers, words as words, and nothing after everything, whichever way
  const compare = (a, b, sign) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return sign * order;
  };

  for (const table of document.querySelectorAll("table.sorts")) {
    const body = table.tBodies[0];
    const lines = [...body.rows];
    for (const button of table.querySelectorAll("thead button")) {
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const way = next[head.getAttribute("aria-sort")];
        for (const other of table.querySelectorAll("thead th")) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", way);
        const sign = way === "ascending" ? 1 : -1;
        const key = (line) => line.cells[head.cellIndex].dataset.sort;
        const sorted = way === "none" ? lines : [...lines].sort((a, b) => compare(key(a), key(b), sign));
        body.append(...sorted);
        said.textContent = way === "none" ? "In the first order" : `Sorted by ${button.textContent}, ${way}`;
      });
    }
  }

  // what a link points at must be seen, also inside something closed; and paper has nothing to open
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target) for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const part of closed) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of closed) part.open = false; });
})();
