// Words of the page of health.

export const healthTexts = {
  title: "Health",
  daemon: "Daemon", version: "Version", up: "Up for", instance: "Run",
  latency: "Latency, captured to sent", medians: "Latency by stage, median", slowest: "Latency by stage, 99 %", stage: "Stage", frames: "Frames", gpu: "GPU", memory: "Memory", power: "Power",
  ms: "ms", fps: "frames/s", messages: "messages", percent: "%", mib: "MiB", watts: "W",
  series: {
    latency_p50_ms: "Median", latency_p99_ms: "99 %", fps: "Analysed", dropped_per_s: "Dropped", outbox: "Waiting to be sent",
    gpu: "GPU", decoder: "Decoder", cpu_percent: "CPU, 100 % is one core", gpu_memory: "GPU memory", memory: "Daemon's memory", power: "Power",
  },
  drops: "Frames dropped in the last hour", cause: "Cause", number: "Frames", noDrops: "No frame was dropped.",
  table: "As a table", noData: "No figures yet: the daemon sends them every few seconds.",
  none: "No daemon is known.", away: (row) => `The daemon ${row.name} is away. These are its last figures.`,
  cpu: "CPU", rss: "Memory", threads: "Threads", files: "Open files", subscriptions: "Subscriptions", outbox: "Outbox", fenced: "Late messages of an earlier owner", missed: "Messages that did not come",
  noGpu: (reason) => `No GPU: ${reason}`, last: "Now", chart: (title) => `Chart: ${title}`, time: "Time", throttled: "Clock held down by",
};
