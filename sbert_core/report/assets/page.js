"use strict";
// Texts of a corpus are strangers: they reach the page as text nodes and never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 10;
const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const COLOURS = ["#2f6fab", "#c8553d", "#4a9a6b", "#8c5e9e", "#c79a2b", "#3aa0a8", "#b5577d", "#7a7f3a", "#6b74c9", "#a0643c", "#5f8f3e", "#d9739b", "#4f8ad9", "#b08d57", "#38806e", "#9a4f4f", "#7d6fb0", "#c46a2e", "#4a6b8a", "#8aa04b"];

function plain(text) {
  return String(text).replace(BIDI, (mark) => "\u27e8U+" + mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");
}
function made(name, text, parent) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = plain(text);
  if (parent) parent.append(node);
  return node;
}

// -- words that differ ---------------------------------------------------------------------------
function words(text) { return plain(text).match(/\s+|[^\s\p{L}\p{N}]|[\p{L}\p{N}]+/gu) || []; }
function common(a, b) {
  // Lengths of common subsequences; texts are cut, so the table stays small.
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  return table;
}
function differing(text, witness, parent) {
  const a = words(witness), b = words(text), table = common(a, b), line = made("bdi", undefined, parent);
  let i = 0, j = 0;
  const put = (name, word) => {
    const last = line.lastChild;
    if (last && last.nodeName === name.toUpperCase()) last.textContent += word;
    else if (name === "span" && last && last.nodeType === 3) last.textContent += word;
    else line.append(name === "span" ? document.createTextNode(word) : made(name, word));
  };
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { put("span", b[j]); i++; j++; }
    else if (j < b.length && (i >= a.length || table[i][j + 1] >= table[i + 1][j])) { put("mark", b[j]); j++; }
    else { put("del", a[i]); i++; }
  }
}

// -- lists to search, sort and page through ------------------------------------------------------
function browser(prefix, items, orders, matches, draw) {
  const list = document.getElementById(prefix + "-list");
  if (!list) return null;
  const search = document.getElementById(prefix + "-search"), sort = document.getElementById(prefix + "-sort");
  const before = document.getElementById(prefix + "-before"), after = document.getElementById(prefix + "-after");
  const count = document.getElementById(prefix + "-count");
  let page = 0;
  function show() {
    const word = search.value.trim().toLowerCase();
    const found = items.filter((item) => !word || matches(item, word));
    if (sort) found.sort(orders[sort.value]);
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.min(page, pages - 1);
    count.textContent = found.length.toLocaleString("en") + " found, page " + (page + 1) + " of " + pages;
    before.disabled = page === 0;
    after.disabled = page >= pages - 1;
    list.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map(draw));
  }
  const first = () => { page = 0; show(); };
  search.addEventListener("input", first);
  if (sort) sort.addEventListener("change", first);
  before.addEventListener("click", () => { page--; show(); });
  after.addEventListener("click", () => { page++; show(); });
  show();
  return (word) => { search.value = word; first(); list.scrollIntoView({ block: "start" }); search.focus(); };
}

function drawCluster(cluster) {
  const box = made("article");
  box.className = "cluster";
  made("h3", cluster.rows.toLocaleString("en") + " rows \u00b7 " + cluster.id, box);
  for (const member of cluster.kept) {
    const line = made("p", undefined, box);
    line.className = "kept";
    made("bdi", member.text === null ? "(text not at hand)" : member.text, line);
    made("span", " kept: " + member.reason + " \u00b7 " + member.id, line).className = "meta";
  }
  const list = made("ul", undefined, box);
  const kept = new Map(cluster.kept.map((member) => [member.id, member.text]));
  for (const member of cluster.removed) {
    const item = made("li", undefined, list);
    if (member.text === null) made("span", "(text not at hand)", item);
    else differing(member.text, member.witness_text ?? kept.get(member.witness) ?? "", item);
    made("div", member.cos.toFixed(4) + " \u00b7 " + member.reason + " of " + member.witness + " \u00b7 " + member.id, item).className = "meta";
  }
  const more = cluster.rows - cluster.kept.length - cluster.removed.length;
  if (more > 0) made("p", more.toLocaleString("en") + " more rows are not shown", box).className = "note";
  return box;
}
const has = (text, word) => text !== null && String(text).toLowerCase().includes(word);
const lowest = (cluster) => Math.min(1, ...cluster.removed.map((member) => member.cos));
const openCluster = browser("clusters", data.clusters.items, {
  size: (a, b) => b.rows - a.rows || (a.id < b.id ? -1 : 1),
  lowest: (a, b) => lowest(a) - lowest(b),
  id: (a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0),
}, (cluster, word) => has(cluster.id, word) || [...cluster.kept, ...cluster.removed].some((m) => has(m.id, word) || has(m.text, word)), drawCluster);

