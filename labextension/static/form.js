// The form that starts ranks: it shows the line that it types, letter by letter.

import { element, tell } from "./dom.js";
import { line, offered } from "./line.js";

/**
 * A form.
 *
 * @param told the options and the cores of this machine, as the server says.
 * @param start is called with the line.
 * @returns its node, and a function that says where the line would run, or why it cannot.
 */
export function form({ options, cores }, start) {
  const values = { "-n": String(Math.min(4, cores)), "--launcher": "local" };
  const launcher = options.find((one) => one.flag === "--launcher");
  const fields = element("div", { class: "tnt-lab-fields" });
  const rest = element("div", { class: "tnt-lab-fields" });
  const more = element("details", {}, element("summary", {}, "More options"), rest);
  const shown = element("code", { class: "tnt-lab-line", "aria-live": "polite" });
  const where = element("p", { class: "tnt-lab-where-to" });
  const go = element("button", { type: "submit", class: "tnt-lab-go" }, "Start");
  const dry = element("input", { type: "checkbox", input: show });
  const dryRun = element("label", { class: "tnt-lab-dry" }, dry, "only show what would be started");

  function show() {
    tell(shown, line(options, values) + (dry.checked ? " --dry-run" : ""));
    tell(go, dry.checked ? "Show" : "Start");
  }

  function field(option) {
    const changed = (event) => {
      values[option.flag] = event.target.value;
      if (option === launcher) arrange();
      show();
    };
    const given = values[option.flag] ?? "";
    let input;
    if (option.choices.length) {
      const chosen = given || option.default;
      const names = option.default ? option.choices : ["", ...option.choices];
      const all = names.map((name) =>
        element("option", { value: name, selected: name === chosen && "" }, name || "default"));
      input = element("select", { input: changed }, ...all);
    } else if (option.repeated) {
      input = element("textarea", { rows: 1, input: changed }, given);
    } else {
      const number = option.number ? { inputmode: "decimal" } : {};
      input = element("input", { type: "text", value: given, input: changed, ...number,
        placeholder: String(option.default) });
    }
    input.title = option.help;
    const name = option.flag === "-n" ? "ranks" : option.flag.replace(/^--/, "").replace("-", " ");
    return element("label", { title: option.help }, element("span", {}, name), input);
  }

  function arrange() {
    const [first, others] = offered(options, values["--launcher"]);
    const chooses = fields.querySelector("select"); // keeps the focus
    const head = chooses?.parentElement ?? field(launcher);
    const [ranks, ...following] = first.map(field);
    fields.replaceChildren(ranks, head, ...following);
    rest.replaceChildren(...others.map(field));
  }

  const submit = (event) => {
    event.preventDefault();
    if (go.getAttribute("aria-disabled") !== "true") start(shown.textContent);
  };
  const node = element("form", { class: "tnt-lab-form", submit, "aria-label": "Start ranks" }, fields,
    more, dryRun, shown, element("div", { class: "tnt-lab-end" }, go, where));
  arrange();
  show();
  const place = (notebook) => {
    go.setAttribute("aria-disabled", String(!notebook));
    tell(where, notebook ? `in ${notebook}` : "Open a notebook first: the line runs there.");
  };
  return { node, place };
}
