"""What happens while a run lives: events are written, and followed."""
