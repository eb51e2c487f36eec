// What is wrong with the page as it stands, one sentence each. Runs in the page.
(() => {
  const faults = [];
  const fault = (what) => faults.push(what);
  const shown = (element) => element.checkVisibility() && !element.closest("caption, thead");
  const name = (element) => `${element.tagName.toLowerCase()} "${(element.textContent || "").trim().slice(0, 40)}"`;
  // Tables behind charts are part of the page.
  document.querySelectorAll("details").forEach((element) => (element.open = true));

  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) fault(`the page is ${root.scrollWidth} px wide and the window ${root.clientWidth}`);

  // Text stays within the window and within its box.
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) if (walker.currentNode.data.trim() && shown(walker.currentNode.parentElement)) texts.push(walker.currentNode);
  for (const node of texts) {
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects())
      if (box.width > 0 && (box.left < -0.5 || box.right > root.clientWidth + 0.5)) fault(`${name(node.parentElement)} reaches out of the window`);
  }
  for (const element of document.body.querySelectorAll("*")) {
    if (element.closest("svg") || !shown(element) || getComputedStyle(element).display === "inline") continue;
    if (element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0) fault(`${name(element)} is cut: ${element.scrollWidth} px in ${element.clientWidth}`);
  }

  // Charts: all there, with names, and with labels that can be read.
  const charts = [...document.querySelectorAll("figure.chart svg")].filter(shown);
  for (const svg of charts) {
    const chart = svg.querySelector("title")?.textContent || "a chart without a title";
    if (svg.getAttribute("role") !== "img" || !svg.querySelector("desc")?.textContent) fault(`${chart} has no role or description`);
    const frame = svg.getBoundingClientRect();
    const scale = frame.width / svg.viewBox.baseVal.width;
    const labels = [...svg.querySelectorAll("text")].map((element) => [element, element.getBoundingClientRect()]);
    if (labels.length < 3) fault(`${chart} has no labels`);
    for (const [element, box] of labels) {
      if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5 || box.top < frame.top - 0.5 || box.bottom > frame.bottom + 0.5)
        fault(`${chart}: ${name(element)} is cut`);
      const size = parseFloat(getComputedStyle(element).fontSize) * scale;
      if (size < 11) fault(`${chart}: ${name(element)} is ${size.toFixed(1)} px small`);
    }
    labels.forEach(([one, a], at) => labels.slice(at + 1).forEach(([other, b]) => {
      if (a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 2.5 && b.top < a.bottom - 2.5)
        fault(`${chart}: ${name(one)} lies on ${name(other)}`);
    }));
    for (const mark of svg.querySelectorAll("rect.bar, circle, path")) {
      const box = mark.getBoundingClientRect();
      if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2) fault(`${chart}: a mark is cut`);
    }
  }

  // Contrast of text with what lies behind it, as WCAG 2 computes it.
  const channels = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const linear = (value) => ((value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = channels(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  let lowest = 99;
  for (const node of texts) {
    const element = node.parentElement;
    const style = getComputedStyle(element);
    const [one, other] = [channels(element.closest("svg") ? style.fill : style.color), ground(element)].map(luminance);
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    lowest = Math.min(lowest, contrast);
    if (contrast < 4.5) fault(`${name(element)} has a contrast of ${contrast.toFixed(2)}`);
  }
  return {
    faults: [...new Set(faults)].slice(0, 30),
    charts: charts.map((svg) => svg.querySelector("title")?.textContent),
    texts: texts.length,
    lowest,
    scripts: document.scripts.length,
    ground: getComputedStyle(document.body).backgroundColor,
    height: root.scrollHeight,
  };
})()
