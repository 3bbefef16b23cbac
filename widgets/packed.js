// Traits that the kernel has deflated, see tnt_notebook/dashboard/card/card.py.

/** What was packed; an empty object where nothing was. */
export async function unpacked({ deflated }) {
  if (!deflated) return {};
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}
