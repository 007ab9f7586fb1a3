"""How fast Tailrace is, next to its peers and to the least that the work can cost."""
