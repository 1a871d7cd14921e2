"use strict";
// What a panel draws besides its curves: intervals, single seeds, reference lines, peaks.
(function () {
  var css = Kit.css, colour = Kit.colour;

  Panel.prototype.clipped = function (u, draw) {
    var ctx = u.ctx, box = u.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(box.left, box.top, box.width, box.height);
    ctx.clip();
    draw(ctx);
    ctx.restore();
  };

  Panel.prototype.drawBands = function (u) {
    var panel = this, x = this.data.x, ratio = devicePixelRatio;
    if (this.figure.data.kind === "dots") return;
    this.clipped(u, function (ctx) {
      panel.shownSeries().forEach(function (series) {
        ctx.fillStyle = ctx.strokeStyle = colour(panel.item(series.key));
        if (panel.figure.drawsSeeds(series)) {
          ctx.globalAlpha = 0.35; ctx.lineWidth = 0.8 * ratio;
          series.seeds.forEach(function (seed) { trace(u, ctx, x, seed); ctx.stroke(); });
        } else if (series.low) {
          ctx.globalAlpha = 0.16;
          fill(u, ctx, x, series.low, series.high);
        }
        ctx.globalAlpha = 1;
      });
    });
  };

  function trace(u, ctx, x, values) {
    ctx.beginPath();
    for (var i = 0, pen = false; i < x.length; i++) {
      if (values[i] === null || values[i] === undefined) { pen = false; continue; }
      ctx[pen ? "lineTo" : "moveTo"](u.valToPos(x[i], "x", true), u.valToPos(values[i], "y", true));
      pen = true;
    }
  }
  function fill(u, ctx, x, low, high) { // one shape for each stretch that has an interval
    for (var i = 0; i < x.length; i++) {
      if (low[i] === null || high[i] === null) continue;
      var first = i;
      ctx.beginPath();
      for (; i < x.length && low[i] !== null && high[i] !== null; i++) ctx.lineTo(u.valToPos(x[i], "x", true), u.valToPos(high[i], "y", true));
      for (var j = i - 1; j >= first; j--) ctx.lineTo(u.valToPos(x[j], "x", true), u.valToPos(low[j], "y", true));
      ctx.fill();
    }
  }

  Panel.prototype.drawMarks = function (u) {
    var panel = this, ratio = devicePixelRatio;
    this.clipped(u, function (ctx) {
      (panel.data.lines || []).forEach(function (mark) {
        if (mark.key && !panel.figure.isShown(mark.key)) return;
        var y = Math.round(u.valToPos(mark.value, "y", true)) + 0.5;
        ctx.strokeStyle = mark.key ? colour(panel.item(mark.key)) : css("--soft");
        ctx.globalAlpha = 0.75; ctx.lineWidth = ratio;
        ctx.beginPath(); ctx.moveTo(u.bbox.left, y); ctx.lineTo(u.bbox.left + u.bbox.width, y); ctx.stroke();
        ctx.globalAlpha = 1;
        if (mark.label) {
          ctx.fillStyle = css("--soft"); ctx.font = 11 * ratio + "px system-ui, sans-serif"; ctx.textAlign = "right"; ctx.textBaseline = "bottom";
          ctx.fillText(mark.label, u.bbox.left + u.bbox.width - 4 * ratio, y - 2 * ratio);
        }
      });
      if (panel.figure.data.kind === "dots") panel.drawReach(u, ctx, ratio);
    });
    (this.data.peaks || []).forEach(function (peak) { panel.drawPeak(u, u.ctx, ratio, peak); }); // may stand on the edge
  };
  Panel.prototype.drawReach = function (u, ctx, ratio) {
    var panel = this, all = this.shownSeries(), step = Math.min(0.14, 0.7 / all.length);
    all.forEach(function (series, turn) {
      var shift = panel.figure.data.dodge ? (turn - (all.length - 1) / 2) * step : 0; // several at one place stand side by side
      series.mean.forEach(function (mean, place) {
        if (mean === null) return;
        var x = u.valToPos(place + shift, "x", true);
        ctx.strokeStyle = ctx.fillStyle = colour(panel.item(series.key));
        if (panel.figure.drawsSeeds(series)) {
          ctx.globalAlpha = 0.45;
          series.seeds.forEach(function (seed, number) {
            if (seed[place] === null) return;
            ctx.beginPath();
            ctx.arc(x + ((number % 7) - 3) * 2.4 * ratio, u.valToPos(seed[place], "y", true), 2.2 * ratio, 0, 7);
            ctx.fill();
          });
          ctx.globalAlpha = 1;
        }
        ctx.beginPath();
        ctx.arc(x, u.valToPos(mean, "y", true), 5 * ratio, 0, 7);
        ctx.fill();
        if (!series.low || series.low[place] === null) return;
        ctx.lineWidth = 2 * ratio;
        ctx.beginPath();
        ctx.moveTo(x, u.valToPos(series.low[place], "y", true)); ctx.lineTo(x, u.valToPos(series.high[place], "y", true));
        [series.low, series.high].forEach(function (end) {
          var y = u.valToPos(end[place], "y", true);
          ctx.moveTo(x - 5 * ratio, y); ctx.lineTo(x + 5 * ratio, y);
        });
        ctx.stroke();
      });
    });
  };
  Panel.prototype.drawPeak = function (u, ctx, ratio, peak) {
    var series = this.data.series.find(function (each) { return each.key === peak.key; }), place = this.data.x.indexOf(peak.x);
    if (!series || !this.figure.isShown(peak.key) || place < 0 || series.mean[place] === null) return;
    if (peak.x < u.scales.x.min || peak.x > u.scales.x.max) return;
    var x = u.valToPos(peak.x, "x", true), y = u.valToPos(series.mean[place], "y", true) - 4 * ratio;
    if (y < u.bbox.top + 8 * ratio) y = u.bbox.top + 8 * ratio;
    ctx.fillStyle = colour(this.item(peak.key));
    ctx.strokeStyle = css("--card"); ctx.lineWidth = ratio;
    ctx.beginPath();
    ctx.moveTo(x, y); ctx.lineTo(x - 4.5 * ratio, y - 8 * ratio); ctx.lineTo(x + 4.5 * ratio, y - 8 * ratio); ctx.closePath();
    ctx.fill(); ctx.stroke();
  };
})();
