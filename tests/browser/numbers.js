// The measured numbers of a page: cells of numeric columns, and linked numbers of the text. What an article prints, or
// another recording holds, is no measurement of the report; neither are counts of verdicts, and drawings of how a kernel
// works.
const found = (() => {
  const digits = /\d/;
  const cells = [...document.querySelectorAll('main td.n, header td.n')].filter(
    (each) => digits.test(each.textContent) && !each.closest('[data-published], [data-counts], .diff') &&
      !each.querySelector('[data-published], [data-recorded], a[href*="claims.html#verdict="]'));
  const links = [...document.querySelectorAll('main a[href*="#row-"], header a[href*="#row-"]')].filter(
    (each) => digits.test(each.textContent) && !each.closest('td.n'));
  return [...cells, ...links];
})();
