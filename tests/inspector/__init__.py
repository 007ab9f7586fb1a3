"""The inspector in a real browser, on a real server. Its tests share one of each."""
