"use strict";
// Keeps the live page up to date: asks for the view again and again, and changes only what has changed.
(function () {
  var badge = document.getElementById("live");
  var interval = 1000 * Number(document.documentElement.dataset.interval);
  var version = document.documentElement.dataset.version, figuresVersion = document.documentElement.dataset.figures;
  var figures = JSON.parse(document.getElementById("figures-data").textContent);
  var isOver = false;

  function say(text, isLost) {
    badge.classList.toggle("lost", isLost);
    badge.querySelector("span").textContent = text;
    badge.title = text;
  }

  function apply(view) {
    var changed = Boolean(view.figures);
    figures = view.figures || figures;
    Object.keys(view.sections).forEach(function (id) {
      var section = document.getElementById(id);
      if (!section || section.dataset.mark === view.sections[id].mark) return;
      var open = new Set();
      section.querySelectorAll("details[open][data-id]").forEach(function (node) { open.add(node.dataset.id); });
      section.innerHTML = view.sections[id].html; // made and escaped by the server's templates
      section.dataset.mark = view.sections[id].mark;
      section.hidden = !view.sections[id].html;
      section.querySelectorAll("details[data-id]").forEach(function (node) { node.open = open.has(node.dataset.id); });
      changed = changed || Boolean(section.querySelector("[data-figure]"));
    });
    document.querySelectorAll(".bar nav a").forEach(function (link) {
      var section = document.getElementById(link.hash.slice(1));
      link.parentNode.hidden = !section || section.hidden;
    });
    if (changed) Charts.mount(figures);
    version = view.version;
    figuresVersion = view.figuresVersion;
  }

  function ask() {
    if (isOver) return;
    var question = "view.json?version=" + encodeURIComponent(version) + "&figures=" + encodeURIComponent(figuresVersion);
    fetch(question, { cache: "no-store" }).then(function (answer) {
      return answer.status === 204 ? null : answer.json();
    }).then(function (view) {
      if (view && view.error) { say(view.error, true); return; }
      if (view) apply(view);
      var whole = document.querySelector("#progress progress");
      say("live" + (whole ? " · " + Math.floor(100 * whole.value) + "%" : ""), false);
    }).catch(function () { say("no connection: is headway watch still running?", true); })
      .finally(function () { window.setTimeout(ask, interval); });
  }

  window.addEventListener("pagehide", function () { isOver = true; });
  window.addEventListener("pageshow", function (event) { if (event.persisted) { isOver = false; ask(); } });
  window.setTimeout(ask, interval);
})();
