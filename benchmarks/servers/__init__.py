"""What is measured over HTTP: Tailrace, and what one would write by hand for one benchmark."""
