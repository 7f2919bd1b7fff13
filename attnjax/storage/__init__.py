"""What a run keeps on disk: files, checkpoints, averages, their digests and faults."""
