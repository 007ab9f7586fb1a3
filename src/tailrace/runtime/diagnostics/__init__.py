"""What operators and tests see of a process: errors, log lines, metrics, spans, crash points."""
