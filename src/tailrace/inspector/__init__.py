"""The inspector: a page that shows threads, runs and their events. Plain ES modules, no build."""
