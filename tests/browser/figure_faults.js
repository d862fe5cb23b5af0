// What is wrong with the figures of a page, as the browser lays them out: texts that leave their figure or meet another,
// are below 11 pixels or a contrast of 4.5, and marks that cover or reference lines that cross one; a text on a patch of
// paper that hides the line is no fault.
const SHORT = 5;  // units of the picture: ticks and the ends of an interval are shorter
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
// Along a stroke, and across it.
const both = ([p, q]) => {
  const [[x, y]] = axes([p, q, p]);
  return [[x, y], [-y, x]];
};
const shadow = (shape, [x, y]) => shape.map((p) => p.x * x + p.y * y);
const meet = (one, two, sides, slack = SLACK) => sides.every((axis) => {
  const [a, b] = [shadow(one, axis), shadow(two, axis)];
  return Math.min(Math.max(...a), Math.max(...b)) - Math.max(Math.min(...a), Math.min(...b)) > slack;
});
// The strokes of a path: its ends in pairs.
const strokes = (path) => path.getAttribute("d").split("M").slice(1).flatMap((part) => {
  const points = part.split("L").map((each) => each.trim().split(/[ ,]+/).map(Number));
  return points.slice(1).map(([x, y], i) => [{x: points[i][0], y: points[i][1]}, {x, y}]);
}).filter(([p, q]) => Math.hypot(q.x - p.x, q.y - p.y) >= SHORT);
// Five points of a stroke inside a text's box.
const inside = ([p, q], box) => {
  let [from, to] = [0, 1];
  for (const axis of ["x", "y"]) {
    const step = q[axis] - p[axis], ends = box.map((each) => each[axis]);
    const cut = [Math.min(...ends), Math.max(...ends)].map((edge) => (edge - p[axis]) / step).sort((a, b) => a - b);
    if (step) [from, to] = [Math.max(from, cut[0]), Math.min(to, cut[1])];
  }
  return [0.1, 0.3, 0.5, 0.7, 0.9].map((part) => {
    const at = from + part * (to - from);
    return new DOMPoint(p.x + at * (q.x - p.x), p.y + at * (q.y - p.y));
  });
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
// Red, green and blue as light, and how bright a colour is (WCAG 2.2).
const light = (seen) => {
  const parts = seen.match(/[\d.]+/g).slice(0, 3).map((each) => each / 255);
  const [r, g, b] = parts.map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, two) => {
  const [low, high] = [light(one), light(two)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const found = [];
for (const svg of document.querySelectorAll("figure svg")) {
  if (!svg.checkVisibility() || !svg.viewBox.baseVal?.width) continue;
  const name = `${svg.id || svg.closest("figure").id}`, {width, height} = svg.viewBox.baseVal;
  const parts = [...svg.querySelectorAll("path, text, use, rect")].filter((each) => !each.closest("defs"));
  const texts = parts.filter((each) => each.tagName === "text" && each.textContent.trim());
  const boxes = texts.map((each) => corners(each, svg));
  const ruled = [];
  const patches = [], filled = [];
  const pixels = svg.getBoundingClientRect().width / width;
  const marks = parts.filter((each) => each.tagName === "use" && each.getBBox().width < 3 * SHORT).map((mark) => {
    const {x, y, width, height} = mark.getBBox(), matrix = svg.getCTM().inverse().multiply(mark.getCTM());
    const at = new DOMPoint(x + width / 2, y + height / 2).matrixTransform(matrix);
    return [-2, 2].map((step) => new DOMPoint(at.x + step, at.y + step));
  });  // areas are wider
  for (const path of parts.filter((each) => each.tagName === "path")) {
    const style = getComputedStyle(path), place = parts.indexOf(path);
    if (style.fill === paper) patches.push([path, place]);
    if (style.fill !== "none" && style.fillOpacity > 0.5 && !style.fill.includes("url")) filled.push([path, place]);
    if (style.fill === "none" && style.stroke !== "none" && style.stroke !== grid) {
      for (const ends of strokes(path)) ruled.push([place, ends]);
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
    if (marks.some((mark) => meet(box, mark, [[1, 0], [0, 1]]))) found.push(`${name}: a mark covers “${said}”`);
    const high = parseFloat(getComputedStyle(text).fontSize) * pixels;
    if (high < 10.9) found.push(`${name}: “${said}” is ${high.toFixed(1)} pixels high`);
    const middle = new DOMPoint((box[0].x + box[2].x) / 2, (box[0].y + box[2].y) / 2);
    const under = filled.filter(([path, below]) => below < place && path.isPointInFill(middle)).at(-1);
    const told = contrast(getComputedStyle(text).fill, under ? getComputedStyle(under[0]).fill : paper);
    if (told < 4.5) found.push(`${name}: “${said}” has a contrast of ${told.toFixed(2)}`);
    for (const [below, ends] of ruled) {
      if (!meet(box, ends, [...axes(box), ...both(ends)], -1e-6)) continue;
      const shown = (point) => !patches.some(
        ([patch, above]) => above > below && above < place && patch.isPointInFill(point),
      );
      if (inside(ends, box).some(shown)) found.push(`${name}: a line crosses “${said}”`);
    }
  });
}
return [...new Set(found)];
