"use strict";
// Light or dark: the reader's system decides until the reader does. Runs before the page is drawn.
(function () {
  var root = document.documentElement;
  var system = window.matchMedia("(prefers-color-scheme: dark)");
  var choice = null;
  try { choice = window.localStorage.getItem("headway-theme"); } catch (error) { /* a page from disk may have no storage */ }

  function apply() {
    var theme = choice === "dark" || choice === "light" ? choice : system.matches ? "dark" : "light";
    var changed = root.dataset.theme !== theme;
    root.dataset.theme = theme;
    var button = document.getElementById("theme");
    if (button) {
      button.textContent = theme === "dark" ? "Light" : "Dark";
      button.setAttribute("aria-label", "Switch to " + (theme === "dark" ? "light" : "dark") + " colours");
    }
    if (changed) document.dispatchEvent(new CustomEvent("themechange"));
  }

  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", function () {
    apply();
    document.getElementById("theme").addEventListener("click", function () {
      choice = root.dataset.theme === "dark" ? "light" : "dark";
      try { window.localStorage.setItem("headway-theme", choice); } catch (error) { /* then only for this visit */ }
      apply();
    });
  });
})();
