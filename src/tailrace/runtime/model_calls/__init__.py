"""Model calls: one request and its tries. `models` has the providers themselves."""
