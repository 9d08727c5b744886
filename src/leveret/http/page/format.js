/** Format numbers, sizes and times. */

const whole = new Intl.NumberFormat("en");
const brief = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Format a count in full: 12,345. */
export function count(value) {
  return typeof value === "number" ? whole.format(value) : "–";
}

/** Format a count in little space: 123.4K. */
export function short(value) {
  if (typeof value !== "number") return "–";
  return Math.abs(value) < 100000 ? whole.format(value) : brief.format(value);
}

/** Format a count with its noun: "1 message", "3 messages", "an unknown number of messages". */
export function pluralize(value, noun, plural = `${noun}s`) {
  if (typeof value !== "number") return `an unknown number of ${plural}`;
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** Format a share of 0 to 1: 50 %. */
export function percent(value) {
  return typeof value === "number" ? `${Math.round(value * 100)} %` : "–";
}

/** Format a rate per second. */
export function rate(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  if (value === 0) return "0/s";
  if (value < 0.05) return "<0.1/s";
  return value < 10 ? `${value.toFixed(1)}/s` : `${short(Math.round(value))}/s`;
}

export function bytes(value) {
  if (typeof value !== "number") return "–";
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const isWhole = size >= 100 || (unit === 0 && (size >= 10 || Number.isInteger(size)));
  return `${isWhole ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}

/** Format a rate in bytes per second. */
export function byteRate(value) {
  return typeof value === "number" ? `${bytes(value)}/s` : "–";
}

/** Format a duration: "850 ms", "3.2 s", "4 min 10 s", "2 h 5 min", "3 d 4 h". */
export function duration(ms) {
  if (typeof ms !== "number") return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const min = Math.floor(s / 60);
  if (min < 60) return `${min} min ${Math.floor(s % 60)} s`;
  const hours = Math.floor(min / 60);
  if (hours < 48) return `${hours} h ${min % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Format an age in one unit: "20 min", "3 h", "5 d". */
export function age(ms) {
  if (typeof ms !== "number") return "–";
  const steps = [
    [1000, 60, "s"],
    [60000, 60, "min"],
    [3600000, 48, "h"],
  ];
  if (ms < 1000) return `${Math.round(ms)} ms`;
  for (const [unit, most, name] of steps) {
    if (ms / unit < most) return `${Math.floor(ms / unit)} ${name}`;
  }
  return `${Math.floor(ms / 86400000)} d`;
}

/** Format a time in ms since 1970, in the user's time zone: 2026-05-01 13:00:59. */
export function time(ms) {
  if (typeof ms !== "number" || ms <= 0) return "–";
  const date = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Format a value of a table on one line. */
export function plain(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Return the shown name of an exchange. The default exchange has an empty name. */
export function exchangeName(name) {
  return name === "" ? "(default exchange)" : name;
}

/** Return a body as text. JSON is indented; base64 stays as it is. */
export function payload(message) {
  if (message.payload_encoding !== "string") return message.payload ?? "";
  const text = message.payload ?? "";
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
