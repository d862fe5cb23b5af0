"use strict";
(() => {
  const form = document.getElementById("claim-filters");
  if (form) {
    const rows = [...document.querySelectorAll("#claims-table tbody tr")];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const shown = document.getElementById("claims-shown");
    const apply = () => {
      const verdict = form.elements.verdict.value;
      const article = form.elements.article.value;
      const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((row, index) => {
        const keep =
          (!verdict || row.dataset.verdict === verdict) &&
          (!article || row.dataset.article === article) &&
          words.every((word) => texts[index].includes(word));
        row.hidden = !keep;
        count += keep;
      });
      shown.value = `${count} of ${rows.length} claims shown`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    // A link to a claim that the filters hide shows all of them again.
    addEventListener("hashchange", () => {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (target && target.closest("tr[hidden]")) {
        form.reset();
        setTimeout(() => target.scrollIntoView());
      }
    });
    form.hidden = false;
    apply();
  }
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((each) => (each.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((each) => (each.open = false)));
})();
