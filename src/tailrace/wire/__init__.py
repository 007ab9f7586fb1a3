"""Wire formats: what clients receive. A file or package is a format, pure and without I/O."""
