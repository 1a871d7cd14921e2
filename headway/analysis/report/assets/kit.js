"use strict";
// Small helpers of all figures: elements, colours of the theme, numbers in words.
// Text only ever enters the page through textContent.
var Kit = (function () {
  var SVG = "http://www.w3.org/2000/svg";

  function make(tag, className, text) {
    var node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function colour(item) { return document.documentElement.dataset.theme === "dark" ? item.dark : item.light; }

  function line(item, isDot) { // how a series looks: a piece of its line, or its dot
    var svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, isDot ? "circle" : "line");
    svg.setAttribute("width", isDot ? 10 : 22); svg.setAttribute("height", 10); svg.setAttribute("aria-hidden", "true");
    var look = isDot
      ? { cx: 5, cy: 5, r: 4.5, fill: colour(item) }
      : { x1: 0, x2: 22, y1: 5, y2: 5, stroke: colour(item), "stroke-width": 3 };
    Object.keys(look).forEach(function (name) { path.setAttribute(name, look[name]); });
    if (item.dash.length && !isDot) path.setAttribute("stroke-dasharray", item.dash.join(" "));
    svg.appendChild(path);
    return svg;
  }

  function number(value) {
    var size = Math.abs(value);
    if (size >= 1e6) return trim((value / 1e6).toPrecision(4)) + "M";
    if (size >= 1e4) return trim((value / 1e3).toPrecision(4)) + "k";
    if (size !== 0 && size < 1e-4) return value.toExponential(2);
    return trim(value.toPrecision(4));
  }
  function trim(text) { return text.indexOf(".") < 0 || text.indexOf("e") >= 0 ? text : text.replace(/\.?0+$/, ""); }
  function shown(value, y) {
    if (value === null || value === undefined) return "–";
    return y.percent ? (100 * value).toFixed(1) + "%" : number(value);
  }

  return { make: make, css: css, colour: colour, line: line, number: number, shown: shown };
})();
