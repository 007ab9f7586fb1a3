/** The icons of the page: strokes on a grid of 16, so that they look the same on every system. */

const PATHS = {
  check: "M3.5 8.5l3 3 6-7",
  chevron: "M6 4l4 4-4 4",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  cut: "M2.5 8h3M10.5 8h3M7 4.5L9 11.5",
  edit: "M3 13l.7-3.2L10.8 2.7l2.5 2.5L6.2 12.3z",
  fork: "M4.5 5.9v4.2M4.5 5.9a1.6 1.6 0 1 0 0-3.2 1.6 1.6 0 0 0 0 3.2zM4.5 13.3a1.6 1.6 0 1 0 0-3.2 1.6 1.6 0 0 0 0 3.2zM11.2 5.9a1.6 1.6 0 1 0 0-3.2 1.6 1.6 0 0 0 0 3.2zM11.2 5.9c0 1.6-1 2.2-2.6 2.3H4.5",
  left: "M10 4L6 8l4 4",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  plus: "M8 3v10M3 8h10",
  redo: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3.2H9.8",
  right: "M6 4l4 4-4 4",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5l3 3",
  send: "M8 13V3M3.5 7.5L8 3l4.5 4.5",
  stop: "M3.8 3.8h8.4v8.4H3.8z",
  sun: "M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9",
};

const SVG = "http://www.w3.org/2000/svg";

/** An icon without a name: the control around it has one. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = svg.appendChild(document.createElementNS(SVG, "path"));
  path.setAttribute("d", PATHS[name] ?? "");
  return svg;
}

/** Fill the controls of the document that ask for an icon. */
export function placeIcons(root = document) {
  for (const node of root.querySelectorAll("[data-icon]")) node.prepend(icon(node.dataset.icon));
}
