/* Curves: the numbers of a plot are beside it in the page, drawn by uPlot where that is loaded. */
"use strict";
(() => {
  /* On paper a plot is light, and as wide as any paper has room for: its page is laid out when it has been drawn. */
  const PAPER = 640;
  let onPaper = false;

  function widthOf(place) {
    return onPaper ? PAPER : place.clientWidth || 600;
  }

  /* A canvas knows no variables: an element says what they are in the reader's scheme. */
  function colours() {
    const probe = document.body.appendChild(document.createElement("i"));
    if (onPaper) probe.style.colorScheme = "light";
    const colour = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    const found = { lines: [1, 2, 3, 4, 5].map((n) => colour(`--line-${n}`)), text: colour("--quiet"), grid: colour("--hair"), batch: colour("--bad") };
    probe.remove();
    return found;
  }

  /* The first curve is drawn through; the others are told apart by their dashes, too: in the plot and in its legend. */
  const dashes = (index) => (index > 1 ? [6, 2 + 2 * index] : undefined);

  function sample(colour, index) {
    const [on, off] = dashes(index) ?? [1, 0];
    return `repeating-linear-gradient(90deg, ${colour} 0 ${on}px, transparent 0 ${on + off}px)`;
  }

  const significant = new Intl.NumberFormat(document.documentElement.lang, { maximumSignificantDigits: 4 });
  const plots = new Set();

  /* Whole powers of ten around the numbers and around the level they are held against. */
  function powers(asked, low, high) {
    const level = asked.level?.y;
    const found = [low, high, level].filter((value) => value > 0 && Number.isFinite(value));
    if (found.length === 0) return [0.1, 10];
    const ends = [10 ** Math.floor(Math.log10(Math.min(...found))), 10 ** Math.ceil(Math.log10(Math.max(...found)))];
    return ends[0] < ends[1] ? ends : [ends[0] / 10, ends[1] * 10];
  }

  /* Names along an axis instead of numbers, as many as there is room for. */
  function namedTicks(asked) {
    if (!asked.ticks) return {};
    const chosen = (plot) => {
      const room = plot.bbox.width / devicePixelRatio / Math.max(1, asked.ticks.length);
      return asked.ticks.filter((_tick, index) => index % Math.max(1, Math.ceil(130 / Math.max(1, room))) === 0);
    };
    return { splits: (plot) => chosen(plot).map(([at]) => at), values: (plot) => chosen(plot).map(([, text]) => text), grid: { show: false } };
  }

  /* Vertical lines where something happened (solid: people were forgotten, dotted: a version came out), and the level. */
  function marked(plot, asked, paint) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.lineWidth = devicePixelRatio;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    let end = -Infinity;
    for (const { x, kind, text } of asked.marks ?? []) {
      const at = plot.valToPos(x, "x", true);
      const isBatch = kind === "batch";
      ctx.strokeStyle = ctx.fillStyle = isBatch ? paint.batch : paint.text;
      ctx.setLineDash(isBatch ? [] : [2 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      const width = ctx.measureText(text).width;
      const left = isBatch ? at + 4 * devicePixelRatio : at - width - 4 * devicePixelRatio;
      if (left < end) continue;
      end = left + width;
      ctx.fillText(text, left, bbox.top - 8 * devicePixelRatio);
    }
    if (asked.level) {
      const at = plot.valToPos(asked.level.y, "y", true);
      ctx.strokeStyle = ctx.fillStyle = paint.text;
      ctx.setLineDash([8 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, at);
      ctx.lineTo(bbox.left + bbox.width, at);
      ctx.stroke();
      ctx.fillText(asked.level.text, bbox.left + 6 * devicePixelRatio, at - 5 * devicePixelRatio);
    }
    ctx.restore();
  }

  function draw(root) {
    if (typeof uPlot === "undefined") return;
    for (const place of root.querySelectorAll("[data-plot]")) {
      if (place.plotted === place.dataset.plot) continue;
      place.plotted = place.dataset.plot;
      place.replaceChildren();
      const asked = JSON.parse(place.dataset.plot);
      const paint = colours();
      const shown = (_plot, value) => (value == null ? "–" : significant.format(value));
      const named = (_plot, value, _series, at) => asked.names?.[at] ?? shown(_plot, value);
      const axis = (label) => ({ label: label || undefined, stroke: paint.text, grid: { stroke: paint.grid, width: 1 }, ticks: { stroke: paint.grid, width: 1 } });
      /* The page may have a legend of its own, with words: one is enough, and shows the numbers under the pointer. */
      const key = document.querySelector(`[data-key="${place.dataset.name}"]`);
      for (const [index, line] of [...(key?.querySelectorAll("[class^=line-]") ?? [])].entries()) line.style.background = sample(paint.lines[index], index + 1);
      const pointed = (plot) => {
        for (const value of key?.querySelectorAll("[data-series]") ?? []) {
          const at = plot.cursor.idx;
          value.textContent = at == null ? "" : shown(plot, plot.data[value.dataset.series][at]);
        }
      };
      const options = {
        legend: { show: !key, markers: { width: 0, fill: (_plot, index) => sample(paint.lines[(index - 1) % paint.lines.length], index) } },
        width: widthOf(place),
        height: asked.height,
        padding: asked.marks ? [26, 12, 0, 0] : undefined,
        scales: { x: { time: false, distr: asked.logx ? 3 : 1 }, y: asked.log ? { distr: 3, range: (_plot, low, high) => powers(asked, low, high) } : {} },
        axes: [{ ...axis(asked.x), ...namedTicks(asked) }, { ...axis(asked.y), size: 64, values: (_plot, ticks) => ticks.map((tick) => (tick == null ? "" : significant.format(tick))) }],
        series: asked.columns.map((label, index) => index === 0
          ? { label, value: named }
          : { label, stroke: paint.lines[(index - 1) % paint.lines.length], width: 2, dash: dashes(index), spanGaps: !asked.gaps, points: { show: asked.rows.length < 40 }, value: shown }),
        hooks: { drawAxes: [(plot) => marked(plot, asked, paint)], setCursor: [pointed] },
      };
      const data = asked.columns.map((_, column) => asked.rows.map((row) => row[column]));
      const plot = new uPlot(options, data, place);
      plots.add({ plot, place, height: asked.height });
    }
  }

  function redraw() {
    for (const one of plots) {
      if (!one.place.isConnected) plots.delete(one);
      else one.plot.setSize({ width: widthOf(one.place), height: one.height });
    }
  }

  function repaint() {
    for (const one of plots) { one.plot.destroy(); one.place.plotted = null; }
    plots.clear();
    draw(document);
  }

  document.addEventListener("htmx:after:swap", () => draw(document));
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  window.addEventListener("beforeprint", () => { onPaper = true; repaint(); });
  window.addEventListener("afterprint", () => { onPaper = false; repaint(); });

  draw(document);
})();
