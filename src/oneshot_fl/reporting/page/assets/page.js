// The page: filters, and what each of them draws anew.

const PAGE = JSON.parse(document.getElementById("payload").textContent);
const STYLE = styleOf(PAGE.methods);
const at = (name) => document.getElementById(name);
const seen = { settings: PAGE.settings, methods: PAGE.methods };

function option(value, text) {
  return made("option", { value }, text ?? value);
}

function offer(select, choices) {
  const before = select.value;
  select.replaceChildren(...choices);
  if ([...select.options].some((each) => each.value === before)) select.value = before;
}

// In the order in which the keys first appear; `Object.groupBy` is missing in browsers of 2023.
function grouped(entries, key) {
  const groups = new Map();
  for (const entry of entries) {
    const name = key(entry);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(entry);
  }
  return groups;
}

function visible(entry) {
  return seen.settings.some((each) => each.s === entry.s) && seen.methods.includes(entry.m);
}

const names = () => (window.innerWidth < 640 ? 110 : 220);
const tooLong = (method) => widthOf(method) > names();
const numberOf = (method) => PAGE.methods.indexOf(method) + 1;

// A method in a chart: one that would be cut, and then might look like another, has its number in front.
function called(method) {
  return numberOf(method) && tooLong(method) ? `${numberOf(method)}: ${method}` : method;
}

// Of the heat map, where every setting is a column with a line for each part of its name.
const columnWidth = () => Math.max(104, Math.min(190, (at("heat").clientWidth - names() - 30) / Math.max(1, seen.settings.length)));
const roomInColumn = () => columnWidth() - 4;
const cutInColumn = (setting) => setting.name.split(", ").some((line) => widthOf(line) > roomInColumn());
const letterOf = (setting) => `S${setting.s + 1}`;

// The same of a setting, whose number is another one.
function headed(setting) {
  return cutInColumn(setting) ? `${letterOf(setting)}: ${setting.name}` : setting.name;
}

function inFull() {
  const methods = seen.methods.filter(tooLong).map((method) => [`${numberOf(method)}:`, method]);
  const cut = [...methods, ...seen.settings.filter(cutInColumn).map((setting) => [`${letterOf(setting)}:`, setting.name])];
  const list = made("dl", {}, ...cut.flatMap(([number, name]) => [made("dt", {}, number), made("dd", {}, name)]));
  at("in-full").replaceChildren(...(cut.length ? ["Names that charts cut, in full:", list] : []));
}

function heat() {
  const base = at("heat-what").value;
  const cells = (base ? PAGE.differences.filter((each) => each.base === base) : PAGE.cells).filter(visible);
  const values = cells.filter((cell) => cell.n).map((cell) => cell.mean);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const furthest = Math.max(1, ...values.map(Math.abs));
  const settings = seen.settings.map(headed);
  const rows = cells.map((cell) => {
    const place = base ? 1 - Math.abs(cell.mean) / furthest : (cell.mean - least) / (most - least || 1);
    const sure = base && cell.half !== undefined && Math.abs(cell.mean) > cell.half;
    const spread = cell.std === undefined ? "" : ` ±${cell.std.toFixed(1)}`;
    const label = cell.n ? `${sure ? "● " : ""}${percent(cell.mean, base)}${spread}${cell.missing ? " …" : ""}` : "…";
    return {
      method: called(cell.m), setting: headed(PAGE.settings[cell.s]), value: cell.n ? cell.mean : null, label, seeds: cell.n,
      ink: !cell.n ? "#1b1b1b" : ink(base ? place + 0.15 : PAGE.measure.lowest ? 1 - place : place), detail: limits(cell, base).trim() || "–", missing: cell.missing ?? 0,
    };
  });
  const given = {
    settings, methods: seen.methods.map(called), width: { step: columnWidth() }, room: roomInColumn(), padding: 4 + 15 * Math.max(...settings.map((name) => name.split(", ").length - 1)), names: names(),
    legend: base ? `minus ${base}, percentage points` : `${PAGE.measure.name}, %`,
    colours: base ? { scheme: "blueorange", domain: [-furthest, furthest], domainMid: 0, reverse: !PAGE.measure.lowest } : { scheme: "viridis", reverse: PAGE.measure.lowest, zero: false },
    tooltip: [{ field: "method" }, { field: "setting" }, { field: "label", title: "value, %" }, { field: "detail", title: "95% interval" }, { field: "seeds" }, { field: "missing", title: "runs without a result" }],
  };
  const best = rows.filter((row) => row.value !== null).sort((a, b) => (PAGE.measure.lowest ? a.value - b.value : b.value - a.value))[0];
  return draw(at("heat"), "heat", rows, given, `Heat map of ${base ? `the paired difference to ${base}` : PAGE.measure.name}: ${seen.methods.join(", ")} in ${settings.length} settings.` + (best ? ` The best cell is ${best.method} in ${best.setting}: ${best.label}.` : ""));
}

