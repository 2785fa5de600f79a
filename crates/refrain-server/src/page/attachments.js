// Text files that are attached to a message. Their text is sent to the model after the message's own text.

/** Bytes of an attached file at most. */
const MAX_BYTES = 1 << 20;

/** Reads a text file. Throws if it is too large or not UTF-8 text. */
export async function readTextFile(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than ${MAX_BYTES >> 20} MiB`);
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    if (text.includes('\0')) throw new Error('a NUL character');
    return { name: file.name, text };
  } catch {
    throw new Error(`${file.name} is not a text file`);
  }
}

/** A message's text with its files, as it is sent to the model. */
export function withFiles({ content, files = [] }) {
  const parts = files.map(({ name, text }) => `--- File: ${name} ---\n${text}`);
  return [...(content ? [content] : []), ...parts].join('\n\n');
}

/** The size of a text, for display. */
export function describeSize(text) {
  const bytes = new Blob([text]).size;
  return bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(bytes < 10240 ? 1 : 0)} KiB`;
}
