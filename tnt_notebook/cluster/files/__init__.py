"""What a cluster has on disk: its folder, logs, record and lease."""
