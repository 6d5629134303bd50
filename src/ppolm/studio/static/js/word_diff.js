// Which words of two texts are not in the other, in order (a longest common subsequence).

const MOST_CELLS = 12_000_000;

/** Words and marks, each with the space after it, so that joined they are the text again. */
export function words(text) {
  return text.match(/^\s+|(?:[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_])\s*/gu) ?? [];
}

/** Two lists of parts { text, only }, one for each text; null where the texts are too long to compare. */
export function differences(first, second) {
  const [wordsA, wordsB] = [words(first), words(second)];
  const [a, b] = [wordsA, wordsB].map((all) => all.map((word) => word.trim()));
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail += 1;
  const [x, y] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  if ((x.length + 1) * (y.length + 1) > MOST_CELLS) return null;
  const [inX, inY] = common(x, y);
  const parts = (all, inner, shared) => joined(all.map((text, i) => ({ text, only: i >= head && i < head + inner.length && !shared[i - head] })));
  return [parts(wordsA, x, inX), parts(wordsB, y, inY)];
}

function common(x, y) {
  const width = y.length + 1;
  const length = new Uint16Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i -= 1) {
    for (let j = y.length - 1; j >= 0; j -= 1) {
      length[i * width + j] = x[i] === y[j] ? length[(i + 1) * width + j + 1] + 1 : Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
    }
  }
  const [inX, inY] = [new Array(x.length).fill(false), new Array(y.length).fill(false)];
  for (let i = 0, j = 0; i < x.length && j < y.length;) {
    if (x[i] === y[j]) { inX[i] = true; inY[j] = true; i += 1; j += 1; }
    else if (length[(i + 1) * width + j] >= length[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return [inX, inY];
}

/** Neighbours of the same kind as one part. */
function joined(parts) {
  const found = [];
  for (const part of parts) {
    if (found.length && found.at(-1).only === part.only) found.at(-1).text += part.text;
    else found.push({ ...part });
  }
  return found;
}
