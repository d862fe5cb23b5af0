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

  // What scrolls sideways is reached by keyboard; what does not is no stop. A box is asked once it is laid out: to ask
  // one in a closed section would lay it out as well.
  if (typeof ResizeObserver !== "undefined") {
    const sized = new ResizeObserver((changes) => {
      const scrolls = changes.map(({ target: box }) => [box, box.scrollWidth > box.clientWidth + 1]);
      for (const [box, does] of scrolls) does ? (box.tabIndex = 0) : box.removeAttribute("tabindex");
    });
    all(".scroll, pre").forEach((box) => sized.observe(box));
  }

  // A link into a closed section opens it.
  const target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const reveal = () => {
    const found = location.hash.includes("=") ? null : target();
    let changed = false;
    for (let each = found?.closest("details:not([open])"); each; each = each.parentElement.closest("details:not([open])")) {
      each.open = changed = true;
    }
    // Rows out of sight have estimated heights until they are near, which moves what is below them: a few frames long.
    const estimated = found?.closest(".claims, .every");
    const settle = (frames) => {
      found.scrollIntoView();
      if (frames && found === target()) requestAnimationFrame(() => settle(frames - 1));
    };
    if (changed || estimated) settle(estimated ? 6 : 0);
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
  // The longest of the names that the id begins with: one name may begin another.
  const named = (names, id) =>
    names.filter((each) => id.startsWith(`${each}-`)).sort((a, b) => b.length - a.length)[0];
  // The one-file edition has pages, and no files beside them.
  const files = (pairs) => (single ? [] : pairs.filter(([, place]) => place).map(([name, place]) => [name, root + place]));
  const of_kernel = ([, source, listings, command, page, samples]) => ({
    links: [
      ["Samples", at(page)],
      ...files([["All samples (Parquet)", samples], ["Source", source], ...listings.map(([name, place]) => [`Machine code, ${name}`, place])]),
      ...(single && source ? [["Source and machine code", at(page)]] : []),
      ...(source ? [] : [["What the library launched", at(page)]]),
    ],
    command,
    needs: command.includes("measure=live"),
  });
  const caches = {
    warm: "warm: the same operands again and again, in alternation with the baseline",
    cold: "cold: L2 evicted before each launch, in alternation with the baseline",
    sustained: "sustained: alone on a hot GPU, once clock and power are steady",
    burst: "burst: alone, eight samples from rest",
  };
  const about = (id) => {
    const row = evidence.rows[id];
    if (row) {
      const kernel = evidence.kernels[row[0]];
      const few = row[3] || row[9] === "–" ? "; the interval covers the median at 95%" : "; too few, or too wide, for an interval";
      return {
        ...of_kernel(kernel),
        page: kernel[4],
        title: `${kernel[0]}: ${row[1]}`,
        value: row[7] === "–" ? `${row[4]} ${row[5]}` : `${row[4]} ${row[5]}, ratio ${row[7]}`,
        facts: [
          ["Regime", caches[row[14]]],
          ["Median time", `${row[2]} ${row[3]}`],
          [row[5], row[4] === "–" ? "" : `${row[4]} ${row[6]}`],
          ["Speed relative to the baseline", row[7] === "–" ? "" : `${row[7]} ${row[8]}`],
          ["Samples", `${row[9]}${row[10] === "–" ? "" : ` in ${row[10]}`}${few}`],
          ["SM clock, power", row[11] === "–" ? "" : `${row[11]} MHz, ${row[12]} W`],
          ["Status", row[13] ? "stale: another build than today's" : "current"],
        ],
      };
    }
    if (id.startsWith("row-counters-")) {
      const found = named(Object.keys(evidence.kernels), id.slice("row-counters-".length));
      const kernel = evidence.kernels[found];
      if (kernel) {
        const [toolkit, size, ...metric] = id.slice(`row-counters-${found}-`.length).split("-");
        const facts = [["Regime", `one profiled launch at ${size}, built by ${toolkit}`]];
        return { ...of_kernel(kernel), page: kernel[4], title: `${kernel[0]}: ${metric.join(".")}`, value: "", facts };
      }
    }
    const own = named(Object.keys(evidence.experiments).map((each) => each.replace("experiment-", "row-")), id);
    if (!own) return null;
    const [title, command, date, machine, page, csv, source, kernels] = evidence.experiments[own.replace("row-", "experiment-")];
    const place = Number(id.slice(own.length + 1));
    const found = Object.keys(kernels).find((each) => kernels[each].includes(place));
    const kernel = evidence.kernels[found];
    const listings = kernel ? of_kernel(kernel).links.filter(([name]) => /^(Source|Machine code)/.test(name)) : [];
    return {
      title: `${title}: ${kernel ? kernel[0] : found}`,
      value: "",
      page,
      facts: [["Measured on", machine], ["Date", date], ["Regime", "as the experiment’s program times or counts it"], ["Machine code", kernel ? "" : "of a library, which is not ours to show"]],
      links: [
        ["Row", at(`${page}#${id}`)],
        ...files([["All rows (CSV)", csv], ["Program of the experiment", source]]),
        ...listings,
      ],
      command,
      needs: command.includes("measure=live"),
    };
  };
  // What a claim's value was computed from is listed in its row, and the rule by its metric.
  const origin = (link) => {
    const row = link.closest("#claims-table tr");
    if (!row) return { formula: link.dataset.formula, from: (link.dataset.from || "").split(" ").filter(Boolean) };
    const place = [...link.parentElement.parentElement.children].indexOf(link.parentElement);
    const listed = all(".from", row)[place];
    const from = listed ? all("a", listed).map((each) => decodeURIComponent(each.hash.slice(1))) : [];
    return { formula: evidence.rules[evidence.claims[row.id]], from };
  };
  const of_figure = (id) => {
    const [title, command, csv, rows] = evidence.figures[id];
    // Of one row: the first of a kernel of ours, as a library's has no source.
    const drawn = rows.map((each) => about(each)?.links ?? []);
    const links = drawn.find((each) => each.some(([name]) => name.startsWith("Machine code"))) ?? drawn[0] ?? [];
    return {
      title,
      facts: [["Drawn from", `${rows.length} rows`]],
      links: [...files([["Numbers (CSV)", csv]]), ...links.filter(([name]) => /^(Source|Program|Machine code|What)/.test(name))],
      rows,
      command,
      needs: false,
    };
  };
  const operands = (ids) => {
    const list = make("ol", { className: "operands" });
    for (const id of ids.slice(0, 40)) {
      const row = about(id);
      if (row) list.append(make("li", {}, make("a", { href: at(`${row.page}#${id}`) }, row.title), row.value ? `: ${row.value}` : ""));
    }
    if (ids.length > 40) list.append(make("li", {}, `and ${ids.length - 40} more`));
    return list;
  };
  const show = (text, id, { href, link }) => {
    const { formula, from } = link ? origin(link) : { from: [] };
    const told = id in evidence.figures ? of_figure(id) : about(id);
    if (!told) return (location.href = href || `#${id}`);
    href ||= told.page ? at(`${told.page}#${id}`) : `#${id}`;
    const close = make("button", { type: "button", className: "close" }, "Close");
    close.addEventListener("click", () => box.close());
    const address = make("button", { type: "button" }, "Copy link");
    address.addEventListener("click", () => copy(new URL(href, location.href).href, address));
    const places = make("p", { className: "places" });
    for (const [name, to] of told.links) places.append(make("a", { href: name === "Samples" ? href : to }, name));
    const parts = [make("h2", { id: "evidence-title" }, `${text}: ${told.title}`)];
    const rows = from.length ? from : told.rows || [];
    if (formula) parts.push(make("p", { className: "formula" }, `Computed: ${formula}`));
    if (rows.length) parts.push(operands(rows));
    parts.push(facts(told.facts), places);
    if (told.command) {
      const button = make("button", { type: "button" }, "Copy");
      button.addEventListener("click", () => copy(told.command, button));
      const shown = make("pre", { tabIndex: 0 }, make("code", {}, told.command));
      parts.push(make("p", {}, told.needs ? "Measure it again, on a machine with a GPU: " : "Make it again: ", button), shown);
    }
    parts.push(make("p", { className: "places" }, address, close));
    box.replaceChildren(...parts);
    all("a", box).forEach((each) => each.addEventListener("click", () => box.close()));
    box.showModal();
  };
  box.addEventListener("click", (event) => event.target === box && box.close());
  const asked = (target) => {
    const link = target.closest?.('a[href*="#row-"]');
    if (link) {
      return [link.textContent.trim(), decodeURIComponent(link.hash.slice(1)), { href: link.href, link }];
    }
    if (target.closest?.("a, button, summary")) return null;
    const cell = target.closest?.("td.n");
    const line = cell?.closest('tr[id^="row-"], tr[data-row]');
    const row = line?.dataset.row || line?.id;
    const drawn = cell?.closest("[data-figure]")?.dataset.figure;
    const id = row || drawn;
    return id && /\d/.test(cell.textContent) ? [cell.textContent.trim(), id, {}] : null;
  };
  document.addEventListener("click", (event) => {
    if (box.contains(event.target) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const found = asked(event.target);
    if (!found || getSelection().toString()) return;
    event.preventDefault();
    load("data/evidence.js").then(() => show(...found), () => (location.href = found[2].href || `#${found[1]}`));
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
    const fields = ["verdict", "register", "way", "article", "family", "gpu"].filter(present);
    const named = [...fields, ...["words", "sort", "regime"].filter(present)];
    const several = form.elements.regime ? rows.filter((row) => $("[data-regime]", row)) : [];
    const switchRegime = () => {
      const chosen = form.elements.regime?.value;
      for (const row of several) {
        const values = all("[data-regime]", row);
        const has = values.some((each) => each.dataset.regime === chosen);
        for (const each of values) each.hidden = has && each.dataset.regime !== chosen;
      }
    };
    for (const row of rows) {
      const [claim, way, verdict] = row.cells;
      row.dataset.article = $("small", claim).textContent.split(", ")[0];
      row.dataset.register = way.firstChild.textContent;
      row.dataset.way = $("small", way).firstChild.textContent;
      row.dataset.verdict = verdict.textContent;
    }
    const decided = ["reproduced", "partly", "not reproduced"];
    const several_verdicts = { decided, judged: [...decided, "undecided", "not comparable here", "consistent", "contradictory"] };
    const has = (row, name, value) => !value || (several_verdicts[value] ?? [value]).includes(row.dataset[name]);
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
    let ordered = "";
    const order = () => {
      if (form.elements.sort.value === ordered) return;
      ordered = form.elements.sort.value;
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
