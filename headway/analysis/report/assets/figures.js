"use strict";
// Figures: panels that share a legend, a zoom and a cursor. A figure is drawn when it comes into view.
var Charts = (function () {
  var make = Kit.make, line = Kit.line;
  var figures = new Map(); // id -> Figure
  var kept = new Map(); // id -> what the reader has chosen, kept over updates
  var watcher = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      if (entry.isIntersecting) figures.get(entry.target.dataset.figure).draw();
    });
  }, { rootMargin: "400px 0px" });

  function Figure(node, data) {
    this.node = node;
    this.data = data;
    this.state = kept.get(data.id) || { hidden: new Set(), zoom: null, seeds: null };
    kept.set(data.id, this.state);
    this.panels = [];
    this.active = null;
    this.isDrawn = false;
  }

  Figure.prototype.draw = function () {
    if (this.isDrawn) return;
    this.isDrawn = true;
    watcher.unobserve(this.node);
    var figure = this, data = this.data, body = make("div");
    body.appendChild(this.controls());
    this.grid = make("div", "panels" + (data.wide ? " wide" : "") + (data.paired ? " paired" : ""));
    data.panels.forEach(function (panel) { figure.panels.push(new Panel(figure, panel)); });
    body.appendChild(this.grid);
    this.voice = make("div", "visually-hidden");
    this.voice.setAttribute("aria-live", "polite");
    body.appendChild(this.voice);
    this.node.querySelector(".body").replaceChildren(body);
    this.node.classList.add("drawn");
    this.arrange();
    this.panels.forEach(function (panel) { panel.build(); });
  };

  Figure.prototype.controls = function () {
    var figure = this, data = this.data, bar = make("div", "controls");
    if (data.picks) bar.appendChild(this.chips(data.picks, false));
    if (data.legend.items.length) bar.appendChild(this.chips(data.legend, true));
    var tools = make("div", "tools");
    function tool(text, label, act) {
      var button = make("button", "", text);
      button.type = "button"; button.title = label; button.setAttribute("aria-label", label + ": " + data.title);
      button.addEventListener("click", act);
      tools.appendChild(button);
      return button;
    }
    if (data.seeds) {
      var seeds = tool("Seeds", "Show every seed", function () {
        figure.state.seeds = !figure.showsSeeds();
        seeds.setAttribute("aria-pressed", figure.state.seeds);
        figure.refresh();
      });
      seeds.setAttribute("aria-pressed", this.showsSeeds());
    }
    tool("+", "Zoom in", function () { figure.zoomBy(0.5); });
    tool("−", "Zoom out", function () { figure.zoomBy(2); });
    tool("Reset", "Reset the zoom", function () { figure.setZoom(null); });
    bar.appendChild(tools);
    return bar;
  };

  Figure.prototype.chips = function (group, withLine) {
    var figure = this, box = make("div", "chips"), name = make("span", "", group.label);
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", group.label);
    box.appendChild(name);
    group.items.forEach(function (item) {
      var chip = make("button", "chip");
      chip.type = "button";
      chip.dataset.key = item.key;
      chip.setAttribute("aria-pressed", !figure.state.hidden.has(item.key));
      if (withLine) chip.appendChild(line(item, figure.data.kind === "dots"));
      chip.appendChild(make("span", "", item.name));
      chip.addEventListener("click", function () {
        var hidden = figure.state.hidden;
        if (!hidden.delete(item.key)) hidden.add(item.key);
        chip.setAttribute("aria-pressed", !hidden.has(item.key));
        figure.arrange();
        figure.refresh();
      });
      box.appendChild(chip);
    });
    return box;
  };

  Figure.prototype.drawsSeeds = function (series) { // the reader's choice, or else what suits the number of seeds
    return Boolean(series.seeds && (this.state.seeds === null ? series.single : this.state.seeds));
  };
  Figure.prototype.showsSeeds = function () {
    var figure = this;
    return this.data.panels.some(function (panel) {
      return panel.series.some(function (series) { return figure.drawsSeeds(series); });
    });
  };
  Figure.prototype.isShown = function (key) { return !this.state.hidden.has(key); };

  Figure.prototype.arrange = function () { // hides the panels that are switched off, and counts the columns
    var figure = this, data = this.data, visible = new Set();
    this.panels.forEach(function (panel) {
      panel.node.hidden = Boolean(data.picks) && !figure.isShown(panel.data.key);
      if (!panel.node.hidden) visible.add(panel.data.key);
    });
    this.grid.style.setProperty("--columns", Math.max(1, data.paired ? visible.size : Math.min(data.columns, visible.size)));
  };

  Figure.prototype.refresh = function () { this.panels.forEach(function (panel) { panel.refresh(); }); };

  Figure.prototype.setZoom = function (zoom) { this.state.zoom = zoom; this.refresh(); };

  Figure.prototype.zoomBy = function (factor) {
    var panel = this.active || this.panels.find(function (each) { return each.plot && !each.node.hidden; });
    if (!panel) return;
    var scale = panel.plot.scales[this.data.kind === "dots" ? "y" : "x"];
    var full = this.data.kind === "dots" ? panel.spread() : panel.extent();
    var centre = (scale.min + scale.max) / 2, half = (scale.max - scale.min) * factor / 2;
    var low = Math.max(full[0], centre - half), high = Math.min(full[1], centre + half);
    this.setZoom(low <= full[0] && high >= full[1] ? null : [low, high]);
  };

  Figure.prototype.destroy = function () {
    watcher.unobserve(this.node);
    this.panels.forEach(function (panel) { panel.destroy(); });
    this.panels = [];
    this.isDrawn = false;
  };

  function mount(data) { // binds every figure of the page to its data, and leaves alone those that are as they were
    var found = new Map();
    document.querySelectorAll("[data-figure]").forEach(function (node) {
      var content = data[node.dataset.figure], before = figures.get(node.dataset.figure);
      if (!content) return;
      var text = JSON.stringify(content);
      if (before && before.node === node && before.text === text) { found.set(content.id, before); return; }
      var figure = new Figure(node, content), wasDrawn = Boolean(before && before.isDrawn);
      figure.text = text;
      if (before) before.destroy();
      found.set(content.id, figure);
      if (!wasDrawn) watcher.observe(node);
      else figure.redraw = true;
    });
    figures.forEach(function (figure, id) { if (found.get(id) !== figure) figure.destroy(); });
    figures.clear();
    found.forEach(function (figure, id) { figures.set(id, figure); });
    found.forEach(function (figure) { if (figure.redraw) { figure.redraw = false; figure.draw(); } });
  }
  function drawAll() { figures.forEach(function (figure) { figure.draw(); }); }

  document.addEventListener("themechange", function () {
    figures.forEach(function (figure) {
      if (figure.isDrawn) { figure.destroy(); figure.draw(); }
    });
  });
  window.addEventListener("beforeprint", drawAll);

  return { mount: mount, drawAll: drawAll, figures: figures };
})();
