"""JSON Schemas of what commands read, of their options, and of what they print."""