// The setting or run that a select names; none where filters left it nothing to name, which Number would call 0.
function picked(name) {
  const { value } = at(name);
  return value === "" ? null : Number(value);
}

function ofSetting(entries) {
  const s = picked("setting");
  return entries.filter((entry) => entry.s === s && seen.methods.includes(entry.m));
}

function curves() {
  const shown = ofSetting(PAGE.curves);
  const points = shown.flatMap((curve) => curve.rounds.map((round, place) => ({
    kind: "curve", method: called(curve.m), n: curve.n, round, mean: curve.mean[place],
    low: curve.mean[place] - (curve.spread?.[place] ?? 0), high: curve.mean[place] + (curve.spread?.[place] ?? 0),
  })));
  const s = picked("setting");
  const levels = PAGE.levels.filter((level) => level.s === s && (!level.row || seen.methods.includes(level.m)));
  const rules = [...grouped(levels, (level) => level.mean)].map(([mean, same]) => {
    const label = same.map((level) => called(level.m)).join(", ");
    return { kind: "level", method: label, mean, label, row: same[0].row, layers: ["level", same[0].row ? "own level" : "shared level"] };
  });
  const methods = shown.map((curve) => curve.m);
  const last = shown.map((curve) => `${curve.m} ends at ${curve.mean.at(-1)}`).join("; ");
  return draw(at("curves"), "curves", shown.length ? [...points, ...rules] : [], { ...coded("curves", methods), room: roomIn(at("curves")), band: shown.length > 6 ? 0.07 : 0.15 }, `Test accuracy against rounds. ${last}.`);
}

// Colours, dashes and shapes of the methods of a chart, and how its legend tells them.
function coded(chart, methods) {
  const domain = methods.map(called);
  const of = (scale) => ({ domain, range: methods.map((name) => scale.range[PAGE.methods.indexOf(name)]) });
  return { colours: of(STYLE.colours), dashes: of(STYLE.dashes), shapes: of(STYLE.shapes), entries: legendIn(at(chart), domain) };
}

function costs() {
  const cells = ofSetting(PAGE.cells).filter((cell) => cell.n);
  const name = at("cost").value;
  const rows = ofSetting(PAGE.costs).filter((entry) => entry.cost === name).flatMap((entry) => {
    const cell = cells.find((each) => each.m === entry.m);
    return cell ? [{ m: entry.m, method: called(entry.m), cost: entry.value, mean: cell.mean, n: cell.n, low: cell.mean - (cell.std ?? 0), high: cell.mean + (cell.std ?? 0) }] : [];
  });
  const given = { ...coded("costs", rows.map((row) => row.m)), cost: name, measure: `${PAGE.measure.name}, %` };
  return draw(at("costs"), "costs", rows, given, `${name} against ${PAGE.measure.name}: ${rows.map((row) => `${row.method} ${row.cost} for ${row.mean.toFixed(1)} %`).join("; ")}.`);
}

function gap() {
  const rows = ofSetting(PAGE.gaps).map((entry) => ({
    method: called(entry.m), server: entry.server, level: entry.level, middle: (entry.server + entry.level) / 2, ensemble: entry.ensemble,
    label: `${percent(entry.mean, true)}${limits(entry, true)}`,
  }));
  const given = {
    methods: seen.methods.map(called), names: names(), measure: `${PAGE.measure.name}, %`, height: 34 * rows.length,
    tooltip: [{ field: "method" }, { field: "ensemble", title: "best ensemble" }, { field: "level", title: "its figure, %" }, { field: "server", title: "server, %" }, { field: "label", title: "lead" }],
  };
  return draw(at("gap"), "gap", rows, given, `Best ensemble minus server: ${rows.map((row) => `${row.method} ${row.label}`).join("; ")}.`);
}

function oneRun() {
  const place = picked("run");
  if (place === null) return nothing(at("one"), "No run is left to show.");
  return showRun(at("one"), PAGE.runs[place], PAGE.settings[PAGE.runs[place].s]);
}

