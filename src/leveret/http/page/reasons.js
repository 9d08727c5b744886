/**
 * Reasons of the broker as people read them.
 *
 * Some reasons are RabbitMQ's words, which its clients compare: a policy with an unknown key is
 * refused with `[{<<"ttl">>,<<"5">>}] are not recognised policy settings`. These are Erlang terms.
 */

/** @param {string} reason */
export function plainReason(reason) {
  return reason
    .replace(/^Validation failed\s*/, "")
    .replace(/\[((?:\{<<"[^"]*">>,.*?\},?)+)\] are not recognised policy settings/s, unknownKeys)
    .replace(/\[\{key_missing,(\w+)\}\]/, "“$1” is missing")
    .replace(/<<"([^"]*)">>/g, "“$1”")
    .replace(/<<>>/g, "an empty text")
    .replace(/, actually was /g, ", not ")
    .replace(/: "expected (\w+), got (\w+)"/, (_, wanted, got) => `: must be ${type(wanted)}, not ${type(got)}`)
    .replace(/ of RE2's kind, which has neither look-around nor back-references/, "")
    .trim();
}

function unknownKeys(_, pairs) {
  const names = [...pairs.matchAll(/\{<<"([^"]*)">>,/g)].map(([, name]) => `“${name}”`);
  return names.length === 1
    ? `${names[0]} is not a policy setting`
    : `${names.join(", ")} are not policy settings`;
}

const TYPES = { longstr: "a text", integer: "a whole number", bool: "true or false", table: "a table" };

function type(name) {
  return TYPES[name] ?? name;
}
