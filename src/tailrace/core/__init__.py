"""What a run *is*: events, fold, references, errors, framing. Pure: no I/O, clock or chance."""
