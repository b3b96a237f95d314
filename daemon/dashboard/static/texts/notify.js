// Words of notifications.

export const notifyTexts = {
  events: "Notify me of events",
  hint: "While this page is open, and you look at something else.",
  insecure: "Browsers show notifications of pages with TLS alone, and of localhost: set dashboard.tls_certificate, or put a proxy with TLS before the page.",
  unknown: "This browser has no notifications for pages.",
  denied: "This browser does not allow it for this page. Its settings of the page can change that.",
  more: (source, n) => `${source}, and ${n} more`,
};
