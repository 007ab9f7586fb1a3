"""Providers in: one file reads one provider's stream and writes it as events of a task."""
