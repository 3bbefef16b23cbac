// How far a run is. Pure functions.

/** Part of the whole run that is done, 0 to 1; null while the length of an epoch is unknown. */
export function fractionDone({ epoch, epochs, step, steps }) {
  if (epoch === 0) return 0;
  if (!steps) return epochs > 1 ? (epoch - 1) / epochs : null;
  return Math.min(1, (epoch - 1 + Math.min(step, steps) / steps) / epochs);
}
