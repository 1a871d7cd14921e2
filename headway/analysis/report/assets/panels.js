"use strict";
// A panel: curves, or dots with intervals, over one axis. It draws with uPlot and adds bands, marks, a tip and keys.
var Panel = (function () {
  var make = Kit.make, css = Kit.css, colour = Kit.colour, line = Kit.line, number = Kit.number, shown = Kit.shown;
  var sizes = new ResizeObserver(function (entries) {
    entries.forEach(function (entry) { if (entry.target.panel) entry.target.panel.fit(); });
  });

  var WHOLE = []; // steps between the numbers of a horizontal axis: epochs are counted in whole numbers
  for (var power = 1; power < 1e12; power *= 10) WHOLE.push(power, 2 * power, 5 * power);

  var MOST_DECADES = 6; // of a logarithmic axis; what is smaller runs out of the panel

  function decades(low, high) { // the range of a logarithmic axis: ten to one at least, so that there are numbers on it
    var from = Math.max(low, high / Math.pow(10, MOST_DECADES)), room = Math.max(1.2, Math.sqrt(10 * from / high));
    return [from / room, high * room];
  }
  function marks(low, high) { // its numbers: powers of ten, and some between them where there are few
    var found = [], between = high < 20 * low ? [1, 2, 5] : high < 1000 * low ? [1, 3] : [1];
    for (var power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      between.forEach(function (first) { found.push(Number(first + "e" + power)); });
    }
    return found.filter(function (value) { return value >= low && value <= high; });
  }

  function Panel(figure, data) {
    this.figure = figure;
    this.data = data;
    this.plot = null;
    this.node = make("div", "panel");
    this.node.dataset.panel = data.key;
    var head = make("p", "name", data.title);
    if (data.y.label) head.appendChild(make("span", "soft small", (data.title ? " · " : "") + data.y.label));
    this.node.appendChild(head);
    this.box = make("div", "plot");
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", [figure.data.title, data.title, data.y.label].filter(Boolean).join(", ") +
      ". Chart. Left and right arrows read the values, plus and minus zoom, zero resets.");
    this.box.panel = this;
    this.tip = make("div", "tip");
    this.tip.hidden = true;
    this.node.appendChild(this.box);
    figure.grid.appendChild(this.node);
    this.listen();
  }

  Panel.prototype.shownSeries = function () {
    var figure = this.figure;
    return this.data.series.filter(function (series) { return figure.isShown(series.key); });
  };
  Panel.prototype.item = function (key) {
    return this.figure.data.legend.items.find(function (item) { return item.key === key; });
  };
  Panel.prototype.extent = function () {
    var x = this.data.x;
    if (this.figure.data.kind === "dots") return [-0.6, x.length - 0.4];
    return x.length > 1 ? [x[0], x[x.length - 1]] : [(x[0] || 0) - 0.5, (x[0] || 0) + 0.5];
  };
  Panel.prototype.range = function () { // the panels of a row share their vertical range
    if (this.figure.data.kind === "dots" && this.figure.state.zoom) return this.figure.state.zoom;
    var row = this.data.row, window = this.figure.data.kind === "dots" ? null : this.figure.state.zoom, low = Infinity, high = -Infinity;
    this.figure.panels.forEach(function (panel) {
      if (panel.data.row !== row || panel.node.hidden) return;
      var found = panel.spread(window);
      low = Math.min(low, found[0]); high = Math.max(high, found[1]);
    });
    return low < high ? [low, high] : [0, 1];
  };
  Panel.prototype.spread = function (window) {
    // An interval counts as far as it reaches no farther from the means than they spread, or half their height:
    // a few seeds can have one that would flatten everything else. Where single curves stand for it, it does not count.
    var x = this.data.x, log = Boolean(this.data.y.log), figure = this.figure, low = Infinity, high = -Infinity, from = Infinity, to = -Infinity;
    var dots = figure.data.kind === "dots";
    function take(values, each) {
      for (var i = 0; i < x.length; i++) {
        if (values[i] !== null && !(log && values[i] <= 0) && (!window || (x[i] >= window[0] && x[i] <= window[1]))) each(values[i]);
      }
    }
    this.shownSeries().forEach(function (series) {
      take(series.mean, function (value) { low = Math.min(low, value); high = Math.max(high, value); });
      var seeds = figure.drawsSeeds(series);
      if (series.low && (dots || !seeds)) {
        take(series.low, function (value) { from = Math.min(from, value); });
        take(series.high, function (value) { to = Math.max(to, value); });
      }
      if (seeds) series.seeds.forEach(function (seed) {
        take(seed, function (value) { low = Math.min(low, value); high = Math.max(high, value); });
      });
    });
    if (low > high) return log ? [0.1, 1] : [0, 1];
    if (log) return decades(low, high);
    var positive = low >= 0; // an interval alone that reaches below zero is cut off there
    var slack = Math.max(high - low, Math.abs(high) / 2);
    low = Math.min(low, Math.max(from, low - slack)); high = Math.max(high, Math.min(to, high + slack));
    var label = 0;
    (this.data.lines || []).forEach(function (mark) {
      if (!dots && !mark.label) return;
      low = Math.min(low, mark.value); high = Math.max(high, mark.value);
      label = mark.label ? 0.08 * (high - low) : label;
    });
    var room = 0.06 * (high - low) || Math.abs(high) * 0.1 || 0.5;
    var cut = positive && (this.data.y.zero || (!dots && low - room < 0));
    return [cut ? 0 : low - room, high + room + label];
  };

  Panel.prototype.build = function () {
    var panel = this, figure = this.figure, data = this.data, dots = figure.data.kind === "dots";
    if (this.plot) this.plot.destroy();
    var ink = css("--soft"), grid = css("--grid"), font = "12px system-ui, sans-serif";
    var axis = { stroke: ink, font: font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 }, gap: 4 };
    var names = figure.data.categories;
    var bottom = Object.assign({}, axis, {
      size: dots ? 58 : 28, label: figure.data.xlabel, labelFont: font, labelSize: 18, labelGap: 0, space: figure.data.wide ? 70 : 44,
      incrs: data.x.every(Number.isInteger) ? WHOLE : undefined,
      values: function (_, splits) { return splits.map(function (value) { return Number.isInteger(value) || !dots ? number(value) : ""; }); },
    });
    if (dots) Object.assign(bottom, {
      grid: { show: false }, label: undefined, rotate: 35,
      splits: function () { return names.map(function (_, place) { return place; }); },
      values: function (_, splits) { return splits.map(function (place) { return panel.isEmpty(place) ? "" : names[place]; }); },
    });
    var options = {
      width: Math.max(120, this.box.clientWidth), height: this.height(), legend: { show: false }, padding: [12, dots ? 12 : 24, 0, 0], // half of the last number stands outside
      scales: {
        x: { time: false, range: function () { return !dots && figure.state.zoom || panel.extent(); } },
        y: { distr: data.y.log ? 3 : 1, range: function () { return panel.range(); } },
      },
      axes: [bottom, Object.assign({}, axis, data.y.log ? { splits: function (_, axis, low, high) { return marks(low, high); } } : {}, {
        size: 54, space: 32, filter: function (_, splits) { return splits; },
        values: function (_, splits) { return splits.map(function (value) { return data.y.percent ? number(100 * value) + "%" : number(value); }); },
      })],
      series: [{}].concat(data.series.map(function (series) {
        var item = panel.item(series.key), stroke = colour(item);
        return {
          label: item.name, stroke: stroke, width: 2, spanGaps: Boolean(figure.data.spans), dash: dots ? [] : item.dash, show: figure.isShown(series.key),
          paths: dots ? function () { return null; } : undefined,
          points: dots ? { show: false } : { show: data.x.length < 2, size: 7, fill: stroke },
        };
      })),
      cursor: {
        sync: { key: figure.data.id, setSeries: false, scales: ["x", null] },
        drag: { x: !dots, y: dots, setScale: false, uni: 8 }, y: false, points: { size: 7 },
      },
      hooks: {
        drawAxes: [function (u) { panel.drawBands(u); }],
        draw: [function (u) { panel.drawMarks(u); }],
        setCursor: [function (u) { panel.hover(u); }],
        setSelect: [function (u) { panel.select(u); }],
      },
    };
    var curves = data.series.map(function (series) {
      return data.y.log ? series.mean.map(function (value) { return value > 0 ? value : null; }) : series.mean;
    });
    this.plot = new uPlot(options, [data.x].concat(curves), this.box);
    this.tip.hidden = true;
    this.plot.over.appendChild(this.tip);
    this.plot.over.addEventListener("mouseenter", function () { figure.active = panel; });
    this.plot.over.addEventListener("mouseleave", function () { if (figure.active === panel) figure.active = null; panel.tip.hidden = true; });
    this.plot.over.addEventListener("dblclick", function () { figure.setZoom(null); });
    this.plot.over.addEventListener("touchmove", function (event) { panel.touch(event); }, { passive: true });
    this.plot.over.addEventListener("touchstart", function (event) { figure.active = panel; panel.touch(event); }, { passive: true });
    sizes.observe(this.box);
  };

  Panel.prototype.height = function () {
    if (this.figure.data.wide) return window.innerWidth < 640 ? 280 : 340;
    return this.figure.data.kind === "dots" ? 270 : 210;
  };
  Panel.prototype.isEmpty = function (place) {
    return !this.shownSeries().some(function (series) { return series.mean[place] !== null; });
  };
  Panel.prototype.fit = function () {
    var width = this.box.clientWidth;
    if (this.plot && width > 0 && (width !== this.plot.width || this.height() !== this.plot.height)) {
      this.plot.setSize({ width: width, height: this.height() });
    }
  };
  Panel.prototype.refresh = function () {
    if (!this.plot || this.node.hidden) return;
    var panel = this, u = this.plot;
    this.fit();
    u.batch(function () {
      panel.data.series.forEach(function (series, place) {
        var show = panel.figure.isShown(series.key);
        if (u.series[place + 1].show !== show) u.setSeries(place + 1, { show: show });
      });
      var window = panel.figure.data.kind !== "dots" && panel.figure.state.zoom || panel.extent();
      u.setScale("x", { min: window[0], max: window[1] });
    });
    u.redraw(true, true);
  };

  Panel.prototype.select = function (u) {
    var dots = this.figure.data.kind === "dots", box = u.select;
    if ((dots ? box.height : box.width) < 4) return;
    var ends = dots ? [u.posToVal(box.top + box.height, "y"), u.posToVal(box.top, "y")] : [u.posToVal(box.left, "x"), u.posToVal(box.left + box.width, "x")];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.figure.setZoom(ends);
  };
  Panel.prototype.touch = function (event) {
    var box = this.plot.over.getBoundingClientRect(), finger = event.touches[0];
    this.plot.setCursor({ left: finger.clientX - box.left, top: finger.clientY - box.top });
  };
  Panel.prototype.hover = function (u) {
    var place = u.cursor.idx;
    if (this.figure.active !== this || place === null || place === undefined || u.cursor.left < 0) { this.tip.hidden = true; return; }
    this.describe(place);
    this.tip.hidden = false;
    var left = u.cursor.left + 14, width = this.tip.offsetWidth, height = this.tip.offsetHeight;
    if (left + width > u.over.clientWidth) left = Math.max(-50, u.cursor.left - width - 14);
    this.tip.style.left = left + "px";
    this.tip.style.top = Math.max(-30, Math.min(u.cursor.top - 10, u.over.clientHeight - height)) + "px";
  };
  Panel.prototype.describe = function (place) {
    var panel = this, names = this.figure.data.categories, x = this.data.x[place];
    var title = (this.figure.data.xname + " " + (names ? names[x] : number(x))).trim(), lines = [title], tip = this.tip;
    tip.replaceChildren(make("b", "", title));
    this.shownSeries().forEach(function (series) {
      if (series.mean[place] === null) return;
      var row = make("div"), item = panel.item(series.key), text = shown(series.mean[place], panel.data.y);
      if (series.low && series.low[place] !== null) text += " [" + shown(series.low[place], panel.data.y) + ", " + shown(series.high[place], panel.data.y) + "]";
      row.append(line(item, panel.figure.data.kind === "dots"), make("span", "", item.name), make("span", "", text));
      tip.appendChild(row);
      lines.push(item.name + " " + text);
    });
    return lines.join("; ");
  };
  Panel.prototype.listen = function () {
    var panel = this;
    this.box.addEventListener("keydown", function (event) {
      var u = panel.plot, figure = panel.figure;
      if (!u || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "+" || event.key === "=") { figure.active = panel; figure.zoomBy(0.5); }
      else if (event.key === "-") { figure.active = panel; figure.zoomBy(2); }
      else if (event.key === "0" || event.key === "Escape") figure.setZoom(null);
      else if (event.key === "ArrowLeft" || event.key === "ArrowRight") panel.step(event.key === "ArrowRight" ? 1 : -1, event.shiftKey ? 10 : 1);
      else return;
      event.preventDefault();
    });
    this.box.addEventListener("blur", function () {
      if (panel.figure.active === panel) panel.figure.active = null;
      panel.tip.hidden = true;
    });
  };
  Panel.prototype.step = function (direction, size) {
    var u = this.plot, x = this.data.x, window = [u.scales.x.min, u.scales.x.max];
    var first = x.findIndex(function (value) { return value >= window[0]; }), last = x.length - 1;
    while (last > first && x[last] > window[1]) last--;
    var place = u.cursor.idx === null || u.cursor.idx === undefined || u.cursor.left < 0 ? (direction > 0 ? first : last) : u.cursor.idx + direction * size;
    place = Math.max(first, Math.min(last, place));
    if (place < 0) return;
    this.figure.active = this;
    u.setCursor({ left: u.valToPos(x[place], "x"), top: u.over.clientHeight / 3 });
    this.figure.voice.textContent = this.describe(place);
  };

  Panel.prototype.destroy = function () {
    sizes.unobserve(this.box);
    if (this.plot) this.plot.destroy();
    this.plot = null;
  };

  return Panel;
})();
