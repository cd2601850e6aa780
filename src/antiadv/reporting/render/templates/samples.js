"use strict";
(() => {
  const index = JSON.parse(document.getElementById("index").textContent);
  const at = (id) => document.getElementById(id);
  const make = (tag, words = {}, ...inside) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(words)) name in element ? (element[name] = value) : element.setAttribute(name, value);
    element.append(...inside);
    return element;
  };
  const draw = (tag, words, ...inside) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(words)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  };
  const STEP = 100, KINDS = ["stood", "fell", "wrong"];
  const percent = (k, n) => (n ? (100 * k / n).toFixed(1) : "—");
  const short = (v) => (v === 0 ? "0" : Number(v.toPrecision(3)).toString());

  // ---------------------------------------------------------------- records: a script for each cell, loaded once

  const waiting = new Map(), loaded = new Map();
  window.records = (key, text) => waiting.get(key)?.(text);
  const load = (key) => {
    if (!loaded.has(key)) {
      const asked = new Promise((good, bad) => {
        waiting.set(key, good);
        const lost = () => bad(new Error(`samples/${key}.js is not next to this page. Put the whole folder of the report there.`));
        document.head.append(make("script", { src: `samples/${key}.js`, onerror: lost }));
      }).then(unpacked);
      asked.catch(() => loaded.delete(key));
      loaded.set(key, asked);
    }
    return loaded.get(key);
  };
  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const { count, ...columns } = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
    const full = {};
    for (const [name, values] of Object.entries(columns)) {
      const like = full[index.like[name]];
      if (name === "sample" && !Array.isArray(values)) full[name] = Array.from({ length: count }, (_, i) => values + i);
      else if (!Array.isArray(values)) full[name] = values === null ? like : Array(count).fill(values);
      else full[name] = like ? values.map((v, i) => (v === null ? like[i] : v)) : values;
    }
    const bySample = new Map();
    for (let i = 0; i < count; i++) bySample.set(full.sample[i], Object.fromEntries(Object.keys(full).map((k) => [k, full[k][i]])));
    return bySample;
  };

  // ---------------------------------------------------------------- what the address asks for

  const words = () => new URLSearchParams(location.hash.slice(1));
  const number = (text) => (text === null ? undefined : Number(text));
  const asked = () => {
    const given = words();
    const keys = (name) => (given.get(name) || "").split(".").filter(Boolean);
    const how = { clean: given.has("clean"), first: given.has("first"), queries: number(given.get("queries")), reach: number(given.get("reach")) };
    return { a: keys("a"), b: keys("b"), how, sample: number(given.get("s")) };
  };
  const go = (changes) => {
    const given = words();
    for (const [name, value] of Object.entries(changes)) value === "" ? given.delete(name) : given.set(name, value);
    history.replaceState(null, "", `#${given}`);
  };

  // ---------------------------------------------------------------- how a sample counts, as in the report

  const isRight = (r) => 2 * r.clean_right > r.draws;
  const counts = (r, cell, most, how) => {
    if (how.clean) return isRight(r);
    if (how.first && cell.queries !== null) {
      const end = most > 0.9 * cell.queries ? most : cell.queries;
      return isRight(r) && r.queries >= (how.queries === undefined ? end : Math.min(end, how.queries + 1));
    }
    const reach = how.reach ?? cell.reach;
    const stood = isRight(r) && (2 * r.attacked_right > r.draws || (reach !== null && r.distance > reach));
    return stood || (how.queries !== undefined && isRight(r) && r.queries > how.queries);
  };
  const sideOf = async (keys, how) => {
    const cells = keys.map((key) => index.cells[key]);
    const maps = await Promise.all(keys.map(load));
    const most = maps.map((map) => Math.max(...Array.from(map.values(), (r) => r.queries)));
    const result = (sample) => {  // the worst case of the cells: the one that breaks the sample first
      let best = null;
      maps.forEach((map, i) => {
        const r = map.get(sample), good = counts(r, cells[i], most[i], how);
        const kind = good ? "stood" : isRight(r) ? "fell" : "wrong";
        const found = { r, kind, cell: cells[i], key: keys[i] };
        if (!best || (best.kind === "stood" && kind !== "stood") || (best.kind === kind && kind === "fell" && r.queries < best.r.queries)) best = found;
      });
      return best;
    };
    return { keys, cells, maps, result, most: Math.max(...most) };
  };

  // ---------------------------------------------------------------- state, and drawing it all again

  let state = null, turn = 0;
  const label = (row, k) => index.sets[row.a.cell.set]?.classes[k] ?? `class ${k}`;
  const named = (cell) => `${cell.defence} · ${cell.attack} · ${cell.threat}` + (cell.precision === "float32" ? "" : ` · ${cell.precision}`) + (cell.seed ? ` · seed ${cell.seed}` : "");
  const show = async () => {
    const mine = ++turn, { a, b, how, sample } = asked();
    const keys = a.length ? a : Object.keys(index.cells).slice(0, 1);
    const unknown = [...keys, ...b].find((key) => !Object.hasOwn(index.cells, key));
    try {
      if (!keys.length) throw new Error("This report has no cells.");
      if (unknown) throw new Error(`This report has no cell ${unknown}. Choose another one.`);
      const sides = [await sideOf(keys, how), ...(b.length ? [await sideOf(b, how)] : [])];
      if (mine !== turn) return;
      const maps = sides.flatMap((side) => side.maps);
      const common = [...maps[0].keys()].filter((i) => maps.every((map) => map.has(i)));
      const rows = common.map((i) => ({ sample: i, a: sides[0].result(i), b: sides[1]?.result(i) }));
      if (!rows.length) throw new Error("These cells have no sample in common.");
      state = { sides, rows, how, kinds: null, sort: "sample", up: true, limit: STEP };
      at("wrong").hidden = true;
      at("found").hidden = false;
      everything();
      document.documentElement.dataset.shown = location.hash;
      if (sample !== undefined && rows.some((row) => row.sample === sample)) open(sample);
    } catch (error) {
      if (mine !== turn) return;
      at("wrong").textContent = error.message;
      at("wrong").hidden = false;
      at("found").hidden = true;
      document.documentElement.dataset.shown = location.hash;
    }
  };
  const everything = () => {
    choosers();
    about();
    numbers();
    contingency();
    at("curve").replaceChildren(curve());
    labels();
    table();
    sources();
  };
  const choosers = () => {
    const places = Map.groupBy ? Map.groupBy(Object.entries(index.cells), ([, c]) => `${c.data} · ${c.model}`) : grouped();
    ["a", "b"].forEach((name, i) => {
      const side = state?.sides[i], chosen = side?.keys.length === 1 ? side.keys[0] : "";
      const empty = side && side.keys.length > 1 ? `The worst case of ${side.keys.length} cells` : i ? "nothing" : "";
      const groups = [...places].map(([place, cells]) => make("optgroup", { label: place }, ...cells.map(([key, c]) => make("option", { value: key, selected: key === chosen }, named(c)))));
      at(name).replaceChildren(...(empty ? [make("option", { value: "", selected: !chosen }, empty)] : []), ...groups);
    });
    const bare = state.sides[0].keys.map((key) => index.cells[key].bare);
    at("bare").hidden = !bare.every(Boolean) || (state.sides[1] && state.sides[1].keys.join() === bare.join());
    at("swap").hidden = state.sides.length < 2;
  };
  const grouped = () => {
    const found = new Map();
    for (const entry of Object.entries(index.cells)) {
      const place = `${entry[1].data} · ${entry[1].model}`;
      found.set(place, [...(found.get(place) || []), entry]);
    }
    return found;
  };
  const about = () => {
    const { how, sides } = state, said = [];
    if (how.clean) said.push("This number counts clean images.");
    if (how.queries !== undefined) said.push(`This number counts ${how.queries.toLocaleString("en")} queries of the budget.`);
    if (how.reach !== undefined) said.push(`This number counts images within ${short(how.reach)}.`);
    if (how.first) said.push("A sample fell when the attacker saw its first wrong prediction.");
    if (sides.some((side) => side.keys.length > 1)) said.push("Of several cells, the worst case of each sample counts.");
    said.push(...sides.flatMap((side) => side.cells.map((cell) => cell.idle).filter(Boolean)));
    at("about").textContent = said.join(" ");
  };
  const numbers = () => {
    const { rows, sides, how } = state, n = rows.length;
    const head = make("tr", {}, ...["", "network", "what", "samples", "clean %", how.clean ? "counted %" : "robust %"].map((t) => make("th", { scope: "col" }, t)));
    const line = (name, side) => {
      const good = rows.filter((row) => isRight(row[name].r)).length, stood = rows.filter((row) => row[name].kind === "stood").length;
      const what = side.keys.length === 1 ? named(side.cells[0]) : [...new Set(side.cells.map((c) => `${c.defence} · ${c.attack}`))].join(", ");
      const cells = [[...new Set(side.cells.map((c) => `${c.data} · ${c.model}`))].join(", "), what, n.toLocaleString("en"), percent(good, n), percent(stood, n)];
      return make("tr", {}, make("th", { scope: "row", className: `side-${name}` }, name.toUpperCase()), ...cells.map((text) => make("td", {}, text)));
    };
    at("numbers").replaceChildren(make("thead", {}, head), make("tbody", {}, ...sides.map((side, i) => line("ab"[i], side))));
    const only = (one, other) => rows.filter((row) => row[one].kind === "stood" && row[other].kind !== "stood").length;
    if (sides[1]) {
      const [won, lost] = [only("a", "b"), only("b", "a")], gain = 100 * (won - lost) / n;
      at("difference").textContent = `A minus B: ${gain < 0 ? "−" : "+"}${Math.abs(gain).toFixed(1)} points. ${won} samples count only in A, ${lost} only in B.`;
    } else at("difference").textContent = "";
  };
  const word = (kind) => ({ stood: state.how.clean ? "right" : "stood", fell: "fell", wrong: "wrong without an attack" })[kind];
  const contingency = () => {
    const { rows, sides } = state;
    const button = (a, b) => {
      const n = rows.filter((row) => row.a.kind === a && (!b || row.b.kind === b)).length;
      const kinds = b ? [a, b] : [a], on = String(state.kinds?.join() === kinds.join());
      const press = () => {
        state.kinds = on === "true" ? null : kinds;
        state.limit = STEP;
        contingency();
        table();
        at("counts").querySelector(`[data-kinds="${kinds}"]`).focus();
      };
      return make("td", {}, make("button", { type: "button", disabled: !n, onclick: press, "aria-pressed": on, "data-kinds": kinds.join(), "aria-label": `${n}: ${kinds.map((k, i) => `${"AB"[i]} ${word(k)}`).join(", ")}` }, n.toLocaleString("en")));
    };
    const columns = sides[1] ? KINDS.map((b) => `B ${word(b)}`) : ["samples"];
    const head = make("tr", {}, make("td"), ...columns.map((text) => make("th", { scope: "col", className: sides[1] ? "side-b" : "" }, text)));
    const lines = KINDS.map((a) => make("tr", {}, make("th", { scope: "row", className: "side-a" }, `A ${word(a)}`), ...(sides[1] ? KINDS.map((b) => button(a, b)) : [button(a)])));
    at("counts").replaceChildren(make("thead", {}, head), make("tbody", {}, ...lines));
  };

  // ---------------------------------------------------------------- how many stand after how many queries

  const curve = (sample) => {
    const { rows, sides } = state, W = 640, H = 230, L = 38, R = 12, T = 10, B = 34;
    const most = Math.max(2, ...sides.map((side) => side.most));
    const x = (q) => L + (W - L - R) * Math.log(Math.max(1, q)) / Math.log(most), y = (k) => T + (H - T - B) * (1 - k / rows.length);
    const parts = [];
    for (const p of [0, 25, 50, 75, 100]) {
      const h = y(p * rows.length / 100);
      parts.push(draw("path", { class: "axis", d: `M${L} ${h}H${W - R}` }), draw("text", { x: L - 5, y: h + 4, "text-anchor": "end" }, `${p}`));
    }
    for (let q = 1; q <= most; q *= 10) parts.push(draw("text", { x: x(q), y: H - 18, "text-anchor": "middle" }, q.toLocaleString("en")));
    parts.push(draw("text", { x: (L + W) / 2, y: H - 3, "text-anchor": "middle" }, "queries; up, samples that stand, in %"));
    sides.forEach((_, i) => {
      const name = "ab"[i], start = rows.filter((row) => row[name].kind !== "wrong").length;
      const fell = rows.filter((row) => row[name].kind === "fell").map((row) => row[name].r.queries).sort((p, q) => p - q);
      const path = fell.map((q, k) => `H${x(q).toFixed(1)}V${y(start - k - 1).toFixed(1)}`).join("");
      parts.push(draw("path", { class: name, d: `M${L} ${y(start).toFixed(1)}${path}H${W - R}` }));
      const own = rows.find((row) => row.sample === sample)?.[name];
      if (own?.kind === "fell") parts.push(draw("circle", { class: name, r: 5, cx: x(own.r.queries), cy: y(start - fell.filter((q) => q < own.r.queries).length) }));
      parts.push(draw("text", { x: W - R - 26 + 18 * i, y: T + 10, class: `side-${name}`, style: `fill: var(--${name})` }, name.toUpperCase()));
    });
    const stops = sides.every((side) => side.cells.every((cell) => cell.stops));
    at("curve-note").textContent = stops
      ? "The attack stops at its first success, so each point is the result of a smaller budget."
      : "The curve shows when the attack ended on each sample. It does not show a smaller budget, because this attack does not stop at its first success or uses its budget in another way.";
    return draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Samples that stand, by queries" }, ...parts);
  };

  // ---------------------------------------------------------------- the records

  const columns = () => {
    const { sides } = state, two = sides.length > 1;
    const of = (name) => {
      const before = two ? `${name.toUpperCase()}: ` : "", several = sides["ab".indexOf(name)].keys.length > 1;
      return [
        { head: `${before}outcome`, value: (row) => row[name].kind, text: (row) => word(row[name].kind), kind: (row) => (row[name].kind === "wrong" ? "wrong-before" : row[name].kind) },
        ...(several ? [{ head: `${before}attack`, value: (row) => row[name].cell.attack }] : []),
        { head: `${before}queries`, value: (row) => row[name].r.queries, text: (row) => row[name].r.queries.toLocaleString("en") },
        { head: `${before}distance`, value: (row) => row[name].r.distance, text: (row) => short(row[name].r.distance) },
        { head: `${before}attacked, g says`, value: (row) => label(row, row[name].r.attacked) },
        { head: `${before}true class, p`, value: (row) => row[name].r.attacked_truth, text: (row) => row[name].r.attacked_truth.toFixed(3) },
        ...(two ? [] : [
          { head: "clean, g says", value: (row) => label(row, row.a.r.clean) },
          { head: "clean, p", value: (row) => row.a.r.clean_confidence, text: (row) => row.a.r.clean_confidence.toFixed(3) },
          { head: "attacked, f says", value: (row) => label(row, row.a.r.base_attacked) },
          { head: "gradients", value: (row) => row.a.r.gradients, text: (row) => row.a.r.gradients.toLocaleString("en") },
        ]),
      ];
    };
    return [
      { head: "sample", value: (row) => row.sample },
      { head: "class", value: (row) => label(row, row.a.r.label) },
      ...of("a"), ...(two ? of("b") : []),
    ];
  };
  const labels = () => {
    const found = [...new Set(state.rows.map((row) => row.a.r.label))].sort((p, q) => p - q);
    at("label").replaceChildren(make("option", { value: "" }, "all"), ...found.map((k) => make("option", { value: k }, label(state.rows[0], k))));
    at("sample").value = "";
  };
  const chosen = () => {
    const { rows, kinds, sort, up } = state, only = at("label").value, sample = at("sample").value;
    const kept = rows.filter((row) =>
      (!kinds || (row.a.kind === kinds[0] && (!kinds[1] || row.b.kind === kinds[1])))
      && (only === "" || row.a.r.label === Number(only)) && (sample === "" || row.sample === Number(sample)));
    const by = columns().find((column) => column.head === sort) ?? columns()[0], sign = up ? 1 : -1;
    const order = (p, q) => (typeof p === "number" ? p - q : p.localeCompare(q, "en", { numeric: true }));
    return kept.sort((p, q) => sign * order(by.value(p), by.value(q)) || p.sample - q.sample);
  };
  const table = () => {
    const all = columns(), kept = chosen(), some = kept.slice(0, state.limit);
    const heads = all.map((column) => {
      const way = column.head !== state.sort ? "none" : state.up ? "ascending" : "descending";
      const press = () => {
        [state.sort, state.up] = [column.head, column.head === state.sort ? !state.up : true];
        table();
        [...at("records").querySelectorAll("thead button")].find((b) => b.textContent === column.head).focus();
        at("said").textContent = `Sorted by ${column.head}, ${state.up ? "ascending" : "descending"}`;
      };
      return make("th", { scope: "col", "aria-sort": way, className: column.head === "sample" ? "pin" : "" }, make("button", { type: "button", onclick: press }, column.head));
    });
    const lines = some.map((row) => make("tr", {}, ...all.map((column, i) => {
      if (!i) return make("th", { scope: "row", className: "pin" }, make("button", { type: "button", onclick: () => open(row.sample), "aria-label": `Sample ${row.sample}` }, `${row.sample}`));
      const value = column.value(row);
      return make("td", { className: `${typeof value === "number" ? "number" : ""} ${column.kind ? column.kind(row) : ""}` }, column.text ? column.text(row) : value);
    })));
    at("records").tHead.rows[0].replaceChildren(...heads);
    at("records").tBodies[0].replaceChildren(...lines);
    at("shown").textContent = `${kept.length.toLocaleString("en")} of ${state.rows.length.toLocaleString("en")} samples`;
    at("more").hidden = kept.length <= some.length;
  };
  const sources = () => {
    const cells = state.sides.flatMap((side) => side.keys);
    at("cells").replaceChildren(...cells.map((key) => {
      const cell = index.cells[key];
      return make("li", {}, make("a", { href: `report.html#cell-${key}` }, key), ` ${cell.model} · ${named(cell)} `, make("code", {}, cell.command));
    }));
  };

  // ---------------------------------------------------------------- one sample

  const picture = (file, place, [w, h], said, across = index.across) => {
    const zoom = 128 / Math.max(w, h), box = make("div", { className: "crop", role: "img", "aria-label": said });
    Object.assign(box.style, {
      width: `${w * zoom}px`, height: `${h * zoom}px`, backgroundImage: `url("samples/${file}")`, backgroundSize: `${across * w * zoom}px auto`,
      backgroundPosition: `${-(place % across) * w * zoom}px ${-Math.floor(place / across) * h * zoom}px`,
    });
    return make("figure", {}, box, make("figcaption", {}, said));
  };
  const images = (row) => {
    const set = index.sets[row.a.cell.set], place = set.ids.indexOf(row.sample), found = [];
    if (place >= 0) found.push(picture(set.sheets[Math.floor(place / index.sheet)], place % index.sheet, set.size, "image"));
    else found.push(make("p", { className: "notes" }, set.why ? `The image is not shown: ${set.why}.` : "The image is not in this folder, which holds the first ones only."));
    for (const name of ["a", "b"].filter((side) => row[side])) {
      const kept = row[name].cell.attacked, spot = kept ? kept.ids.indexOf(row.sample) : -1, side = row.b ? ` ${name.toUpperCase()}` : "";
      if (spot >= 0) {
        found.push(picture(`${row[name].key}.png`, 2 * spot, kept.size, `attacked${side}`));
        found.push(picture(`${row[name].key}.png`, 2 * spot + 1, kept.size, `change${side} × ${kept.factors[spot]}`));
      } else found.push(make("p", { className: "notes" }, kept ? `The attacked image${side} is not in this folder, which holds the first ones only.` : row[name].cell.why ? `The attacked image${side} is not shown: ${row[name].cell.why}.` : `The attacked image${side} was not kept. Its command with --keep-images keeps it.`));
    }
    return found;
  };
  const answers = (row) => {
    const names = ["a", "b"].filter((side) => row[side]);
    const head = ["", ...names.map((name) => (row.b ? `${name.toUpperCase()}: ` : "") + `${row[name].cell.defence} · ${row[name].cell.attack}`)];
    const says = (k, r, p) => `${k === r.label ? "✓" : "✗"} ${label(row, k)}` + (p === undefined ? "" : ` ${(100 * p).toFixed(0)} %`);
    const lines = [
      ["outcome", (s) => word(s.kind)],
      ["f, clean image", ({ r }) => says(r.base_clean, r)],
      ["f, attacked image", ({ r }) => says(r.base_attacked, r)],
      ["g, clean image", ({ r }) => says(r.clean, r, r.clean_confidence)],
      ["g, attacked image", ({ r }) => says(r.attacked, r, r.attacked_confidence)],
      ["g, probability of the true class", ({ r }) => `${r.clean_truth.toFixed(3)} → ${r.attacked_truth.toFixed(3)}`],
      ["distance", ({ r }) => short(r.distance)],
      ["queries", ({ r }) => r.queries.toLocaleString("en")],
      ["gradients, of which zero", ({ r }) => `${r.gradients.toLocaleString("en")}, ${r.zeros.toLocaleString("en")}`],
      ["looks of the judge, right: clean, attacked", ({ r }) => `${r.draws}: ${r.clean_right}, ${r.attacked_right}`],
    ];
    const top = make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text))));
    return [top, make("tbody", {}, ...lines.map(([name, text]) => make("tr", {}, make("th", { scope: "row" }, name), ...names.map((side) => make("td", {}, text(row[side]))))))];
  };
  let current = null;
  const open = (sample) => {
    const row = state.rows.find((r) => r.sample === sample);
    current = sample;
    at("one-title").textContent = `Sample ${sample}: ${label(row, row.a.r.label)}`;
    at("images").replaceChildren(...images(row));
    at("answers").replaceChildren(...answers(row));
    at("one-curve").replaceChildren(curve(sample));
    const order = chosen().map((r) => r.sample), place = order.indexOf(sample);
    at("previous").disabled = place <= 0;
    at("next").disabled = place < 0 || place >= order.length - 1;
    if (!at("one").open) at("one").showModal();
    go({ s: sample });
  };
  const turnTo = (by) => {
    const order = chosen().map((row) => row.sample), place = order.indexOf(current) + by;
    if (order.includes(current) && order[place] !== undefined) open(order[place]);
  };
  at("one").addEventListener("close", () => go({ s: "" }));
  at("one").addEventListener("click", (event) => { if (event.target === at("one")) at("one").close(); });
  at("close").onclick = () => at("one").close();
  at("previous").onclick = () => turnTo(-1);
  at("next").onclick = () => turnTo(1);
  addEventListener("keydown", (event) => {
    if (at("one").open && event.key === "ArrowLeft") turnTo(-1);
    if (at("one").open && event.key === "ArrowRight") turnTo(1);
  });

  // ---------------------------------------------------------------- controls

  const plain = { clean: "", first: "", queries: "", reach: "", s: "" };  // a cell that someone chose counts as usual
  const choose = (changes) => { go({ ...plain, ...changes }); show(); };
  at("a").onchange = () => at("a").value && choose({ a: at("a").value });
  at("b").onchange = () => choose({ a: state.sides[0].keys.join("."), b: at("b").value });
  at("bare").onclick = () => { go({ a: state.sides[0].keys.join("."), b: state.sides[0].cells.map((cell) => cell.bare).join("."), s: "" }); show(); };
  at("swap").onclick = () => { go({ a: state.sides[1].keys.join("."), b: state.sides[0].keys.join("."), s: "" }); show(); };
  const again = () => { state.limit = STEP; table(); };
  at("label").onchange = again;
  at("sample").oninput = again;
  at("all").onclick = () => { state.kinds = null; at("label").value = at("sample").value = ""; contingency(); again(); };
  at("more").onclick = () => { state.limit += STEP; table(); };
  addEventListener("hashchange", () => { if (location.hash !== "#main") show(); });
  show();
})();
