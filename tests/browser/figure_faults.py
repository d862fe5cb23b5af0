"""What is wrong with the figures of a page, as the browser lays them out."""

from __future__ import annotations

FAULTS = r"""
const LONG = 40;  // units of the picture: a legend's sample of a line is shorter
const SLACK = 0.5;
const corners = (text, svg) => {
  const box = text.getBBox(), size = parseFloat(getComputedStyle(text).fontSize), y = text.y.baseVal[0]?.value ?? 0;
  const matrix = svg.getCTM().inverse().multiply(text.getCTM());
  return [[box.x, y - 0.72 * size], [box.x + box.width, y - 0.72 * size], [box.x + box.width, y + 0.18 * size],
          [box.x, y + 0.18 * size]].map(([a, b]) => new DOMPoint(a, b).matrixTransform(matrix));
};
const axes = (shape) => shape.slice(0, 2).map((p, i) => {
  const q = shape[i + 1], length = Math.hypot(q.x - p.x, q.y - p.y) || 1;
  return [(q.x - p.x) / length, (q.y - p.y) / length];
});
const shadow = (shape, [x, y]) => shape.map((p) => p.x * x + p.y * y);
const meet = (one, two, sides) => sides.every((axis) => {
  const [a, b] = [shadow(one, axis), shadow(two, axis)];
  return Math.min(Math.max(...a), Math.max(...b)) - Math.max(Math.min(...a), Math.min(...b)) > SLACK;
});
// The straight lines of a path along either axis, each as a thin box.
const lines = (path) => {
  const found = [];
  for (const part of path.getAttribute("d").split("M").slice(1)) {
    const points = part.split("L").map((each) => each.trim().split(/[ ,]+/).map(Number));
    for (let i = 1; i < points.length; i++) {
      const [[a, b], [c, d]] = [points[i - 1], points[i]];
      const along = Math.max(Math.abs(c - a), Math.abs(d - b)), across = Math.min(Math.abs(c - a), Math.abs(d - b));
      if (!(along >= LONG && across < 0.2)) continue;
      found.push([[Math.min(a, c), Math.min(b, d)], [Math.max(a, c), Math.max(b, d)]]);
    }
  }
  return found;
};
// A colour of the page as the browser writes it.
const colour = (name) => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(--${name})`;
  const seen = getComputedStyle(probe).color;
  probe.remove();
  return seen;
};
const [grid, paper] = [colour("grid"), colour("paper")];
const found = [];
for (const svg of document.querySelectorAll("figure svg")) {
  if (!svg.checkVisibility() || !svg.viewBox.baseVal?.width) continue;
  const name = `${svg.id || svg.closest("figure").id}`, {width, height} = svg.viewBox.baseVal;
  const parts = [...svg.querySelectorAll("path, text, use, rect")].filter((each) => !each.closest("defs"));
  const texts = parts.filter((each) => each.tagName === "text" && each.textContent.trim());
  const boxes = texts.map((each) => corners(each, svg));
  const ruled = [];
  const patches = [];
  for (const path of parts.filter((each) => each.tagName === "path")) {
    const style = getComputedStyle(path), place = parts.indexOf(path);
    if (style.fill === paper) patches.push([path, place]);
    if (style.fill === "none" && style.stroke !== "none" && style.stroke !== grid) {
      for (const ends of lines(path)) ruled.push([place, ...ends]);
    }
  }
  texts.forEach((text, i) => {
    const said = text.textContent.trim(), box = boxes[i], place = parts.indexOf(text);
    if (box.some(({x, y}) => x < -SLACK || y < -SLACK || x > width + SLACK || y > height + SLACK)) {
      found.push(`${name}: “${said}” leaves the figure`);
    }
    for (let j = 0; j < i; j++) {
      if (meet(box, boxes[j], [...axes(box), ...axes(boxes[j])])) {
        found.push(`${name}: “${said}” meets “${texts[j].textContent.trim()}”`);
      }
    }
    for (const [below, p, q] of ruled) {
      const wide = [{x: p[0] - SLACK, y: p[1] - SLACK}, {x: q[0] + SLACK, y: p[1] - SLACK},
                    {x: q[0] + SLACK, y: q[1] + SLACK}, {x: p[0] - SLACK, y: q[1] + SLACK}];
      if (!meet(box, wide, [...axes(box), [1, 0], [0, 1]])) continue;
      const x = box.map((each) => each.x), y = box.map((each) => each.y);
      const at = svg.createSVGPoint();
      at.x = p[0] === q[0] || q[1] - p[1] > q[0] - p[0] ? p[0] : (Math.min(...x) + Math.max(...x)) / 2;
      at.y = q[1] - p[1] > q[0] - p[0] ? (Math.min(...y) + Math.max(...y)) / 2 : p[1];
      const hidden = patches.some(([patch, above]) => above > below && above < place && patch.isPointInFill(at));
      if (!hidden) found.push(`${name}: a line crosses “${said}”`);
    }
  });
}
return [...new Set(found)];
"""
"""Texts that leave their figure or meet another, and reference lines that cross one; a text on a patch of paper that
hides the line is no fault."""
