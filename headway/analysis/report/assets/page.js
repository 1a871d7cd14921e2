"use strict";
// Starts the page: figures from the data that the page carries, and the mark in the navigation.
(function () {
  function start() {
    var data = document.getElementById("figures-data");
    if (data) Charts.mount(JSON.parse(data.textContent));
    var menu = document.getElementById("menu");
    var unfold = function (isOpen) { menu.setAttribute("aria-expanded", isOpen); };
    menu.hidden = false;
    menu.addEventListener("click", function () { unfold(menu.getAttribute("aria-expanded") !== "true"); });
    menu.nextElementSibling.addEventListener("click", function () { unfold(false); });
    var links = new Map();
    document.querySelectorAll(".bar nav a").forEach(function (link) { links.set(link.hash.slice(1), link); });
    var inView = new Set();
    var spy = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) { inView[entry.isIntersecting ? "add" : "delete"](entry.target.id); });
      var marked = false;
      links.forEach(function (link, id) {
        if (!marked && inView.has(id)) {
          link.setAttribute("aria-current", "true");
          link.parentNode.parentNode.parentNode.scrollTo({ left: Math.max(0, link.offsetLeft - 60) });
          marked = true;
        } else link.removeAttribute("aria-current");
      });
    }, { rootMargin: "-64px 0px -55% 0px" });
    document.querySelectorAll("main > section[id]").forEach(function (section) { spy.observe(section); });
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