browser("quarantine", data.quarantine.items, {}, (row, word) => Object.values(row).some((value) => has(value, word)), (row) => {
  const line = made("li");
  made("bdi", row.id, line);
  made("span", " \u00b7 " + row.reason + " \u00b7 " + row.file + ", row " + row.row, line).className = "meta";
  return line;
});

// -- map -----------------------------------------------------------------------------------------
const canvas = document.getElementById("map");
if (canvas) drawMap(canvas, data.map);
function drawMap(canvas, map) {
  const tip = document.getElementById("tip"), search = document.getElementById("map-search");
  const status = document.getElementById("map-count"), context = canvas.getContext("2d");
  let zoom = 1, left = 0, top = 0, chosen = -1, dragged = null;
  const place = (point) => [(point.x - left) * zoom * canvas.width, (point.y - top) * zoom * canvas.height];
  function draw() {
    const scale = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
    if (canvas.width !== Math.round(box.width * scale)) { canvas.width = Math.round(box.width * scale); canvas.height = Math.round(box.height * scale); }
    context.clearRect(0, 0, canvas.width, canvas.height);
    const word = search.value.trim().toLowerCase();
    let hits = 0;
    map.points.forEach((point, number) => {
      const [x, y] = place(point), isHit = !word || has(point.text, word) || has(point.id, word);
      hits += isHit ? 1 : 0;
      context.globalAlpha = isHit ? 0.8 : 0.08;
      context.fillStyle = COLOURS[point.group % COLOURS.length];
      context.beginPath();
      context.arc(x, y, (number === chosen ? 7 : word && isHit ? 4.5 : 2.8) * scale, 0, 2 * Math.PI);
      context.fill();
    });
    context.globalAlpha = 1;
    status.textContent = (word ? hits.toLocaleString("en") + " of " : "") + map.points.length.toLocaleString("en") + " points, zoom " + zoom.toFixed(1);
    canvas.dataset.zoom = zoom.toFixed(2);
  }
  function nearest(event) {
    const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    let best = -1, least = (12 * scale) ** 2;
    map.points.forEach((point, number) => {
      const [px, py] = place(point), far = (px - x) ** 2 + (py - y) ** 2;
      if (far < least) { least = far; best = number; }
    });
    return best;
  }
  function say(number) {
    chosen = number;
    tip.hidden = number < 0;
    if (number >= 0) {
      const point = map.points[number], box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
      const [x, y] = place(point);
      tip.replaceChildren();
      made("bdi", point.text === null ? point.id : point.text, tip);
      made("div", map.groups[point.group] + " \u00b7 " + point.id, tip);
      tip.style.left = Math.min(x / scale + 12, box.width - 200) + "px";
      tip.style.top = y / scale + 12 + "px";
    }
    draw();
  }
  function zoomTo(factor, x, y) {
    const wanted = Math.min(60, Math.max(1, zoom * factor));
    left += x / zoom - x / wanted;
    top += y / zoom - y / wanted;
    zoom = wanted;
    if (zoom === 1) left = top = 0;
    draw();
  }
  const at = (event) => { const box = canvas.getBoundingClientRect(); return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]; };
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoomTo(event.deltaY < 0 ? 1.25 : 0.8, ...at(event)); }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { dragged = { x: event.clientX, y: event.clientY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!dragged) { say(nearest(event)); return; }
    const box = canvas.getBoundingClientRect();
    if (Math.abs(event.clientX - dragged.x) + Math.abs(event.clientY - dragged.y) < 4 && !dragged.moved) return;
    left -= (event.clientX - dragged.x) / box.width / zoom;
    top -= (event.clientY - dragged.y) / box.height / zoom;
    dragged = { x: event.clientX, y: event.clientY, moved: true };
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const isClick = dragged && !dragged.moved;
    dragged = null;
    const number = isClick ? nearest(event) : -1;
    if (number >= 0 && openCluster && map.points[number].cluster !== null) openCluster(map.points[number].cluster);
  });
  canvas.addEventListener("pointerleave", () => say(-1));
  canvas.addEventListener("keydown", (event) => {
    const step = 0.1 / zoom, moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key === "+" || event.key === "=") zoomTo(1.25, 0.5, 0.5);
    else if (event.key === "-") zoomTo(0.8, 0.5, 0.5);
    else if (event.key in moves) { left += moves[event.key][0]; top += moves[event.key][1]; draw(); }
    else return;
    event.preventDefault();
  });
  document.getElementById("map-in").addEventListener("click", () => zoomTo(1.5, 0.5, 0.5));
  document.getElementById("map-out").addEventListener("click", () => zoomTo(1 / 1.5, 0.5, 0.5));
  document.getElementById("map-reset").addEventListener("click", () => { zoom = 1; left = top = 0; draw(); });
  search.addEventListener("input", draw);
  window.addEventListener("resize", draw);
  draw();
}
for (const item of document.querySelectorAll(".legend i")) item.style.setProperty("--dot", COLOURS[Number(item.dataset.group) % COLOURS.length]);
