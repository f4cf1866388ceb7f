"use strict";
// Drawing: a specification of charts/*.json, the data, and what the data decide about it.

const SPECS = JSON.parse(document.getElementById("specs").textContent);
// Okabe and Ito's colours without yellow, which white swallows; after them the same ones with other dashes and shapes.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
const DASHES = [[1, 0], [7, 3], [2, 2], [9, 3, 2, 3]];
const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"];
const CONFIG = {
  font: "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
  axis: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", gridColor: "#e6e6e6", labelColor: "#1b1b1b" },
  legend: { labelFontSize: 12, titleFontWeight: "normal", orient: "bottom" },
  view: { stroke: null },
};

// A legend in pixels: the most that a name takes, its symbol with the space around it, and the chart's axis left of all.
const LEGEND = { name: 260, symbol: 38, axis: 56 };
const PEN = document.createElement("canvas").getContext("2d");
PEN.font = `12px ${CONFIG.font}`;

function widthOf(text) {
  return PEN.measureText(text).width;
}

// Right of the axis; words that take more would shrink what is drawn.
function roomIn(place) {
  return place.clientWidth - LEGEND.axis;
}

// As many columns as fit beside one another at the bottom of a chart, and names cut so that one fits.
function legendIn(place, names) {
  const room = roomIn(place);
  const labelLimit = Math.min(LEGEND.name, room - LEGEND.symbol);
  const widest = Math.min(labelLimit, Math.max(0, ...names.map(widthOf)));
  return { labelLimit, columns: Math.max(1, Math.floor(room / (widest + LEGEND.symbol))) };
}

function styleOf(methods) {
  return {
    colours: { domain: methods, range: methods.map((_, n) => COLOURS[n % COLOURS.length]) },
    dashes: { domain: methods, range: methods.map((_, n) => DASHES[((n % COLOURS.length) + Math.floor(n / COLOURS.length)) % DASHES.length]) },
    shapes: { domain: methods, range: methods.map((_, n) => SHAPES[((n % COLOURS.length) + Math.floor(n / COLOURS.length)) % SHAPES.length]) },
  };
}

function filled(node, given) {
  if (Array.isArray(node)) return node.map((each) => filled(each, given));
  if (node === null || typeof node !== "object") return node;
  if ("$" in node) return given[node.$];
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, filled(value, given)]));
}

function nothing(place, words) {
  place.replaceChildren(made("p", { className: "note" }, words));
}

async function draw(place, name, rows, given, description) {
  if (!rows.length) {
    nothing(place, "Nothing to draw yet.");
    return;
  }
  const spec = { ...filled(SPECS[name], given), datasets: { rows }, description, autosize: { type: given.width ? "pad" : "fit-x", contains: "padding" } };
  // Vega warns of a layer without data.
  if (spec.layer) spec.layer = spec.layer.filter((layer) => !layer.name || rows.some((row) => row.layers?.includes(layer.name)));
  const config = { ...CONFIG, legend: { ...CONFIG.legend, ...given.entries } };
  await vegaEmbed(place, spec, { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config });
}

function made(tag, properties, ...inside) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...inside);
  return element;
}

function ink(share) {
  return share > 0.6 ? "#000" : "#fff"; // on viridis
}

function percent(value, sign) {
  return (sign && value > 0 ? "+" : "") + value.toFixed(1);
}

// It ends where accuracies do, and that of a (signed) difference of two at -100 and 100.
function limits(entry, sign) {
  if (entry.half === undefined) return "";
  const ends = [-1, 1].map((side) => Math.min(Math.max(entry.mean + side * entry.half, sign ? -100 : 0), 100));
  return ` [${ends.map((end) => percent(end, sign)).join(", ")}]`;
}
