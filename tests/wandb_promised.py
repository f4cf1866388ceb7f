"""What every run of Weights & Biases promises to hold, as far as its method has it."""

PHASES = ("prepare", "clients", "stratify", "recite", "distill", "evaluate")
COSTS = ("seconds", "cpu_seconds", "peak_host_bytes", "peak_device_bytes", "macs", "upload_bytes", "download_bytes")
SUMMARY = {
    "server/accuracy_last",
    "server/accuracy_best",
    *(f"cost/{phase}/{name}" for phase in PHASES for name in COSTS),
}
HISTORY = {
    *("distill/accuracy", "distill/step", "distill/images", "evaluate/server_last"),
    *("clients/losses", "evaluate/by_class", "evaluate/clients", "guidance/matrix"),
}
KEYS = SUMMARY | HISTORY
