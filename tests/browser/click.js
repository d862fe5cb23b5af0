// What a click on one of numbers.js' numbers shows, or where it leads.
const [cell, done] = [found[arguments[0]], arguments[1]];
for (let each = cell.closest('details'); each; each = each.parentElement.closest('details')) each.open = true;
const row = cell.closest('tr'); if (row) row.hidden = false;
const link = cell.matches('a') ? cell : cell.querySelector('a[href]');
const before = location.href;
const said = () => {
  const box = document.querySelector('dialog[open]');
  if (box) return {
    text: cell.textContent.trim(), words: box.innerText,
    links: [...box.querySelectorAll('.places a, .operands a')].map((a) => [a.textContent, a.href]),
    command: box.querySelector('pre')?.textContent || ''};
  return null;
};
// A link that the page does not answer itself leads to another page, where this script would end.
let place = '';
addEventListener('click', (event) => {
  if (link && !event.defaultPrevented && link.pathname !== location.pathname) {
    event.preventDefault();
    place = link.href;
  }
}, {once: true});
(link || cell).click();
if (place) return done({text: cell.textContent.trim(), place, links: [], command: ''});
let tries = 0;
const wait = () => {
  const found = said();
  if (found) return done(found);
  if (++tries < 400 && (!link || location.href === before)) return setTimeout(wait, 25);
  done({text: cell.textContent.trim(), place: link ? link.href : location.href, links: [], command: ''});
};
wait();
