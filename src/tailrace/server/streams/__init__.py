"""Runs and threads as streams and large answers, from the cursor of a client on."""
