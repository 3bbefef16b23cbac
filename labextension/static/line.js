// The line that a form types: options of `%tnt_cluster start` as a person would write them.

/** The options that a launcher has, in two groups: those that most need, and all the others. */
export function offered(options, launcher) {
  const first = ["-n", "--gpus", ...(launcher === "local" ? [] : ["--nodes", "--per-node"])];
  const everywhere = Math.max(...options.map((one) => one.launchers.length));
  const common = (one) => first.includes(one.flag) || one.launchers.length < everywhere;
  const there = options.filter(
    (one) => one.flag !== "--launcher" && one.launchers.includes(launcher),
  );
  return [there.filter(common), there.filter((one) => !common(one))];
}

/**
 * The line.
 *
 * @param options as the server names them.
 * @param values by flag, as they were written; of an option that is repeated a line each.
 */
export function line(options, values) {
  const launcher = values["--launcher"] || "local";
  const said = options.filter((one) => one.launchers.includes(launcher)).flatMap((one) => {
    const value = (values[one.flag] ?? "").trim();
    const all = one.repeated ? value.split("\n").map((each) => each.trim()) : [value];
    const given = all.filter((each) => each && (one.flag === "-n" || each !== String(one.default)));
    return given.map((each) => typed(one.flag, each));
  });
  return ["%tnt_cluster start", ...said].join(" ");
}

// What begins with a hyphen would be taken for an option of its own.
function typed(flag, value) {
  return flag + (value.startsWith("-") && flag !== "-n" ? "=" : " ") + quoted(value);
}

function quoted(value) {
  if (/^[\w.+@:/%=,-]+$/.test(value)) return value;
  return value.includes('"') ? `'${value}'` : `"${value}"`;
}
