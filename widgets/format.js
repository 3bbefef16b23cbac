// Numbers and times as people read them. Pure functions.

/** Four significant digits: 0.4321, 12.35, 1.2e-7; "NaN" for what is not finite (null in JSON). */
export function number(value) {
  if (value === undefined) return "–";
  if (value === null || !Number.isFinite(value)) return "NaN";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replace("e+", "e");
  return value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(size))));
}

/** A rate: one decimal below ten, thousands separated above: 3.2, 48, 12,345. */
export function rate(value) {
  if (!Number.isFinite(value)) return "–";
  return value < 10 && value > 0 ? value.toFixed(1) : count(Math.round(value));
}

/** A whole number with thousands separated: 12,345. */
export function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A part of the whole: 27%. */
export function percent(share) {
  return `${Math.round(100 * share)}%`;
}

/** A time far below a minute, in three digits: 4.27 µs, 138 µs, 2.5 ms, 1.2 s. */
export function shortTime(seconds) {
  if (seconds < 999.5e-6) return `${threeDigits(1e6 * seconds)} µs`;
  return seconds < 0.9995 ? `${threeDigits(1e3 * seconds)} ms` : `${threeDigits(seconds)} s`;
}

/** Seconds as a clock: 0:07, 12:34, 1:02:03, 2 d 3:04:05. */
export function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const [d, h, m, s] = [
    Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60,
  ];
  const tail = whole >= 3600 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
  return d > 0 ? `${d} d ${tail}` : tail;
}

/** A metric's name for people: "sparse_categorical_accuracy" -> "sparse categorical accuracy". */
export function label(name) {
  return name.replaceAll("_", " ");
}

function threeDigits(value) {
  return value >= 99.95 ? count(Math.round(value)) : String(Number(value.toPrecision(3)));
}
