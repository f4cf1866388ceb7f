"""A sweep as one page that needs no network: `oneshot-fl report DIR -o report.html`."""
