"use strict";
(() => {
  // Bulk is packed (gzip in base64) where nobody has opened it yet.
  const unpack = async (box) => {
    const packed = box.dataset.packed;
    if (!packed || typeof DecompressionStream === "undefined") return;
    delete box.dataset.packed;
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const text = await new Response(stream).text();
    box.classList.remove("packed");
    box.innerHTML = text;
  };
  const unpackIn = (element) => Promise.all([...element.querySelectorAll("[data-packed]")].map(unpack));
  addEventListener("toggle", ({ target }) => target.open && unpackIn(target), true);
  document.querySelectorAll("details[open]").forEach(unpackIn);
  const button = document.getElementById("unpack");
  if (button && typeof DecompressionStream !== "undefined") {
    button.hidden = false;
    button.addEventListener("click", async () => {
      button.disabled = true;
      const count = document.querySelectorAll("[data-packed]").length;
      await unpackIn(document);
      document.getElementById("unpacked").value = `${count} parts unpacked`;
    });
  }

  // A link into a closed section opens it.
  const target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const reveal = () => {
    const found = target();
    let changed = false;
    for (let each = found?.closest("details:not([open])"); each; each = each.parentElement.closest("details:not([open])")) {
      each.open = changed = true;
    }
    if (changed) found.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  const form = document.getElementById("claim-filters");
  if (form) {
    const rows = [...document.querySelectorAll("#claims-table tbody tr")];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const shown = document.getElementById("claims-shown");
    const apply = () => {
      const verdict = form.elements.verdict.value;
      const article = form.elements.article.value;
      const register = form.elements.register.value;
      const way = form.elements.way.value;
      const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((row, index) => {
        const keep =
          (!verdict || row.dataset.verdict === verdict) &&
          (!article || row.dataset.article === article) &&
          (!register || row.dataset.register === register) &&
          (!way || row.dataset.way === way) &&
          words.every((word) => texts[index].includes(word));
        row.hidden = !keep;
        count += keep;
      });
      shown.value = `${count} of ${rows.length} claims shown`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    // A number of the abstract leads to the claims that it counts.
    document.querySelectorAll("a[data-verdict]").forEach((link) =>
      link.addEventListener("click", () => {
        form.elements.words.value = "";
        form.elements.verdict.value = link.dataset.verdict;
        form.elements.article.value = link.dataset.article;
        form.elements.register.value = link.dataset.register;
        form.elements.way.value = "";
        apply();
      }),
    );
    // A link to a claim that the filters hide shows all of them again.
    const release = () => {
      const found = target();
      if (found?.closest("tr[hidden]")) {
        form.reset();
        setTimeout(() => found.scrollIntoView());
      }
    };
    addEventListener("hashchange", release);
    form.hidden = false;
    apply();
    release();
  }

  // Print opens what is closed, except what is still packed: a million elements are no paper.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((each) => !each.querySelector("[data-packed]"));
    opened.forEach((each) => (each.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((each) => (each.open = false)));
})();
