"""The event log as the runtime uses it. `stores` has the databases themselves."""
