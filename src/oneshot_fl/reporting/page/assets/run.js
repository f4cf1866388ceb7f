// One run: what is known of it, its clients, its partition and guidance, and its pictures.

function cardOf(run, setting) {
  const facts = [
    ["setting", setting ? setting.name : "not known"], ["method", run.m], ["seed", String(run.seed)], ["status", run.status],
    ["server", run.last === undefined ? null : `${(100 * run.last).toFixed(2)} % in the last round, ${(100 * run.best).toFixed(2)} % in the best`],
    ["attack", run.attack], ["error", run.error], ["code", run.commit], ["command", run.command && made("code", {}, run.command)],
    ["folder", run.href && made("a", { href: run.href }, run.folder)],
  ];
  return made("dl", {}, ...facts.filter(([, value]) => value).flatMap(([name, value]) => [made("dt", {}, name), made("dd", {}, value)]));
}

function share(value) {
  return value === undefined ? "–" : `${(100 * value).toFixed(2)} %`;
}

function clientTable(clients) {
  const told = clients.some((client) => client.epsilon !== undefined);
  const header = ["client", "model", "samples", "accuracy", "balanced", "upload", ...(told ? ["epsilon (delta)"] : [])];
  const kinds = (client) => [client.kind === "classifier" ? null : client.kind, client.hostile ? "hostile" : null].filter(Boolean);
  const cells = (client, k) => [
    [k, ...kinds(client).map((kind) => `(${kind})`)].join(" "), client.model ?? "–", client.samples ?? "–",
    client.quarantined ? `quarantined: ${client.quarantined}` : share(client.accuracy), share(client.balanced_accuracy),
    client.upload_bytes === undefined ? "–" : `${(client.upload_bytes / 1e6).toFixed(2)} MB`,
    ...(told ? [client.epsilon === undefined ? "–" : `${client.epsilon} (${client.delta ?? "–"})`] : []),
  ];
  const row = (tag, values) => made("tr", {}, ...values.map((value) => made(tag, {}, String(value))));
  const table = made("table", {}, made("thead", {}, row("th", header)), made("tbody", {}, ...clients.map((client, k) => row("td", cells(client, k)))));
  return made("div", { className: "wide" }, table);
}

function grid(matrix, classes, name, numbers = matrix.map((_, k) => k)) {
  return matrix.flatMap((values, k) => values.map((value, j) => ({ client: `client ${numbers[k]}`, class: classes[j], [name]: value })));
}

// As in Python: nothing at all is shared evenly.
function normalised(U) {
  const sums = U.map((row) => row.reduce((sum, each) => sum + each, 0));
  const columns = U[0].map((_, k) => U.reduce((sum, row) => sum + row[k], 0));
  const byClient = (value) => U[0].map((_, k) => U.map((row, j) => value(row[k], j, k)));
  return {
    "U_r: of a class, shares of the clients": byClient((value, j) => (sums[j] > 0 ? value / sums[j] : 1 / U[0].length)),
    "U_c: of a client, shares of the classes": byClient((value, j, k) => (columns[k] > 0 ? value / columns[k] : 1 / U.length)),
  };
}

async function chartInto(parent, title, name, rows, given, description) {
  const place = made("div", { className: "chart" });
  parent.append(made("div", {}, made("h3", {}, title), place));
  await draw(place, name, rows, given, description);
}

async function showRun(place, run, setting) {
  place.replaceChildren(cardOf(run, setting));
  if (!run.clients) return;
  place.append(clientTable(run.clients));
  const charts = made("div", { className: "pair" });
  place.append(charts);
  const classes = (run.classes ?? run.counts?.[0]?.map((_, j) => String(j)) ?? []).map((name, j, all) => (all.indexOf(name) === j ? name : `${name} (${j})`));
  const angle = Math.max(0, ...classes.map((name) => name.length)) > 3 ? -60 : 0;
  const given = { classes, angle, width: { step: Math.max(24, Math.min(38, 460 / Math.max(1, classes.length))) } };
  if (run.counts) {
    const rows = grid(run.counts, classes, "samples").filter((row) => row.samples);
    const total = (row) => ({ ...row, client: `${row.client} (${run.counts[Number(row.client.slice(7))].reduce((a, b) => a + b, 0)})` });
    await chartInto(charts, "Partition: samples of each class, and in all", "partition", rows.map(total), given, `Samples of ${classes.length} classes at ${run.counts.length} clients; the area of a bubble is the count.`);
  }
  if (run.guidance) {
    for (const [title, matrix] of Object.entries(normalised(run.guidance))) {
      const label = (value) => (classes.length > 12 ? "" : value.toFixed(2).replace(/^0/, ""));
      const rows = grid(matrix, classes, "value", run.used).map((row) => ({ ...row, label: label(row.value), ink: ink(row.value) }));
      await chartInto(charts, title, "guidance", rows, given, `Guidance matrix, normalised. ${title}.`);
    }
  }
  if (run.recall) {
    const rows = run.recall.map((recall, j) => ({ class: classes[j], recall: recall === null ? null : 100 * recall }));
    await chartInto(charts, "Server, last round: recall of each class", "recall", rows, given, `Recall of each class: ${rows.map((row) => `${row.class} ${row.recall === null ? "not tested" : row.recall.toFixed(0)}`).join(", ")}.`);
  }
  place.append(picturesOf(run));
}

const CAPTIONS = {
  synthetic: "Synthetic images of the last round, one row a class", recitals: "What each client's model recites, one row a client",
  partition: "Samples of every class at every client", guidance: "The normalised guidance matrices",
};

function picturesOf(run) {
  const shown = Object.entries(run.pictures ?? {}).map(([name, source]) =>
    made("figure", {}, made("img", { src: source, alt: `${CAPTIONS[name]}, of ${run.m}, seed ${run.seed}` }), made("figcaption", {}, CAPTIONS[name])));
  if (shown.length) return made("div", { className: "pictures" }, ...shown);
  const where = run.folder ? "This run's pictures are in its folder: the page holds those of one seed of each row of every setting first, up to its limit (--pictures)." : "The record of this run holds no pictures.";
  return made("p", { className: "note" }, where);
}