function offerSettings() {
  offer(at("setting"), seen.settings.map((each) => option(String(each.s), each.name)));
  const known = new Set(ofSetting(PAGE.costs).map((entry) => entry.cost));
  offer(at("cost"), [...known].map((name) => option(name)));
  const setting = PAGE.settings[picked("setting")];
  at("apart").textContent = setting?.apart ? `${setting.name}: ${setting.apart}` : ""; // a phone cuts what a select says
}

function shownRuns() {
  return PAGE.runs.filter((run) => run.s === null || visible(run));
}

function offerRuns() {
  const told = (run) => `${run.m}, seed ${run.seed}${run.status === "done" ? "" : ` (${run.status})`}`;
  const choice = (run) => option(String(PAGE.runs.indexOf(run)), told(run));
  const groups = grouped(shownRuns(), (run) => PAGE.settings[run.s]?.name ?? "not known");
  offer(at("run"), [...groups].map(([label, runs]) => made("optgroup", { label }, ...runs.map(choice))));
}

function look() {
  const [data, partition] = [at("data").value, at("partition").value];
  seen.settings = PAGE.settings.filter((each) => (!data || each.data === data) && (!partition || each.partition === partition));
  seen.methods = [...at("methods").querySelectorAll("input:checked")].map((box) => box.value);
  for (const element of document.querySelectorAll("[data-s]")) {
    const hidden = !seen.settings.some((each) => each.s === Number(element.dataset.s));
    element.hidden = hidden || (element.dataset.m !== undefined && !seen.methods.includes(element.dataset.m));
  }
  at("chosen").textContent = `(${seen.methods.length} of ${PAGE.methods.length})`;
  at("of-all").hidden = seen.methods.length === PAGE.methods.length;
  at("shown").textContent = `${shownRuns().length} of ${PAGE.runs.length} runs`;
  offerSettings();
  offerRuns();
  inFull();
}

const PARTS = { heat, curves, costs, gap, one: oneRun };

// A part that cannot be drawn says so in its place, and takes no other with it.
async function show(...parts) {
  await Promise.all(parts.map(async (name) => {
    try {
      await PARTS[name]();
    } catch (error) {
      console.error(error);
      nothing(at(name), `This could not be drawn: ${error.message}`);
    }
  }));
}

async function redraw() {
  look();
  await show(...Object.keys(PARTS));
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1); // a test waits for it
}

// What is shown first: the setting with most methods, and a run of it that has pictures, of the best method that has one.
function begun() {
  look();
  const size = (each) => PAGE.cells.filter((cell) => cell.s === each.s && cell.n).length;
  const largest = PAGE.settings.reduce((most, each) => (size(each) > size(most) ? each : most), PAGE.settings[0]);
  if (!largest) return;
  at("setting").value = String(largest.s);
  const mean = (run) => PAGE.cells.find((cell) => cell.s === run.s && cell.m === run.m)?.mean ?? -1;
  const better = (run, other) => Boolean(run.pictures) - Boolean(other.pictures) || (PAGE.measure.lowest ? mean(other) - mean(run) : mean(run) - mean(other));
  const own = PAGE.runs.filter((run) => run.s === largest.s);
  const best = own.reduce((first, run) => (better(run, first) > 0 ? run : first), own[0]);
  at("run").value = String(PAGE.runs.indexOf(best));
}

function begin() {
  const distinct = (key) => [...new Set(PAGE.settings.map((each) => each[key]))];
  for (const key of ["data", "partition"]) at(key).append(...distinct(key).map((value) => option(value)));
  const box = (name) => made("label", {}, made("input", { type: "checkbox", value: name, defaultChecked: true }), ` ${name}`);
  at("methods").append(...PAGE.methods.map(box));
  at("heat-what").append(...PAGE.methods.map((name) => option(name, `minus ${name}, paired`)));
  at("filters").addEventListener("change", redraw);
  at("filters").addEventListener("reset", () => setTimeout(redraw));
  at("heat-what").addEventListener("change", () => show("heat"));
  at("setting").addEventListener("change", () => { offerSettings(); show("curves", "costs", "gap"); });
  at("cost").addEventListener("change", () => show("costs"));
  at("run").addEventListener("change", () => show("one"));
  begun();
  let width = window.innerWidth, waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (window.innerWidth !== width) { width = window.innerWidth; redraw(); } }, 200);
  });
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = each.id !== "choose"; }));
  return redraw();
}

begin();
