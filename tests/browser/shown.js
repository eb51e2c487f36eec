// Which charts of a page are shown, which of them a page break may cut, and how many of its closed tables can be read. Runs in the page, before
// anything is opened.
(() => {
  const visible = (element) => element.checkVisibility() && element.getBoundingClientRect().height > 0;
  const charts = [...document.querySelectorAll("figure.chart svg")].filter(visible);
  const closed = [...document.querySelectorAll("details:not([open]) > table")];
  return {
    layouts: [...new Set(charts.map((svg) => svg.getAttribute("class")))],
    closed: closed.length,
    breakable: charts.filter((svg) => getComputedStyle(svg.closest("figure")).breakInside !== "avoid").length,
    readable: closed.filter(visible).length,
  };
})()
