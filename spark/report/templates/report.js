// Tables can be sorted by their headings. The report is whole without it.

"use strict";

function value(row, column) {
  const cell = row.cells[column];
  return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent;
}

function compare(one, other) {
  if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1; // What is not known comes last.
  return typeof one === "number" ? other - one : one.localeCompare(other);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const again = heading.dataset.sorted === "once";
      for (const other of table.tHead.rows[0].cells) {
        other.removeAttribute("aria-sort");
        delete other.dataset.sorted;
      }
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(value(a, column), value(b, column)));
      if (again) rows.reverse();
      else heading.dataset.sorted = "once";
      const falling = heading.classList.contains("number") !== again;
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      table.tBodies[0].append(...rows);
    });
  });
}
