"""`GET /openapi.json`: the document, and the schemas of bodies and answers."""
