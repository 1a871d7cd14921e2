"use strict";
// Keeps the live page up to date: asks for the view again and again, and changes only what has changed.
(function () {
  var badge = document.getElementById("live");
  var interval = 1000 * Number(document.documentElement.dataset.interval);
  var version = document.documentElement.dataset.version;
  var isOver = false;

  function say(text, isLost) {
    badge.classList.toggle("lost", isLost);
    badge.querySelector("span").textContent = text;
    badge.title = text;
  }

  function apply(view) {
    var changed = false;
    Object.keys(view.sections).forEach(function (id) {
      var section = document.getElementById(id);
      if (!section || section.dataset.mark === view.sections[id].mark) return;
      var open = new Set();
      section.querySelectorAll("details[open][data-id]").forEach(function (node) { open.add(node.dataset.id); });
      section.innerHTML = view.sections[id].html; // made and escaped by the server's templates
      section.dataset.mark = view.sections[id].mark;
      section.hidden = !view.sections[id].html;
      section.querySelectorAll("details[data-id]").forEach(function (node) { node.open = open.has(node.dataset.id); });
      changed = true;
    });
    document.querySelectorAll(".bar nav a").forEach(function (link) {
      var section = document.getElementById(link.hash.slice(1));
      link.parentNode.hidden = !section || section.hidden;
    });
    if (changed || view.version !== version) Charts.mount(view.figures);
    version = view.version;
  }

  function ask() {
    if (isOver) return;
    fetch("view.json?version=" + encodeURIComponent(version), { cache: "no-store" }).then(function (answer) {
      if (answer.status === 204) return null;
      if (!answer.ok) throw new Error("status " + answer.status);
      return answer.json();
    }).then(function (view) {
      if (view) apply(view);
      say("live", false);
    }).catch(function () { say("no connection: is headway watch still running?", true); })
      .finally(function () { window.setTimeout(ask, interval); });
  }

  window.addEventListener("pagehide", function () { isOver = true; });
  window.addEventListener("pageshow", function (event) { if (event.persisted) { isOver = false; ask(); } });
  window.setTimeout(ask, interval);
})();
