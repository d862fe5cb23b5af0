"use strict";
(() => {
  const root = document.documentElement.dataset.root || "";
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  // A page that was opened from disk may not fetch, but may load a script.
  // The one-file edition holds them already, and shows one of its pages at a time.
  const single = "single" in document.documentElement.dataset;
  const loaded = {};
  const load = (place) =>
    (loaded[place] ??= single
      ? Promise.resolve()
      : new Promise((resolve, reject) => {
          document.head.append(make("script", { src: root + place, onload: resolve, onerror: reject }));
        }));
  const dashed = (id) => id.replace(/[^A-Za-z0-9]+/g, "-");
  const at = (place) => {
    const [page, id] = place.split("#");
    return single ? `#${id ?? `page-${dashed(page.replace(/\.html$/, ""))}`}` : root + place;
  };
  if (single) {
    const choose = () => document.getElementById("page-claims").classList.toggle("chosen", location.hash.includes("="));
    addEventListener("hashchange", choose);
    choose();
  }

  // What scrolls sideways is reached by keyboard; what does not is no stop.
  const stops = () =>
    all(".scroll, pre").forEach((box) =>
      box.scrollWidth > box.clientWidth + 1 ? (box.tabIndex = 0) : box.removeAttribute("tabindex"),
    );
  addEventListener("resize", stops);
  addEventListener("toggle", stops, true);
  stops();

  // A link into a closed section opens it.
  const target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const reveal = () => {
    const found = location.hash.includes("=") ? null : target();
    let changed = false;
    for (let each = found?.closest("details:not([open])"); each; each = each.parentElement.closest("details:not([open])")) {
      each.open = changed = true;
    }
    if (changed) found.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Evidence: a click on a number shows its row, and where its samples, source, machine code and command are.
  let evidence;
  window.gemmreproEvidence = (told) => (evidence = told);
  const box = make("dialog", { className: "evidence-box" });
  box.setAttribute("aria-labelledby", "evidence-title");
  document.body.append(box);
  const copy = (text, button) =>
    navigator.clipboard.writeText(text).then(
      () => (button.textContent = "copied"),
      () => (button.textContent = "not allowed to copy"),
    );
  const facts = (pairs) => {
    const list = make("dl", { className: "facts" });
    for (const [name, value] of pairs) if (value && value !== "–") list.append(make("dt", {}, name), make("dd", {}, value));
    return list;
  };
  const about = (id) => {
    const row = evidence.rows[id];
    if (row) {
      const [title, source, listings, command] = evidence.kernels[row[0]];
      return {
        title: `${title}: ${row[1]}`,
        facts: [
          ["Median time", `${row[2]} ${row[3]}`],
          [row[5], `${row[4]} ${row[6]}`],
          ["Speed relative to the baseline", row[7] === "–" ? "" : `${row[7]} ${row[8]}`],
          ["Samples", `${row[9]}${row[10] === "–" ? "" : ` in ${row[10]} rounds`}; the interval covers the median at 95%`],
          ["SM clock, power", row[11] === "–" ? "" : `${row[11]} MHz, ${row[12]} W`],
          ["Status", row[13] ? "stale: another build than today's" : "current"],
        ],
        links: single
          ? [["Source and machine code", `#page-kernels-${row[0]}`]].filter(([, href]) => $(href))
          : [...(source ? [["Source", root + source]] : []), ...listings.map(([name, place]) => [`Machine code, ${name}`, root + place])],
        command,
      };
    }
    const experiment = Object.keys(evidence.experiments).find((each) => id.startsWith(each.replace("experiment-", "row-") + "-"));
    if (!experiment) return { title: "Evidence", facts: [], links: [], command: "" };
    const [title, command, date, machine] = evidence.experiments[experiment];
    return { title, facts: [["Measured on", machine], ["Date", date]], links: [], command };
  };
  // What a claim's value was computed from is listed in its row.
  const origin = (link) => {
    const place = [...link.parentElement.parentElement.children].indexOf(link.parentElement);
    const listed = all(".from", link.closest("tr") ?? link)[place];
    const keys = [...(listed?.childNodes ?? [])].map((each) => each.textContent.trim()).filter(Boolean);
    return keys.length > 1 ? `from ${keys.join(" and ")}` : "";
  };
  const show = (link, id) => {
    const { title, facts: told, links, command } = about(id);
    const close = make("button", { type: "button", className: "close" }, "Close");
    close.addEventListener("click", () => box.close());
    const address = make("button", { type: "button" }, "Copy link");
    address.addEventListener("click", () => copy(link.href, address));
    const places = make("p", { className: "places" }, make("a", { href: link.href }, "Samples"));
    for (const [name, href] of links) places.append(make("a", { href }, name));
    const parts = [make("h2", { id: "evidence-title" }, `${link.textContent.trim()}: ${title}`)];
    const formula = link.dataset.formula ?? origin(link);
    if (formula) parts.push(make("p", {}, `Computed: ${formula}`));
    parts.push(facts(told), places);
    if (command) {
      const button = make("button", { type: "button" }, "Copy");
      button.addEventListener("click", () => copy(command, button));
      const shown = make("pre", { tabIndex: 0 }, make("code", {}, command));
      parts.push(make("p", {}, "Measure it again, on a machine with a GPU: ", button), shown);
    }
    parts.push(make("p", { className: "places" }, address, close));
    box.replaceChildren(...parts);
    all("a", box).forEach((each) => each.addEventListener("click", () => box.close()));
    box.showModal();
  };
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href*="#row-"]');
    if (!link || box.contains(link) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const id = decodeURIComponent(link.hash.slice(1));
    load("data/evidence.js").then(() => show(link, id), () => (location.href = link.href));
  });

  // Claims: the choice is in the address, so that it can be sent, reloaded and gone back from.
  const form = $("#claim-filters");
  if (form) {
    const body = $("#claims-table tbody");
    const rows = all("tr", body);
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const shown = $("#claims-shown");
    // A choice of GPU or regime is offered where there are several.
    const present = (name) => form.elements[name];
    const fields = ["verdict", "register", "way", "article", "gpu"].filter(present);
    const named = [...fields, ...["words", "sort", "regime"].filter(present)];
    const switchRegime = () => {
      const chosen = form.elements.regime?.value;
      for (const row of rows) {
        const values = all("[data-regime]", row);
        const has = values.some((each) => each.dataset.regime === chosen);
        for (const each of values) each.hidden = has && each.dataset.regime !== chosen;
      }
    };
    for (const row of rows) {
      const [claim, way, verdict] = row.cells;
      row.dataset.article = $(".where", claim).textContent.split(", ")[0];
      row.dataset.register = way.firstChild.textContent;
      row.dataset.way = $(".where", way).textContent;
      row.dataset.verdict = verdict.textContent;
    }
    const judged = new Set(["reproduced", "partly", "not reproduced", "consistent", "contradictory"]);
    const has = (row, name, value) =>
      !value || (name === "verdict" && value === "judged" ? judged.has(row.dataset.verdict) : row.dataset[name] === value);
    for (const select of all("select", form)) {
      for (const option of select.options) [option.value, option.dataset.name] = [option.value, option.textContent];
    }
    const apply = () => {
      const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = texts.map((text) => words.every((word) => text.includes(word)));
      let count = 0;
      rows.forEach((row, index) => {
        row.hidden = !(found[index] && fields.every((name) => has(row, name, form.elements[name].value)));
        count += !row.hidden;
      });
      for (const name of fields) {
        const others = rows.filter(
          (row, index) => found[index] && fields.every((other) => other === name || has(row, other, form.elements[other].value)),
        );
        for (const option of form.elements[name].options) {
          option.textContent = `${option.dataset.name} (${others.filter((row) => has(row, name, option.value)).length})`;
        }
      }
      switchRegime();
      shown.value = `${count} of ${rows.length} claims shown`;
      $("#claims-none").hidden = count > 0;
    };
    const order = () => {
      const far = (row) => Number(row.dataset.distance || -1);
      const sorted = form.elements.sort.value === "distance" ? [...rows].sort((a, b) => far(b) - far(a)) : rows;
      body.append(...sorted);
    };
    const read = () => {
      if (location.hash && !location.hash.includes("=")) {
        // A claim that the filters hide: show all.
        const found = target();
        if (found?.closest("tr[hidden]")) {
          for (const name of named) form.elements[name].value = "";
          apply();
          found.scrollIntoView();
        }
        return;
      }
      const chosen = new URLSearchParams(location.hash.slice(1));
      for (const name of named) {
        form.elements[name].value = chosen.get(name) ?? (name === "verdict" && !location.hash ? "judged" : "");
      }
      order();
      apply();
    };
    const write = () => {
      const chosen = new URLSearchParams();
      for (const name of named) if (form.elements[name].value) chosen.set(name, form.elements[name].value);
      if (!chosen.has("verdict")) chosen.set("verdict", "");
      return `#${chosen}`;
    };
    let typing;
    form.addEventListener("change", (event) => {
      if (event.target.name === "words") return;
      if (event.target.name === "sort") order();
      apply();
      location.hash = write();
    });
    form.addEventListener("input", (event) => {
      if (event.target.name !== "words") return;
      apply();
      clearTimeout(typing);
      typing = setTimeout(() => history.replaceState(null, "", write()), 300);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", (event) => {
      event.preventDefault();
      clearTimeout(typing);
      for (const name of named) form.elements[name].value = "";
      order();
      apply();
      location.hash = "#verdict=";
    });
    addEventListener("hashchange", read);
    const quoted = (text) => `"${text.replace(/\s+/g, " ").trim().replaceAll('"', '""')}"`;
    $("#claims-csv").addEventListener("click", () => {
      const header = ["id", "article", "register", "way", "verdict", "statement", "published", "measured", "why"];
      const lines = rows
        .filter((row) => !row.hidden)
        .map((row) => {
          const [claim, , , published, measured, why] = row.cells;
          const { article, register, way, verdict } = row.dataset;
          const own = [$("a.where", claim).textContent, article, register, way, verdict, claim.firstChild.textContent];
          return [...own, published.innerText, measured.innerText, why.firstChild.textContent].map(quoted).join(",");
        });
      const blob = new Blob([[header.join(","), ...lines].join("\n") + "\n"], { type: "text/csv" });
      make("a", { href: URL.createObjectURL(blob), download: "claims.csv" }).click();
    });
    all("[data-copy]", body).forEach((button) => button.addEventListener("click", () => copy(button.dataset.copy, button)));
    form.hidden = false;
    read();
    if (!location.hash) apply();
  }

  // Search over claims, kernels and terms.
  const search = $(".search");
  if (search) {
    const input = $("input", search);
    const list = $("ol", search);
    let entries = [];
    const kinds = {
      kernels: ([id, words]) => [words, `kernels/${id}.html`, id],
      terms: ([id, words]) => [words, `index.html#${id}`, "term"],
      claims: ([id, words]) => [words, `claims.html#claim-${dashed(id)}`, id],
    };
    window.gemmreproSearch = (told) =>
      (entries = Object.entries(kinds).flatMap(([kind, entry]) =>
        told[kind].map(entry).map(([name, place, more]) => [name, place, `${name} ${more}`.toLowerCase()]),
      ));
    const find = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = words.length ? entries.filter(([, , text]) => words.every((word) => text.includes(word))).slice(0, 12) : [];
      list.replaceChildren(...found.map(([name, place]) => make("li", {}, make("a", { href: at(place) }, name))));
      if (words.length && !found.length) list.append(make("li", {}, "nothing found"));
      list.hidden = !words.length;
    };
    input.addEventListener("focus", () => load("assets/search.js").then(find, () => {}), { once: true });
    input.addEventListener("input", () => load("assets/search.js").then(find, () => {}));
    search.addEventListener("submit", (event) => {
      event.preventDefault();
      $("a", list)?.click();
    });
    search.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      list.hidden = true;
      input.focus();
    });
    search.hidden = false;
  }

  // The contents follow what is read.
  const entries = new Map(all(".contents a").map((link) => [link.hash.slice(1), link]));
  if (entries.size && typeof IntersectionObserver !== "undefined") {
    const seen = new Set();
    const observer = new IntersectionObserver(
      (changes) => {
        for (const { target: each, isIntersecting } of changes) isIntersecting ? seen.add(each.id) : seen.delete(each.id);
        const here = [...entries.keys()].filter((id) => seen.has(id)).pop();
        for (const [id, link] of entries) {
          if (id === here) link.setAttribute("aria-current", "true");
          else link.removeAttribute("aria-current");
        }
      },
      { rootMargin: "0px 0px -65% 0px" },
    );
    for (const id of entries.keys()) {
      const section = document.getElementById(id);
      if (section) observer.observe(section);
    }
  }

  // Print opens what is closed.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    opened.forEach((each) => (each.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((each) => (each.open = false)));
})();
