// A number with its noun.
export const plural = (n, one, many) => `${n} ${n === 1 ? one : many}`;
