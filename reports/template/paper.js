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
  const loaded = {};
  const load = (place) =>
    (loaded[place] ??= new Promise((resolve, reject) => {
      document.head.append(make("script", { src: root + place, onload: resolve, onerror: reject }));
    }));
  const dashed = (id) => id.replace(/[^A-Za-z0-9]+/g, "-");
  const at = (place) => root + place;

  // What scrolls sideways is reached by keyboard.
  if (typeof ResizeObserver !== "undefined") {
    const sized = new ResizeObserver((changes) => {
      const scrolls = changes.map(({ target: box }) => [box, box.scrollWidth > box.clientWidth + 1]);
      for (const [box, does] of scrolls) does ? (box.tabIndex = 0) : box.removeAttribute("tabindex");
    });
    all(".scroll, pre").forEach((box) => sized.observe(box));
  }

  // On a phone a row is a card, whose cells have their columns' names.
  const label = (table) => {
    const names = [];
    const heads = [...(table.tHead?.rows ?? [])];
    // A name that spans columns stands before those of the second row.
    const low = [...(heads[1]?.cells ?? [])];
    for (const head of heads[0]?.cells ?? []) {
      if (heads[1] && head.rowSpan < 2) {
        for (const below of low.splice(0, head.colSpan)) names.push(`${head.textContent}, ${below.textContent}`);
      } else names.push(head.textContent);
    }
    for (const row of all("tbody tr", table)) {
      [...row.cells].forEach((cell, place) => cell.tagName === "TD" && names[place] && (cell.dataset.label = names[place]));
    }
    table.classList.add("cards");
  };
  const phone = matchMedia("(max-width: 30rem)");
  const cards = () => phone.matches && all(".scroll table:not(.claims, .cards)").forEach(label);
  phone.addEventListener("change", cards);
  cards();

  // A link into a closed section opens it.
  const target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const reveal = () => {
    const found = location.hash.includes("=") ? null : target();
    let changed = false;
    const folded = found?.matches(".claims tr") ? $("details", found) : found?.closest("details:not([open])");
    for (let each = folded; each; each = each.parentElement.closest("details:not([open])")) {
      each.open = changed = true;
    }
    // Rows out of sight have estimated heights until they are near.
    const estimated = found?.closest(".claims, .every");
    const settle = (frames) => {
      found.scrollIntoView();
      if (frames && found === target()) requestAnimationFrame(() => settle(frames - 1));
    };
    if (changed || estimated) settle(estimated ? 6 : 0);
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Evidence: a click on a number shows its row, and leads to what is behind it.
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
  // The longest of the names that the id begins with.
  const named = (names, id) =>
    names.filter((each) => id.startsWith(`${each}-`)).sort((a, b) => b.length - a.length)[0];
  const files = (pairs) => pairs.filter(([, place]) => place).map(([name, place]) => [name, root + place]);
  const of_kernel = ([, source, listings, command, page, samples]) => ({
    links: [
      ["Samples", at(page)],
      ...files([["All samples (recordings.zip)", samples], ["Source", source], ...listings.map(([name, place]) => [`Machine code, ${name}`, place])]),
      ...(source ? [] : [["What the library launched", at(page)]]),
    ],
    command,
    needs: command.includes("measure=live"),
  });
  const caches = {
    warm: "warm: the same operands again, in alternation with the baseline",
    cold: "cold: L2 evicted before each launch, in alternation with the baseline",
    sustained: "sustained: alone on a hot GPU, once clock and power are steady",
    burst: "burst: alone, eight samples from rest",
  };
  const about = (id) => {
    const row = evidence.rows[id];
    if (row) {
      const kernel = evidence.kernels[row[0]];
      const told = of_kernel(kernel);
      // The kernel at this size alone.
      const [id_, size] = [/kernels\/(.*)\.html/.exec(kernel[4])?.[1], / (\d+), /.exec(row[1])?.[1]];
      if (id_ && size && / --force results\/measure\//.test(told.command)) {
        const at_size = (value) => `{${id_.split(".")[0]}: ${value}}`;
        const sweep = `{sizes: ${at_size(`[${size}]`)}, kernels_at: ${at_size(`{sizes: [${size}], kernels: [${id_}]}`)}}`;
        told.command = told.command.replace("measure=live", `measure=live 'sweep=${sweep}'`);
      }
      const few = row[3] || row[9] === "–" ? "; the interval covers the median at 95%" : "; too few, or too wide, for an interval";
      return {
        ...told,
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
          [row[1].startsWith("fp64") ? "Relative difference from cuBLAS" : "Relative error of C", row[15]],
          ["Largest error of an element", row[16] === "–" ? "" : `${row[16]} units of |A||B|`],
          ["Energy of a launch", row[17] === "–" ? "" : `${row[17]} J`],
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
  // The claims that were judged on any of the rows, with their published values.
  const resting = (ids) => {
    const claims = Object.entries(evidence.claims).filter(([, claim]) => claim[4].some((row) => ids.includes(row)));
    if (!claims.length) return [];
    const list = make("ul", { className: "resting" });
    for (const [id, [, statement, verdict, published]] of claims.slice(0, 8)) {
      const link = make("a", { href: at(`claims.html#${id}`) }, statement);
      list.append(make("li", {}, badge(verdict), " ", link, published ? ` Published: ${published}.` : ""));
    }
    if (claims.length > 8) list.append(make("li", {}, `and ${claims.length - 8} more`));
    return [make("h3", {}, "Statements judged on it"), list];
  };
  // What a claim was computed from is listed in its row, the rule by its metric.
  const origin = (link) => {
    const row = link.closest("#claims-table td:not(:first-child)")?.parentElement;
    if (!row) return { formula: link.dataset.formula, from: (link.dataset.from || "").split(" ").filter(Boolean) };
    const place = all("a", link.closest("td")).indexOf(link);
    const listed = all(".from", row)[place];
    const from = listed ? all("a", listed).map((each) => decodeURIComponent(each.hash.slice(1))) : [];
    return { formula: evidence.rules[evidence.claims[row.id][0]], from };
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
    const parts = [make("h2", { id: "evidence-title", tabIndex: -1, autofocus: true }, `${text}: ${told.title}`)];
    const rows = from.length ? from : told.rows || [];
    if (formula) parts.push(make("p", { className: "formula" }, `Computed: ${formula}`));
    if (rows.length) parts.push(operands(rows));
    parts.push(facts(told.facts), ...(told.rows ? [] : resting([id])), places);
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

  // Claims: the choice is in the address, so that it can be sent.
  const form = $("#claim-filters");
  if (form) {
    const table = $("#claims-table");
    const rows = all("tr[data-k]", table);
    const homes = rows.map((row) => row.parentElement);
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const shown = $("#claims-shown");
    const present = (name) => form.elements[name];
    const fields = ["verdict", "register", "way", "article", "family", "gpu"].filter(present);
    const named = [...fields, ...["words", "regime"].filter(present)];
    const first = { verdict: "judged", register: "article" };
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
      [row.dataset.register, row.dataset.way, row.dataset.family] = row.dataset.k.split(" ");
      row.dataset.article = row.parentElement.dataset.article;
      row.dataset.verdict = $(".badge", row).textContent;
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
      for (const body of table.tBodies) body.hidden = !$("tr[data-k]:not([hidden])", body);
      switchRegime();
      shown.value = `${count} of ${rows.length} claims shown`;
      $("#claims-none").hidden = count > 0;
    };
    // By name, value, distance from 1, verdict.
    const verdicts = [...form.elements.verdict.options].map((option) => option.value);
    const valued = (cell) => {
      const [text, unit = ""] = cell.textContent.trim().split(/ (.*)/s);
      return [unit.split("[")[0], Number.parseFloat(text.replaceAll(",", ""))];
    };
    const far = (cell) => (cell.textContent.trim() ? -Math.abs(Math.log(Number(cell.textContent.replaceAll(",", "")))) : 1e9);
    const keys = [
      (row) => [$("summary", row).textContent, 0],
      (row) => valued(row.cells[1]),
      (row) => valued(row.cells[2]),
      (row) => ["", far(row.cells[3])],
      (row) => ["", verdicts.indexOf(row.dataset.verdict)],
    ];
    const heads = all("thead th", table);
    const names = ["claim", "published", "measured", "distance", "verdict"];
    const sorted = make("tbody");
    let order = "";
    const sort = (chosen) => {
      order = chosen;
      const down = order.startsWith("-");
      const place = names.indexOf(order.replace("-", ""));
      heads.forEach((head, index) => (head.ariaSort = index === place ? (down ? "descending" : "ascending") : null));
      if (place < 0) {
        rows.forEach((row, index) => homes[index].append(row));
        return sorted.remove();
      }
      const keyed = rows.map((row) => [keys[place](row), row]);
      // What has no number comes last in either direction.
      const none = (number) => Number.isNaN(number) || number === 1e9;
      keyed.sort(([a], [b]) => none(a[1]) - none(b[1]) || (down ? -1 : 1) * (a[0].localeCompare(b[0]) || a[1] - b[1] || 0));
      sorted.append(...keyed.map(([, row]) => row));
      table.append(sorted);
    };
    heads.forEach((head, index) => {
      const button = make("button", { type: "button" }, ...head.childNodes);
      button.addEventListener("click", () => {
        const name = names[index];
        sort(order === name ? `-${name}` : order === `-${name}` ? "" : name);
        apply();
        history.replaceState(null, "", write());
      });
      head.append(button);
    });
    const read = () => {
      if (location.hash && !location.hash.includes("=")) {
        // A claim that the filters hide: show all.
        const found = target();
        if (found?.closest("tr[hidden], tbody[hidden]")) {
          for (const name of named) form.elements[name].value = "";
          apply();
          found.scrollIntoView();
        } else if (!shown.value) apply();
        return;
      }
      const chosen = new URLSearchParams(location.hash.slice(1));
      for (const name of named) form.elements[name].value = chosen.get(name) ?? (location.hash ? "" : first[name] ?? "");
      $("details", form).open ||= all("details select", form).some((select) => select.value);
      sort(chosen.get("sort") ?? "");
      apply();
    };
    const write = () => {
      const chosen = new URLSearchParams();
      for (const name of named) if (form.elements[name].value) chosen.set(name, form.elements[name].value);
      if (order) chosen.set("sort", order);
      if (!chosen.has("verdict")) chosen.set("verdict", "");
      return `#${chosen}`;
    };
    let typing;
    form.addEventListener("change", (event) => {
      if (event.target.name === "words") return;
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
      sort("");
      apply();
      location.hash = "#verdict=";
    });
    addEventListener("hashchange", read);
    const quoted = (text) => `"${text.replace(/\s+/g, " ").trim().replaceAll('"', '""')}"`;
    $("#claims-csv").addEventListener("click", () => {
      const header = ["id", "article", "register", "way", "verdict", "statement", "published", "measured", "over_expected", "why"];
      const lines = all("tr[data-k]:not([hidden])", table).map((row) => {
        const [, published, measured, over] = row.cells;
        const { article, register, way, verdict } = row.dataset;
        const own = [$("a.where", row).textContent, article, register, way, verdict, $("summary", row).textContent];
        return [...own, published.innerText, measured.innerText, over.textContent, $("p", row).textContent].map(quoted).join(",");
      });
      const blob = new Blob([[header.join(","), ...lines].join("\n") + "\n"], { type: "text/csv" });
      make("a", { href: URL.createObjectURL(blob), download: "claims.csv" }).click();
    });
    form.hidden = false;
    read();
  }

  // Search; / focuses it.
  const badge = (verdict) => make("span", { className: `badge ${verdict.replaceAll(" ", "-")}` }, verdict);
  const search = $(".search");
  if (search) {
    const input = $("input", search);
    const list = $("ol", search);
    let entries = [];
    // Each has what is shown, its place, what else is searched, and a claim's verdict.
    window.gemmreproSearch = (told) =>
      (entries = [
        ...told.terms.map(([place, words]) => [words, place, "term"]),
        ...told.sections.map(([place, title, words]) => [title, place, words]),
        ...told.claims.map(([id, words, verdict, numbers]) => [
          words,
          `claims.html#claim-${dashed(id)}`,
          `${id} ${numbers}`,
          told.verdicts[verdict],
        ]),
        ...told.kernels.map(([id, words]) => [words, `kernels/${id}.html`, id]),
      ].map(([name, place, more, verdict]) => [name, place, ` ${name} ${more}`.toLowerCase(), verdict]));
    const common = new Set("a an and are can do does for how i in is it me my of on or should the to what which".split(" "));
    const find = () => {
      const asked = input.value.toLowerCase().replace(/ %/g, "%").split(/[\s?]+/).filter(Boolean);
      const few = asked.filter((word) => !common.has(word));
      const words = few.length ? few : asked;
      // Titles count most, then whole words; kinds keep their order.
      const score = ([name, , text]) =>
        words.reduce((sum, word) => sum + 4 * name.toLowerCase().includes(word) + text.includes(` ${word}`), 0);
      // What has all words, or else what has most of them.
      const hits = ([, , text]) => words.filter((word) => text.includes(word.length < 4 ? ` ${word}` : word)).length;
      const most = entries.reduce((found, entry) => Math.max(found, hits(entry)), 1);
      const fits = 2 * most >= words.length ? entries.filter((each) => hits(each) === most).sort((a, b) => score(b) - score(a)) : [];
      const seen = new Set();
      const once = fits.filter(([name, place]) => seen.size < seen.add(name + place.split("#")[0]).size);
      const [claims, others] = [once.filter((entry) => entry[3]), once.filter((entry) => !entry[3])];
      const room = Math.max(7, 12 - claims.length);
      const found = [...others.slice(0, room), ...claims.slice(0, Math.max(5, 12 - others.length))];
      list.replaceChildren(
        ...found.map(([name, place, , verdict]) => {
          const family = /families\/(\w+)/.exec(place)?.[1];
          const where = verdict ? badge(verdict) : family ? make("span", { className: "muted" }, family) : "";
          return make("li", {}, make("a", { href: at(place) }, name, " ", where));
        }),
      );
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
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, dialog")) return;
      event.preventDefault();
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
